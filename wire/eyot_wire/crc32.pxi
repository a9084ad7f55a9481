# CRC-32 (zlib's), eight bytes at a time, for the compiled twins that check records. The including file defines uint8_t
# and uint32_t.

cdef uint32_t crc_table[8][256]

cdef void make_crc_table() noexcept:
    cdef uint32_t value
    cdef int index, bit
    for index in range(256):
        value = index
        for bit in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        crc_table[0][index] = value
    for index in range(256):
        for bit in range(1, 8):
            value = crc_table[bit - 1][index]
            crc_table[bit][index] = (value >> 8) ^ crc_table[0][value & 255]

make_crc_table()


cdef uint32_t crc32(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t low
    crc = ~crc
    while size >= 8:
        low = crc ^ (data[0] | (<uint32_t>data[1] << 8) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24))
        crc = (
            crc_table[7][low & 255] ^ crc_table[6][(low >> 8) & 255]
            ^ crc_table[5][(low >> 16) & 255] ^ crc_table[4][low >> 24]
            ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^ crc_table[0][data[7]]
        )
        data += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ crc_table[0][(crc ^ data[0]) & 255]
        data += 1
        size -= 1
    return ~crc
