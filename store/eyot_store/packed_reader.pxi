# A MessagePack reader for the compiled twins. The including file defines uint8_t, int64_t and uint64_t.

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    bint bad


cdef uint64_t big_endian(Reader* reader, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    if reader.end - reader.at < size:
        reader.bad = True
        return 0
    for index in range(size):
        value = value << 8 | reader.at[index]
    reader.at += size
    return value


cdef int64_t number(Reader* reader) noexcept nogil:
    cdef uint8_t kind = <uint8_t>big_endian(reader, 1)
    cdef uint64_t value
    if kind < 0x80:
        return kind
    if kind >= 0xE0:
        return <int64_t>kind - 256
    if 0xCC <= kind <= 0xCF:
        value = big_endian(reader, 1 << (kind - 0xCC))
        if value >> 63:
            reader.bad = True
        return <int64_t>value
    if kind == 0xD0:
        return <signed char>big_endian(reader, 1)
    if kind == 0xD1:
        return <short>big_endian(reader, 2)
    if kind == 0xD2:
        return <int>big_endian(reader, 4)
    if kind == 0xD3:
        return <int64_t>big_endian(reader, 8)
    reader.bad = True
    return 0


cdef Py_ssize_t elements(Reader* reader) noexcept nogil:
    # How many an array has.
    cdef uint8_t kind = <uint8_t>big_endian(reader, 1)
    if 0x90 <= kind <= 0x9F:
        return kind & 15
    if kind == 0xDC or kind == 0xDD:
        return <Py_ssize_t>big_endian(reader, 2 if kind == 0xDC else 4)
    reader.bad = True
    return 0


cdef const char* text_of(Reader* reader, Py_ssize_t* size) noexcept nogil:
    # A subject, or nil.
    cdef uint8_t kind = <uint8_t>big_endian(reader, 1)
    cdef const char* text
    size[0] = 0
    if kind == 0xC0:
        size[0] = 1
        return b"\n"
    if kind < 0xC4 or kind > 0xC6:
        reader.bad = True
        return NULL
    size[0] = <Py_ssize_t>big_endian(reader, 1 << (kind - 0xC4))
    text = <const char*>reader.at
    if reader.end - reader.at < size[0]:
        reader.bad = True
    else:
        reader.at += size[0]
    return text
