# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The work on every byte of a batch of payloads, in C: the compiled twin of payload_run.py, which documents the functions.

Payloads come as Arrow has them: the bytes of all, one after the other, and where each begins.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

# -- BLAKE2b of 8 bytes ------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Four payloads are hashed at once, each in its own lane; compilers without vectors of this size make two or four steps of one. */
    typedef uint64_t eyot_lanes __attribute__((vector_size(32)));

    #define EYOT_LANES 4
    #define EYOT_BLOCK 128

    static const uint64_t eyot_blake_iv[8] = {
        0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
        0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};

    static inline __attribute__((always_inline)) uint64_t eyot_word(const uint8_t *at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    #define EYOT_ROTATED(x, by) (((x) >> (by)) | ((x) << (64 - (by))))
    #define EYOT_G(a, b, c, d, x, y)                                                                                   \\
        a += b + x; d = EYOT_ROTATED(d ^ a, 32); c += d; b = EYOT_ROTATED(b ^ c, 24);                                  \\
        a += b + y; d = EYOT_ROTATED(d ^ a, 16); c += d; b = EYOT_ROTATED(b ^ c, 63);
    #define EYOT_ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                           \\
        EYOT_G(v[0], v[4], v[8], v[12], m[s0], m[s1])    EYOT_G(v[1], v[5], v[9], v[13], m[s2], m[s3])                 \\
        EYOT_G(v[2], v[6], v[10], v[14], m[s4], m[s5])   EYOT_G(v[3], v[7], v[11], v[15], m[s6], m[s7])                \\
        EYOT_G(v[0], v[5], v[10], v[15], m[s8], m[s9])   EYOT_G(v[1], v[6], v[11], v[12], m[s10], m[s11])              \\
        EYOT_G(v[2], v[7], v[8], v[13], m[s12], m[s13])  EYOT_G(v[3], v[4], v[9], v[14], m[s14], m[s15])

    static inline __attribute__((always_inline)) void eyot_blake_of_four(
        const uint8_t *const *texts, const int64_t *sizes, uint64_t *found) {
        eyot_lanes h[8], v[16], m[16];
        uint8_t padded[EYOT_LANES][EYOT_BLOCK];
        int64_t done = 0, longest = 0;
        int lane, i;
        for (i = 0; i < 8; i++)
            h[i] = (eyot_lanes){eyot_blake_iv[i], eyot_blake_iv[i], eyot_blake_iv[i], eyot_blake_iv[i]};
        h[0] ^= 0x01010008ULL; /* 8 bytes of digest, no key, one leaf */
        for (lane = 0; lane < EYOT_LANES; lane++)
            if (sizes[lane] > longest)
                longest = sizes[lane];
        do { /* an empty text is one block, too */
            const uint8_t *block[EYOT_LANES];
            eyot_lanes count, last;
            for (lane = 0; lane < EYOT_LANES; lane++) {
                int64_t left = sizes[lane] - done;
                if (left >= EYOT_BLOCK)
                    block[lane] = texts[lane] + done;
                else {
                    memset(padded[lane], 0, EYOT_BLOCK);
                    if (left > 0)
                        memcpy(padded[lane], texts[lane] + done, left);
                    block[lane] = padded[lane];
                }
                count[lane] = left > EYOT_BLOCK ? done + EYOT_BLOCK : sizes[lane];
                last[lane] = left > EYOT_BLOCK ? 0 : ~0ULL;
            }
            for (i = 0; i < 16; i++)
                m[i] = (eyot_lanes){eyot_word(block[0] + 8 * i), eyot_word(block[1] + 8 * i),
                                    eyot_word(block[2] + 8 * i), eyot_word(block[3] + 8 * i)};
            for (i = 0; i < 8; i++) {
                v[i] = h[i];
                v[i + 8] = (eyot_lanes){eyot_blake_iv[i], eyot_blake_iv[i], eyot_blake_iv[i], eyot_blake_iv[i]};
            }
            v[12] ^= count;
            v[14] ^= last;
            EYOT_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
            EYOT_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
            EYOT_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
            EYOT_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
            EYOT_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
            EYOT_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
            EYOT_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
            EYOT_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
            EYOT_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
            EYOT_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
            EYOT_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
            EYOT_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
            for (lane = 0; lane < EYOT_LANES; lane++)
                if (sizes[lane] > done || !done) /* the lane still has bytes in this block */
                    found[lane] = (h[0] ^ v[0] ^ v[8])[lane];
            for (i = 0; i < 8; i++)
                h[i] ^= v[i] ^ v[i + 8];
            done += EYOT_BLOCK;
        } while (done < longest);
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("avx2")))
    static void eyot_blake_wide(const uint8_t *const *texts, const int64_t *sizes, uint64_t *found) {
        eyot_blake_of_four(texts, sizes, found);
    }

    static int eyot_is_wide(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2");
    }
    #else
    static void eyot_blake_wide(const uint8_t *const *texts, const int64_t *sizes, uint64_t *found) {
        eyot_blake_of_four(texts, sizes, found);
    }

    static int eyot_is_wide(void) {
        return 0;
    }
    #endif

    static void eyot_blake_plain(const uint8_t *const *texts, const int64_t *sizes, uint64_t *found) {
        eyot_blake_of_four(texts, sizes, found);
    }
    """
    void eyot_blake_wide(const uint8_t** texts, const int64_t* sizes, uint64_t* found) noexcept nogil
    void eyot_blake_plain(const uint8_t** texts, const int64_t* sizes, uint64_t* found) noexcept nogil
    int eyot_is_wide() noexcept

cdef bint is_wide = eyot_is_wide() != 0


def hash_payloads(const int32_t[::1] offsets, const uint8_t[::1] data, uint64_t[::1] found):
    cdef Py_ssize_t rows = found.shape[0], row, lane, index
    cdef const uint8_t* texts[4]
    cdef int64_t sizes[4]
    cdef uint64_t hashes[4]
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    if offsets.shape[0] != rows + 1 or (rows and (offsets[0] < 0 or offsets[rows] > data.shape[0])):
        raise ValueError("offsets do not fit")
    with nogil:
        for row in range(0, rows, 4):
            for lane in range(4):
                index = row + lane if row + lane < rows else rows - 1  # the last one fills the lanes that are left
                texts[lane] = start + offsets[index]
                sizes[lane] = offsets[index + 1] - offsets[index]
            if is_wide:
                eyot_blake_wide(texts, sizes, hashes)
            else:
                eyot_blake_plain(texts, sizes, hashes)
            for lane in range(4):
                if row + lane < rows:
                    found[row + lane] = hashes[lane]


# -- JSON --------------------------------------------------------------------------------------------------------------

cdef enum:
    DEPTH_MAX = 32
    DIGITS_MAX = 18  # an integer of so many digits fits 64 bits
    POWER_MAX = 22  # 10^22 is the largest power that a double holds exactly
    POWER_SURE = 280  # what lies far from the ends of doubles neither overflows nor loses bits
    FRACTION_MAX = 1000

cdef enum:
    TEXT = 0
    DOUBLE = 1
    INTEGER = 2
    BOOLEAN = 3
    OBJECT = 4

cdef int64_t EXACT_MAX = 1 << 53  # doubles hold all integers up to it
cdef double[23] powers
cdef uint8_t[256] ends_text  # quotes, escapes, control characters, and bytes that are not ASCII


cdef void fill_tables() noexcept:
    cdef int index
    powers[0] = 1.0
    for index in range(1, POWER_MAX + 1):
        powers[index] = powers[index - 1] * 10.0  # exact
    for index in range(256):
        ends_text[index] = index < 0x20 or index >= 0x80 or index == c'"' or index == c'\\'


fill_tables()

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* overflow) except? -1.0
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)


cdef struct Node:
    const uint8_t* key
    int size
    int kind
    int field  # its row in the tables
    int first  # child
    int count
    int64_t seen  # number of the row that had it last


cdef struct Number:
    int64_t digits  # all of them as one integer
    int count
    int power  # of ten
    bint negative
    bint whole


cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    bint high  # has bytes that are not ASCII
    bint escaped  # of the last text


cdef inline void skip_space(Reader* reader) noexcept nogil:
    while reader.at < reader.end and (
        reader.at[0] == c' ' or reader.at[0] == c'\n' or reader.at[0] == c'\r' or reader.at[0] == c'\t'
    ):
        reader.at += 1


cdef inline bint take(Reader* reader, uint8_t byte) noexcept nogil:
    if reader.at < reader.end and reader.at[0] == byte:
        reader.at += 1
        return True
    return False


cdef inline bint read_text(Reader* reader) noexcept nogil:
    # Reads a text behind its first quote, up to and with its last one.
    cdef const uint8_t* at = reader.at
    cdef const uint8_t* end = reader.end
    cdef uint8_t byte
    reader.escaped = False
    while at < end:
        byte = at[0]
        at += 1
        if not ends_text[byte]:
            continue
        if byte == c'"':
            reader.at = at
            return True
        if byte >= 0x80:
            reader.high = True
        elif byte == c'\\':
            reader.escaped = True
            if at == end:
                return False
            byte = at[0]
            at += 1
            if not (
                byte == c'"' or byte == c'\\' or byte == c'/' or byte == c'b' or byte == c'f'
                or byte == c'n' or byte == c'r' or byte == c't'
            ):
                return False
        else:
            return False
    return False


cdef inline bint is_digit(Reader* reader) noexcept nogil:
    return reader.at < reader.end and c'0' <= reader.at[0] <= c'9'


cdef inline void read_digits(Reader* reader, Number* number) noexcept nogil:
    while is_digit(reader):
        if number.count < DIGITS_MAX:
            number.digits = number.digits * 10 + (reader.at[0] - c'0')
            if number.digits:
                number.count += 1  # zeros in front do not count
        else:
            number.count = DIGITS_MAX + 1
        reader.at += 1


cdef inline bint read_number(Reader* reader, Number* number) noexcept nogil:
    cdef const uint8_t* begin
    cdef int power = 0
    cdef bint negative
    number.digits = 0
    number.count = 0
    number.power = 0
    number.whole = True
    number.negative = take(reader, c'-')
    if not is_digit(reader):
        return False
    if reader.at[0] == c'0':
        reader.at += 1
        if is_digit(reader):
            return False
    else:
        read_digits(reader, number)
    if take(reader, c'.'):
        number.whole = False
        begin = reader.at
        read_digits(reader, number)
        if reader.at == begin or reader.at - begin > FRACTION_MAX:
            return False
        number.power = -<int>(reader.at - begin)
    if reader.at < reader.end and (reader.at[0] == c'e' or reader.at[0] == c'E'):
        number.whole = False
        reader.at += 1
        negative = take(reader, c'-')
        if not negative:
            take(reader, c'+')
        if not is_digit(reader):
            return False
        while is_digit(reader):
            if power < 10000:
                power = power * 10 + (reader.at[0] - c'0')
            reader.at += 1
        number.power += -power if negative else power
    return True


cdef inline bint read_word(Reader* reader, const char* word, Py_ssize_t size) noexcept nogil:
    if reader.end - reader.at < size or memcmp(reader.at, word, size) != 0:
        return False
    reader.at += size
    return True


cdef bint skip_value(Reader* reader, int depth) noexcept nogil:
    # Reads a value that no column takes. False: the row is left to the plain twin.
    cdef Number number
    cdef uint8_t byte
    if reader.at == reader.end or depth > DEPTH_MAX:
        return False
    byte = reader.at[0]
    if byte == c'"':
        reader.at += 1
        return read_text(reader)
    if byte == c'{' or byte == c'[':
        reader.at += 1
        skip_space(reader)
        if take(reader, c'}' if byte == c'{' else c']'):
            return True
        while True:
            skip_space(reader)
            if byte == c'{':
                if not take(reader, c'"') or not read_text(reader):
                    return False
                skip_space(reader)
                if not take(reader, c':'):
                    return False
                skip_space(reader)
            if not skip_value(reader, depth + 1):
                return False
            skip_space(reader)
            if take(reader, c','):
                continue
            return take(reader, c'}' if byte == c'{' else c']')
    if byte == c't':
        return read_word(reader, b"true", 4)
    if byte == c'f':
        return read_word(reader, b"false", 5)
    if byte == c'n':
        return read_word(reader, b"null", 4)
    return read_number(reader, &number)


cdef class JsonScanner:
    cdef Node* nodes
    cdef int count
    cdef object keys  # keeps their bytes

    def __cinit__(self, list paths, list kinds):
        cdef tuple root = (b"", OBJECT, -1, [])  # key, kind, field, children
        cdef list level, order
        cdef int index, at
        for index, (path, kind) in enumerate(zip(paths, kinds)):
            level = root[3]
            for key in path[:len(path) - 1]:
                found = [node for node in level if node[0] == key]
                if not found:
                    found = [(key, OBJECT, -1, [])]
                    level.append(found[0])
                level = found[0][3]
            level.append((path[len(path) - 1], kind, index, []))
        order = [root]
        at = 0
        while at < len(order):
            order.extend(order[at][3])
            at += 1
        self.count = len(order)
        self.nodes = <Node*> calloc(self.count, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        self.keys = [node[0] for node in order]
        at = 1
        for index, node in enumerate(order):
            key = self.keys[index]
            self.nodes[index].key = <const uint8_t*> <const char*> (<bytes> key)
            self.nodes[index].size = len(key)
            self.nodes[index].kind = node[1]
            self.nodes[index].field = node[2]
            self.nodes[index].first = at
            self.nodes[index].count = len(node[3])
            at += len(node[3])

    def __dealloc__(self):
        free(self.nodes)

    def scan(
        self,
        const int32_t[::1] offsets,
        const uint8_t[::1] data,
        int64_t[:, ::1] slots,
        uint8_t[:, ::1] present,
        uint8_t[::1] odd,
    ):
        cdef Py_ssize_t rows = odd.shape[0], row
        cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
        cdef Reader reader
        cdef int index, field
        if offsets.shape[0] != rows + 1 or (rows and (offsets[0] < 0 or offsets[rows] > data.shape[0])):
            raise ValueError("offsets do not fit")
        if slots.shape[1] != rows or present.shape[1] != rows:
            raise ValueError("the tables have other rows")
        for index in range(self.count):
            self.nodes[index].seen = -1
            if self.nodes[index].field >= min(slots.shape[0], present.shape[0]):
                raise ValueError("the tables have too few columns")
        for row in range(rows):
            reader.at = start + offsets[row]
            reader.end = start + offsets[row + 1]
            reader.high = False
            if not self.read_row(&reader, slots, present, row, start + offsets[row]):
                odd[row] = 1
                for field in range(<int> present.shape[0]):
                    present[field, row] = 0

    cdef bint read_row(
        self, Reader* reader, int64_t[:, ::1] slots, uint8_t[:, ::1] present, Py_ssize_t row, const uint8_t* begin
    ) except -1:
        skip_space(reader)
        if not self.read_object(reader, &self.nodes[0], slots, present, row, begin):
            return False
        skip_space(reader)
        if reader.at != reader.end:
            return False
        if reader.high:
            try:
                PyUnicode_DecodeUTF8(<const char*> begin, reader.end - begin, NULL)
            except UnicodeDecodeError:
                return False
        return True

    cdef bint read_object(
        self,
        Reader* reader,
        Node* node,
        int64_t[:, ::1] slots,
        uint8_t[:, ::1] present,
        Py_ssize_t row,
        const uint8_t* begin,
    ) except -1:
        cdef const uint8_t* key
        cdef Py_ssize_t size
        cdef int index
        cdef Node* child
        cdef Node* found
        if not take(reader, c'{'):
            return False
        skip_space(reader)
        if take(reader, c'}'):
            return True
        while True:
            skip_space(reader)
            if not take(reader, c'"'):
                return False
            key = reader.at
            if not read_text(reader) or reader.escaped:
                return False
            size = reader.at - key - 1
            skip_space(reader)
            if not take(reader, c':'):
                return False
            skip_space(reader)
            found = NULL
            child = &self.nodes[node.first]
            for index in range(node.count):
                if child.size == size and memcmp(child.key, key, size) == 0:
                    found = child
                    break
                child += 1
            if found == NULL:
                if not skip_value(reader, 0):
                    return False
            else:
                if found.seen == row:
                    return False
                found.seen = row
                if not self.read_value(reader, found, slots, present, row, begin):
                    return False
            skip_space(reader)
            if not take(reader, c','):
                return take(reader, c'}')

    cdef bint read_value(
        self,
        Reader* reader,
        Node* node,
        int64_t[:, ::1] slots,
        uint8_t[:, ::1] present,
        Py_ssize_t row,
        const uint8_t* begin,
    ) except -1:
        cdef Number number
        cdef const uint8_t* text
        cdef double value
        if reader.at == reader.end:
            return False
        if reader.at[0] == c'n':
            return read_word(reader, b"null", 4)
        if node.kind == OBJECT:
            return self.read_object(reader, node, slots, present, row, begin)
        text = reader.at
        if node.kind == TEXT:
            if not take(reader, c'"') or not read_text(reader) or reader.escaped:
                return False
            slots[node.field, row] = (<int64_t> (text + 1 - begin) << 32) | (reader.at - text - 2)
        elif node.kind == BOOLEAN:
            if text[0] == c't' and read_word(reader, b"true", 4):
                slots[node.field, row] = 1
            elif text[0] == c'f' and read_word(reader, b"false", 5):
                slots[node.field, row] = 0
            else:
                return False
        else:
            if not read_number(reader, &number):
                return False
            if number.whole:
                if number.count > DIGITS_MAX:
                    return False
                if node.kind == INTEGER:
                    slots[node.field, row] = -number.digits if number.negative else number.digits
                else:
                    value = <double> (-number.digits if number.negative else number.digits)
                    memcpy(&slots[node.field, row], &value, 8)
            else:
                if node.kind == INTEGER or not exact(&number, text, reader, &value):
                    return False
                memcpy(&slots[node.field, row], &value, 8)
        present[node.field, row] = 1
        return True


cdef bint exact(Number* number, const uint8_t* text, Reader* reader, double* value) except -1:
    # Rounds a number to the nearest double.
    cdef char* end
    if reader.at == reader.end:
        return False  # what reads the digits again must meet their end
    if number.count <= DIGITS_MAX and number.digits <= EXACT_MAX and -POWER_MAX <= number.power <= POWER_MAX:
        value[0] = <double> number.digits
        if number.power < 0:
            value[0] /= powers[-number.power]
        else:
            value[0] *= powers[number.power]
        if number.negative:
            value[0] = -value[0]
        return True
    if not -POWER_SURE <= number.power <= POWER_SURE:
        return False
    value[0] = PyOS_string_to_double(<const char*> text, &end, NULL)
    return <const uint8_t*> end == reader.at and -1.7e308 < value[0] < 1.7e308


def copy_texts(
    const int64_t[::1] slots,
    const int32_t[::1] begins,
    const uint8_t[::1] data,
    const int32_t[::1] offsets,
    uint8_t[::1] texts,
):
    cdef Py_ssize_t rows = slots.shape[0], row
    cdef int64_t size, at
    if begins.shape[0] != rows + 1 or offsets.shape[0] != rows + 1:
        raise ValueError("offsets do not fit")
    for row in range(rows):
        size = offsets[row + 1] - offsets[row]
        if size == 0:
            continue
        at = begins[row] + (slots[row] >> 32)
        if size < 0 or at < 0 or at + size > data.shape[0] or offsets[row] < 0 or offsets[row + 1] > texts.shape[0]:
            raise ValueError("texts do not fit")
        memcpy(&texts[offsets[row]], &data[at], size)
