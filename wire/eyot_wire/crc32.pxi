# CRC-32 (zlib's), for the compiled twins that check records. The including file defines uint8_t and uint32_t.
#
# Long texts are folded by the carry-less multiplication of x86-64 processors, 64 bytes at a time (V. Gopal and others, "Fast CRC
# Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009), or go through the CRC instruction of ARM.
# Other processors and short texts take eight bytes at a time from tables. All give the same number.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define EYOT_CRC32_FOLDS 1

    /* Multiply both halves of `x` by powers of x, so that it moves over the text that `y` stands for. */
    __attribute__((target("pclmul,sse4.1")))
    static inline __m128i eyot_crc32_fold(__m128i x, __m128i powers, __m128i y) {
        __m128i low = _mm_clmulepi64_si128(x, powers, 0x00), high = _mm_clmulepi64_si128(x, powers, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), y);
    }

    /* `crc` is inverted, as in the tables' loop; `size` is at least 64 and a multiple of 16. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t eyot_crc32_folded(uint32_t crc, const uint8_t *data, size_t size) {
        const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
        const __m128i *at = (const __m128i *)data;
        __m128i lanes[4], one, quotient;
        int lane;
        for (lane = 0; lane < 4; lane++)
            lanes[lane] = _mm_loadu_si128(at + lane);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
        for (at += 4, size -= 64; size >= 64; at += 4, size -= 64)
            for (lane = 0; lane < 4; lane++)
                lanes[lane] = eyot_crc32_fold(lanes[lane], by_512, _mm_loadu_si128(at + lane));
        one = lanes[0];
        for (lane = 1; lane < 4; lane++)
            one = eyot_crc32_fold(one, by_128, lanes[lane]);
        for (; size >= 16; at++, size -= 16)
            one = eyot_crc32_fold(one, by_128, _mm_loadu_si128(at));
        /* 128 bits to 64, to 32 */
        one = _mm_xor_si128(_mm_srli_si128(one, 8), _mm_clmulepi64_si128(one, by_128, 0x10));
        one = _mm_xor_si128(_mm_srli_si128(one, 4), _mm_clmulepi64_si128(_mm_and_si128(one, words), by_64, 0x00));
        quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(one, words), barrett, 0x10), words);
        one = _mm_xor_si128(one, _mm_clmulepi64_si128(quotient, barrett, 0x00));
        return (uint32_t)_mm_extract_epi32(one, 1);
    }

    static int eyot_crc32_can_fold(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    #elif defined(__aarch64__) && defined(__GNUC__) && defined(__linux__)
    #include <arm_acle.h>
    #include <sys/auxv.h>
    #define EYOT_CRC32_FOLDS 1

    __attribute__((target("+crc")))
    static uint32_t eyot_crc32_folded(uint32_t crc, const uint8_t *data, size_t size) {
        uint64_t word;
        for (; size >= 8; data += 8, size -= 8) {
            memcpy(&word, data, 8);
            crc = __crc32d(crc, word);
        }
        return crc;
    }

    static int eyot_crc32_can_fold(void) {
        return (getauxval(AT_HWCAP) >> 7) & 1; /* HWCAP_CRC32 */
    }
    #else
    static uint32_t eyot_crc32_folded(uint32_t crc, const uint8_t *data, size_t size) {
        (void)data, (void)size;
        return crc;
    }

    static int eyot_crc32_can_fold(void) {
        return 0;
    }
    #endif
    """
    uint32_t eyot_crc32_folded(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
    int eyot_crc32_can_fold() noexcept

cdef uint32_t crc_table[8][256]
cdef bint crc_folds = eyot_crc32_can_fold() != 0

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
    cdef Py_ssize_t folded
    crc = ~crc
    if size >= 64 and crc_folds:
        folded = size & ~<Py_ssize_t>15
        crc = eyot_crc32_folded(crc, data, folded)
        data += folded
        size -= folded
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
