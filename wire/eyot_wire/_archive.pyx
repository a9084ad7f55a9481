# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The archive's work on every byte, in C: the compiled twin of archive/crc32c.py, plain_chunks.py, s2_block.py and
highwayhash.py.

The plain twins document each function.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

# -- CRC-32C -----------------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    /* Whole words by the processor's own instruction, where it has one. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>

    __attribute__((target("sse4.2")))
    static uint32_t eyot_crc32c_words(uint32_t crc, const uint8_t *data, size_t words) {
        uint64_t word, wide = crc;
        for (; words; words--, data += 8) {
            memcpy(&word, data, 8);
            wide = _mm_crc32_u64(wide, word);
        }
        return (uint32_t)wide;
    }

    static int eyot_has_crc32c(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2");
    }
    #elif defined(__aarch64__) && defined(__GNUC__) && defined(__linux__)
    #include <arm_acle.h>
    #include <sys/auxv.h>

    __attribute__((target("+crc")))
    static uint32_t eyot_crc32c_words(uint32_t crc, const uint8_t *data, size_t words) {
        uint64_t word;
        for (; words; words--, data += 8) {
            memcpy(&word, data, 8);
            crc = __crc32cd(crc, word);
        }
        return crc;
    }

    static int eyot_has_crc32c(void) {
        return (getauxval(AT_HWCAP) >> 7) & 1; /* HWCAP_CRC32 */
    }
    #else
    static uint32_t eyot_crc32c_words(uint32_t crc, const uint8_t *data, size_t words) {
        (void)data, (void)words;
        return crc;
    }

    static int eyot_has_crc32c(void) {
        return 0;
    }
    #endif
    """
    uint32_t eyot_crc32c_words(uint32_t crc, const uint8_t* data, size_t words) noexcept nogil
    int eyot_has_crc32c() noexcept

cdef bint has_crc32c = eyot_has_crc32c() != 0
# Eight tables process eight bytes a step.
cdef uint32_t[8][256] crc_tables


cdef void fill_tables() noexcept:
    cdef uint32_t value
    cdef int byte, bit, table
    for byte in range(256):
        value = byte
        for bit in range(8):
            value = (value >> 1) ^ (0x82F63B78u if value & 1 else 0)
        crc_tables[0][byte] = value
    for table in range(1, 8):
        for byte in range(256):
            value = crc_tables[table - 1][byte]
            crc_tables[table][byte] = crc_tables[0][value & 0xFF] ^ (value >> 8)


fill_tables()


cdef uint32_t crc_of(const uint8_t* at, Py_ssize_t left) noexcept nogil:
    cdef uint32_t value = 0xFFFFFFFFu
    if has_crc32c:
        value = eyot_crc32c_words(value, at, left // 8)
        at += left & ~<Py_ssize_t>7
        left &= 7
    while left >= 8:
        value ^= <uint32_t> at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24
        value = (
            crc_tables[7][value & 0xFF] ^ crc_tables[6][(value >> 8) & 0xFF]
            ^ crc_tables[5][(value >> 16) & 0xFF] ^ crc_tables[4][value >> 24]
            ^ crc_tables[3][at[4]] ^ crc_tables[2][at[5]] ^ crc_tables[1][at[6]] ^ crc_tables[0][at[7]]
        )
        at += 8
        left -= 8
    while left:
        value = crc_tables[0][(value ^ at[0]) & 0xFF] ^ (value >> 8)
        at += 1
        left -= 1
    return value ^ 0xFFFFFFFFu


def crc32c(data not None):
    cdef Py_buffer view
    cdef uint32_t value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            value = crc_of(<const uint8_t*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value


# -- chunks of a stream ------------------------------------------------------------------------------------------------

cdef enum:
    BLOCK = 65536
    HEAD = 8  # kind, three bytes of size, four of the checksum


cdef void finish_chunk(uint8_t* head, Py_ssize_t length) noexcept nogil:
    # Write kind, size and masked checksum of the `length` bytes behind the head.
    cdef uint32_t crc = crc_of(head + HEAD, length), size = <uint32_t> length + 4
    crc = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u
    head[0] = 1
    head[1] = size & 0xFF
    head[2] = (size >> 8) & 0xFF
    head[3] = (size >> 16) & 0xFF
    head[4] = crc & 0xFF
    head[5] = (crc >> 8) & 0xFF
    head[6] = (crc >> 16) & 0xFF
    head[7] = crc >> 24


def plain_chunks(list parts not None):
    cdef Py_ssize_t total = 0, filled = 0, size, step
    cdef const char* source
    cdef uint8_t* head
    cdef bytes out
    for part in parts:
        total += PyBytes_GET_SIZE(<bytes?> part)
    if not total:
        return b""
    out = PyBytes_FromStringAndSize(NULL, total + (total + BLOCK - 1) // BLOCK * HEAD)
    head = <uint8_t*> PyBytes_AS_STRING(out)
    for part in parts:
        source = PyBytes_AS_STRING(part)
        size = PyBytes_GET_SIZE(part)
        while size:
            if filled == BLOCK:
                finish_chunk(head, filled)
                head += HEAD + BLOCK
                filled = 0
            step = min(size, BLOCK - filled)
            memcpy(head + HEAD + filled, source, step)
            filled += step
            source += step
            size -= step
    finish_chunk(head, filled)
    return out


# -- S2 ----------------------------------------------------------------------------------------------------------------

cdef inline uint32_t little(const uint8_t* at, int width) noexcept nogil:
    cdef uint32_t value = 0
    cdef int i
    for i in range(width):
        value |= <uint32_t> at[i] << (8 * i)
    return value


cdef Py_ssize_t elements(const uint8_t* at, const uint8_t* end, uint8_t* out, Py_ssize_t room) noexcept nogil:
    # Decodes into `out`. Returns the number of decoded bytes, or -1 for corrupt input.
    cdef Py_ssize_t done = 0
    cdef int64_t size, offset = 1, short_offset
    cdef uint8_t tag
    cdef int kind, upper, width
    while at < end:
        tag = at[0]
        kind = tag & 3
        upper = tag >> 2
        at += 1
        if kind == 0:
            size = upper + 1
            if upper >= 60:
                width = upper - 59
                if end - at < width:
                    return -1
                size = <int64_t> little(at, width) + 1
                at += width
            if end - at < size or room - done < size:
                return -1
            memcpy(out + done, at, size)
            at += size
            done += size
            continue
        if kind == 1:
            if at == end:
                return -1
            size = upper & 7
            short_offset = (<int64_t> (tag & 0xE0) << 3) | at[0]
            at += 1
            if short_offset:
                offset = short_offset
            elif size >= 5:
                width = <int> size - 4
                if end - at < width:
                    return -1
                size = <int64_t> little(at, width) + (4 if width == 1 else 256 if width == 2 else 65536)
                at += width
            size += 4
        else:
            width = 2 if kind == 2 else 4
            if end - at < width:
                return -1
            offset = little(at, width)
            at += width
            size = upper + 1
        if offset == 0 or offset > done or room - done < size:
            return -1
        if offset >= size:
            memcpy(out + done, out + done - offset, size)
            done += size
        else:
            while size:
                out[done] = out[done - offset]
                done += 1
                size -= 1
    return done


def decode_block(bytes block not None, Py_ssize_t length_max):
    cdef const uint8_t* start = <const uint8_t*> PyBytes_AS_STRING(block)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(block)
    cdef const uint8_t* at = start
    cdef uint64_t length = 0
    cdef int shift = 0
    cdef Py_ssize_t done
    cdef uint8_t byte = 0x80
    while byte >= 0x80:
        if at == end or shift > 28:
            raise ValueError("s2: corrupt input")
        byte = at[0]
        length |= <uint64_t> (byte & 0x7F) << shift
        shift += 7
        at += 1
    if <int64_t> length > length_max:
        raise ValueError("s2: decoded block is too large")
    cdef bytes out = PyBytes_FromStringAndSize(NULL, length)
    cdef uint8_t* into = <uint8_t*> PyBytes_AS_STRING(out)
    with nogil:
        done = elements(at, end, into, length)
    if done != <Py_ssize_t> length:
        raise ValueError("s2: corrupt input")
    return out


# -- HighwayHash -------------------------------------------------------------------------------------------------------

cdef struct State:
    uint64_t[4] v0
    uint64_t[4] v1
    uint64_t[4] mul0
    uint64_t[4] mul1

cdef uint64_t[4] MUL0 = [0xDBE6D5D5FE4CCE2Full, 0xA4093822299F31D0ull, 0x13198A2E03707344ull, 0x243F6A8885A308D3ull]
cdef uint64_t[4] MUL1 = [0x3BD39E10CB0EF593ull, 0xC0ACF169B5F18A8Cull, 0xBE5466CF34E90C6Cull, 0x452821E638D01377ull]


cdef inline uint64_t word(const uint8_t* at) noexcept nogil:
    return <uint64_t> little(at, 4) | <uint64_t> little(at + 4, 4) << 32


cdef inline uint64_t swap(uint64_t value) noexcept nogil:
    return (value >> 32) | (value << 32)


cdef inline uint32_t rotate(uint32_t value, int by) noexcept nogil:
    return (value << by) | (value >> (32 - by))


cdef inline void zipper(uint64_t high, uint64_t low, uint64_t* into) noexcept nogil:
    into[0] += (
        ((low & 0xFF000000ull) | (high & 0xFF00000000ull)) >> 24
        | ((low & 0xFF0000000000ull) | (high & 0xFF000000000000ull)) >> 16
        | (low & 0xFF0000ull) | (low & 0xFF00ull) << 32 | (high & 0xFF00000000000000ull) >> 8 | low << 56
    )
    into[1] += (
        ((high & 0xFF000000ull) | (low & 0xFF00000000ull)) >> 24
        | (high & 0xFF0000ull) | (high & 0xFF0000000000ull) >> 16 | (high & 0xFF00ull) << 24
        | (low & 0xFF000000000000ull) >> 8 | (high & 0xFFull) << 48 | (low & 0xFF00000000000000ull)
    )


cdef inline void update(State* state, uint64_t a, uint64_t b, uint64_t c, uint64_t d) noexcept nogil:
    cdef uint64_t[4] lanes
    cdef int i
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d
    for i in range(4):
        state.v1[i] += state.mul0[i] + lanes[i]
        state.mul0[i] ^= (state.v1[i] & 0xFFFFFFFFull) * (state.v0[i] >> 32)
        state.v0[i] += state.mul1[i]
        state.mul1[i] ^= (state.v0[i] & 0xFFFFFFFFull) * (state.v1[i] >> 32)
    zipper(state.v1[1], state.v1[0], &state.v0[0])
    zipper(state.v1[3], state.v1[2], &state.v0[2])
    zipper(state.v0[1], state.v0[0], &state.v1[0])
    zipper(state.v0[3], state.v0[2], &state.v1[2])


cdef inline void packet(State* state, const uint8_t* at) noexcept nogil:
    update(state, word(at), word(at + 8), word(at + 16), word(at + 24))


cdef void remainder(State* state, const uint8_t* rest, int size) noexcept nogil:
    cdef uint8_t[32] last
    cdef int i, whole = size & ~3, odd = size & 3
    for i in range(4):
        state.v0[i] += (<uint64_t> size << 32) + size
        state.v1[i] = <uint64_t> rotate(<uint32_t> state.v1[i], size) | <uint64_t> rotate(<uint32_t> (state.v1[i] >> 32), size) << 32
    memset(&last[0], 0, 32)
    memcpy(&last[0], rest, whole)
    if size & 16:
        memcpy(&last[28], rest + size - 4, 4)
    elif odd:
        last[16] = rest[whole]
        last[17] = rest[whole + (odd >> 1)]
        last[18] = rest[size - 1]
    packet(state, &last[0])


cdef class HighwayHash64:
    cdef State fresh

    def __init__(self, bytes key not None):
        if len(key) != 32:
            raise ValueError("the key must have 32 bytes")
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(key)
        cdef int i
        for i in range(4):
            self.fresh.mul0[i] = MUL0[i]
            self.fresh.mul1[i] = MUL1[i]
            self.fresh.v0[i] = MUL0[i] ^ word(at + 8 * i)
            self.fresh.v1[i] = MUL1[i] ^ swap(word(at + 8 * i))

    def behind(self, bytes data not None):
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(data)
        cdef Py_ssize_t left = PyBytes_GET_SIZE(data)
        cdef HighwayHash64 further = HighwayHash64.__new__(HighwayHash64)
        if left % 32:
            raise ValueError("only whole packets can be followed by others")
        further.fresh = self.fresh
        while left:
            packet(&further.fresh, at)
            at += 32
            left -= 32
        return further

    def digest(self, bytes data not None):
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(data)
        cdef Py_ssize_t left = PyBytes_GET_SIZE(data)
        cdef State state = self.fresh
        cdef uint64_t result
        cdef uint8_t[8] out
        cdef int i
        while left >= 32:
            packet(&state, at)
            at += 32
            left -= 32
        if left:
            remainder(&state, at, <int> left)
        for i in range(4):
            update(&state, swap(state.v0[2]), swap(state.v0[3]), swap(state.v0[0]), swap(state.v0[1]))
        result = state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]
        for i in range(8):
            out[i] = <uint8_t> (result >> (8 * i))
        return PyBytes_FromStringAndSize(<char*> &out[0], 8)
