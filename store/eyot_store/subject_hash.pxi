# Hashes of subjects, for the compiled tables. The including file defines uint32_t, uint64_t and memcpy.

import os

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")  # whoever names subjects must not know where they come to lie


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    value = (value ^ (value >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    return value ^ (value >> 32)


cdef uint32_t hash_of(const char* text, Py_ssize_t size) noexcept nogil:
    cdef uint64_t value = SEED ^ <uint64_t>size, piece
    while size >= 8:
        memcpy(&piece, text, 8)
        value = mixed(value ^ piece) + SEED
        text += 8
        size -= 8
    if size:
        piece = 0
        memcpy(&piece, text, size)
        value = mixed(value ^ piece) + SEED
    return <uint32_t>(mixed(value) >> 32)
