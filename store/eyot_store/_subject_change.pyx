# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The change of a stream's subject index, in C: the compiled twin of subject_change.py, which documents the methods.

Entries are in order of first appearance, subjects are consecutive in an arena. A hash table with linear probing finds
the entries.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from eyot_store.records.record import CRC_RESIDUE, CRC_SIZE, LARGE_RECORD, subject_in

cdef uint32_t RESIDUE = CRC_RESIDUE
cdef Py_ssize_t LARGE = LARGE_RECORD

include "../../wire/eyot_wire/crc32.pxi"
include "subject_hash.pxi"


cdef struct Entry:
    int64_t count
    int64_t first
    int64_t last
    int64_t low
    int64_t high
    uint64_t at  # in the arena
    int64_t size  # -1: of the subject None
    uint32_t hash


cdef inline uint64_t get_be(const uint8_t* data) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(8):
        value = value << 8 | data[index]
    return value


cdef inline uint8_t* put_be(uint8_t* to, uint64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        to[index] = <uint8_t>(value >> (8 * (size - 1 - index)))
    return to + size


cdef inline uint8_t* put_sized(uint8_t* to, uint8_t kind, uint64_t value, int size) noexcept nogil:
    to[0] = kind
    return put_be(to + 1, value, size)


cdef uint8_t* put_number(uint8_t* to, int64_t value) noexcept nogil:
    # In MessagePack's shortest form.
    if value >= 0:
        if value < 0x80:
            return put_be(to, value, 1)
        if value < 0x100:
            return put_sized(to, 0xCC, value, 1)
        if value < 0x10000:
            return put_sized(to, 0xCD, value, 2)
        if value < <int64_t>0x100000000:
            return put_sized(to, 0xCE, value, 4)
        return put_sized(to, 0xCF, value, 8)
    if value >= -0x20:
        return put_be(to, value, 1)
    if value >= -0x80:
        return put_sized(to, 0xD0, value, 1)
    if value >= -0x8000:
        return put_sized(to, 0xD1, value, 2)
    if value >= -<int64_t>0x80000000:
        return put_sized(to, 0xD2, value, 4)
    return put_sized(to, 0xD3, value, 8)


cdef uint8_t* put_text(uint8_t* to, const char* text, int64_t size) noexcept nogil:
    if size < 0:
        to[0] = 0xC0
        return to + 1
    if size < 0x100:
        to = put_sized(to, 0xC4, size, 1)
    elif size < 0x10000:
        to = put_sized(to, 0xC5, size, 2)
    else:
        to = put_sized(to, 0xC6, size, 4)
    memcpy(to, text, size)
    return to + size


cdef inline bint has_short_subject(const uint8_t* body, Py_ssize_t size) noexcept nogil:
    # A record is as nearly all are: an array, a time in 8 bytes, a subject of less than 256 bytes, from the 12th on.
    return size >= 12 and body[0] == 0x94 and body[1] == 0xCF and body[10] == 0xC4 and size >= 12 + body[11]


cdef class Change:
    cdef Entry* _entries
    cdef Py_ssize_t _used, _size
    cdef uint32_t* _places  # entry and 1, by hash
    cdef uint64_t _mask
    cdef char* _arena
    cdef uint64_t _arena_used, _arena_size

    def __cinit__(self):
        self._places = <uint32_t*>calloc(8, sizeof(uint32_t))
        if self._places == NULL:
            raise MemoryError
        self._mask = 7

    def __dealloc__(self):
        free(self._entries)
        free(self._places)
        free(self._arena)

    def __len__(self):
        return self._used

    cdef Entry* _entry(self, const char* text, int64_t size) except NULL:
        # A subject's, a new one where it has none; `size` -1 for the subject None.
        cdef uint32_t hashed = hash_of(text, size) if size >= 0 else 0
        cdef uint64_t place = hashed & self._mask
        cdef Entry* entry
        while self._places[place]:
            entry = self._entries + self._places[place] - 1
            if entry.hash == hashed and entry.size == size and (
                size <= 0 or memcmp(self._arena + entry.at, text, size) == 0
            ):
                return entry
            place = (place + 1) & self._mask
        if self._make_room(size):
            place = hashed & self._mask
            while self._places[place]:
                place = (place + 1) & self._mask
        entry = self._entries + self._used
        self._used += 1
        self._places[place] = <uint32_t>self._used
        entry.count = entry.first = entry.last = entry.low = entry.high = 0
        entry.at = self._arena_used
        entry.size = size
        entry.hash = hashed
        if size > 0:
            memcpy(self._arena + self._arena_used, text, size)
            self._arena_used += size
        return entry

    cdef int _make_room(self, int64_t size) except -1:
        # For one more; 1: places are not where they were.
        cdef void* moved
        cdef Py_ssize_t entries
        cdef uint64_t bytes_
        if self._used >= 0x7FFFFFFF:
            raise OverflowError("too many subjects")
        if self._used == self._size:
            entries = self._size * 2 + 8
            moved = realloc(self._entries, entries * sizeof(Entry))
            if moved == NULL:
                raise MemoryError
            self._entries = <Entry*>moved
            self._size = entries
        if size > 0 and self._arena_used + size > self._arena_size:
            bytes_ = self._arena_used * 2 + size + 256
            moved = realloc(self._arena, bytes_)
            if moved == NULL:
                raise MemoryError
            self._arena = <char*>moved
            self._arena_size = bytes_
        if <uint64_t>(self._used + 1) * 4 <= (self._mask + 1) * 3:
            return 0
        return self._rehash()

    cdef int _rehash(self) except -1:
        cdef uint64_t mask = self._mask * 4 + 3, place
        cdef uint32_t* places = <uint32_t*>calloc(mask + 1, sizeof(uint32_t))
        cdef Py_ssize_t index
        if places == NULL:
            raise MemoryError
        for index in range(self._used):
            place = self._entries[index].hash & mask
            while places[place]:
                place = (place + 1) & mask
            places[place] = <uint32_t>(index + 1)
        free(self._places)
        self._places = places
        self._mask = mask
        return 1

    # -- additions and removals
    # ---------------------------------------------------------------------------------------------

    cdef int _came(self, const char* text, int64_t size, int64_t seq) except -1:
        cdef Entry* entry = self._entry(text, size)
        entry.count += 1
        if not entry.first:
            entry.first = seq
        entry.last = seq
        return 0

    cdef int _went(self, const char* text, int64_t size, int64_t seq) except -1:
        cdef Entry* entry = self._entry(text, size)
        entry.count -= 1
        if not entry.low or seq < entry.low:
            entry.low = seq
        if seq > entry.high:
            entry.high = seq
        return 0

    def came(self, bytes subject, int64_t seq):
        if subject is None:
            self._came(NULL, -1, seq)
        else:
            self._came(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), seq)

    def went(self, bytes subject, int64_t seq):
        if subject is None:
            self._went(NULL, -1, seq)
        else:
            self._went(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), seq)

    def came_all(self, records, int64_t limit, int64_t bytes_max, uint32_t salt, opened):
        cdef Py_ssize_t count = 0, size = 0
        cdef int64_t seq = 0
        cdef bytes key, value
        for pair in records:
            key = <bytes?>pair[0]
            value = <bytes?>pair[1]
            seq = sequence(key)
            count += 1
            size += PyBytes_GET_SIZE(value)
            self._note(key, value, salt, opened, seq)
            if count >= limit or size >= bytes_max:
                return count, seq, True
        return count, seq, False

    cdef int _note(self, bytes key, bytes value, uint32_t salt, opened, int64_t seq) except -1:
        cdef const uint8_t* data
        value = readable(key, value, salt, opened)
        if value is not None:
            data = <const uint8_t*>PyBytes_AS_STRING(value)
            if has_summed_subject(data, PyBytes_GET_SIZE(value), opened):
                return self._came(<const char*>data + 12, data[11], seq)
        self.came(None if value is None else unusual(value, opened), seq)
        return 0

    def came_run(self, items):
        cdef bytes key, record
        cdef const uint8_t* data
        for item in items:
            if not PyTuple_CheckExact(item) or PyTuple_GET_SIZE(item) != 2:
                raise TypeError("an item is key, record")
            key = <bytes?><object>PyTuple_GET_ITEM(item, 0)
            record = <bytes?><object>PyTuple_GET_ITEM(item, 1)
            data = <const uint8_t*>PyBytes_AS_STRING(record)
            if has_short_subject(data, PyBytes_GET_SIZE(record)):
                self._came(<const char*>data + 12, data[11], sequence(key))
            else:
                self.came(unusual(record, None), sequence(key))

    def went_record(self, bytes key not None, bytes value not None, uint32_t salt, opened):
        cdef bytes subject
        cdef int64_t seq = sequence(key)
        cdef const uint8_t* data
        value = readable(key, value, salt, opened)
        if value is None:
            return False
        data = <const uint8_t*>PyBytes_AS_STRING(value)
        if has_summed_subject(data, PyBytes_GET_SIZE(value), opened):
            self._went(<const char*>data + 12, data[11], seq)
            return True
        subject = unusual(value, opened)
        if subject is None:
            return False
        self.went(subject, seq)
        return True

    # -- results
    # -------------------------------------------------------------------------------------------------------------

    def entries(self):
        cdef Entry* entry
        cdef Py_ssize_t index
        cdef list found = []
        for index in range(self._used):
            entry = self._entries + index
            found.append((self._name(entry), entry.count, entry.first, entry.last, entry.low, entry.high))
        return found

    cdef bytes _name(self, Entry* entry):
        return None if entry.size < 0 else PyBytes_FromStringAndSize(self._arena + entry.at, entry.size)

    def encoded(self, Py_ssize_t most):
        cdef list found = []
        cdef Py_ssize_t begin = 0, end
        if most <= 0:
            raise ValueError("some entries make an array")
        while begin < self._used:
            end = min(self._used, begin + most)
            found.append(self._encoded(begin, end))
            begin = end
        return found

    cdef tuple _encoded(self, Py_ssize_t begin, Py_ssize_t end):
        cdef Py_ssize_t index, bytes_ = 5, count = end - begin
        cdef int64_t total = 0
        cdef Entry* entry
        cdef uint8_t* start
        cdef uint8_t* to
        for index in range(begin, end):
            bytes_ += 51 + max(self._entries[index].size, 0)
        start = to = <uint8_t*>malloc(bytes_)
        if start == NULL:
            raise MemoryError
        try:
            if count < 16:
                to = put_be(to, 0x90 | count, 1)
            elif count < 0x10000:
                to = put_sized(to, 0xDC, count, 2)
            else:
                to = put_sized(to, 0xDD, count, 4)
            for index in range(begin, end):
                entry = self._entries + index
                total += entry.count
                to = put_text(put_be(to, 0x96, 1), self._arena + entry.at, entry.size)
                to = put_number(put_number(put_number(to, entry.count), entry.first), entry.last)
                to = put_number(put_number(to, entry.low), entry.high)
            return PyBytes_FromStringAndSize(<char*>start, to - start), total
        finally:
            free(start)


cdef inline int64_t sequence(bytes key) except? -1:
    if key is None or PyBytes_GET_SIZE(key) != 8:
        raise ValueError("a record's key has 8 bytes")
    return <int64_t>get_be(<const uint8_t*>PyBytes_AS_STRING(key))


cdef bytes readable(bytes key, bytes value, uint32_t salt, opened):
    # Returns the body of a record whose checksum fits, decrypted if sealed; None if it cannot be read.
    cdef bytes body
    if opened is not None:
        body = opened(key, value)
        return body
    if PyBytes_GET_SIZE(value) <= LARGE and crc32(
        crc32(salt, <const uint8_t*>PyBytes_AS_STRING(key), 8), <const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    ) != RESIDUE:
        return None
    return value


cdef inline bint has_summed_subject(const uint8_t* body, Py_ssize_t size, opened):
    # Without its checksum, a large record is to be decoded whole: its lengths must add up.
    return (size <= LARGE or opened is not None) and has_short_subject(body, size)


cdef bytes unusual(bytes value, opened):
    return subject_in(value if opened is not None else value[:-CRC_SIZE])
