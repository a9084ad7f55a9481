# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""A run of stored messages in C: the compiled twin of stored_run.py, which documents the methods.

Only the places of a record's fields are noted; the bytes stay in the object that was passed in, which is kept. Frames
are written straight from those bytes into the subscriber's buffer.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

from eyot_wire.stored_run import CRC_RESIDUE, KNOWN_SUBJECTS_MAX, PACKED_COST

cdef uint32_t RESIDUE = CRC_RESIDUE
cdef Py_ssize_t KNOWN_MAX = KNOWN_SUBJECTS_MAX
cdef Py_ssize_t DIRECTORY = PACKED_COST
cdef uint64_t TS_MAX = (1 << 63) - 1
cdef uint64_t LENGTH_MAX = 0xFFFFFFFF

# Initial places, enough for most runs.
cdef Py_ssize_t ROOM = 512
# The most bytes that a number takes, sign included.
cdef enum:
    DIGITS_MAX = 20
# The bytes of a frame besides its parts: `HMSG`, six spaces, the delivery count and four dots, six numbers, three line
# ends.
cdef Py_ssize_t FRAME_EXTRA = 4 + 6 + 5 + 6 * DIGITS_MAX + 6


cdef struct Place:
    # One record; offsets and lengths in bytes of `data`.
    uint64_t seq
    int64_t ts_ns
    const uint8_t* data
    uint32_t subject
    uint32_t subject_size
    uint32_t header
    uint32_t header_size
    uint32_t payload
    uint32_t payload_size


include "crc32.pxi"


# -- MessagePack ---------------------------------------------------------------------------------------------------------

cdef inline uint64_t big_endian(const uint8_t* data, Py_ssize_t width) noexcept nogil:
    cdef uint64_t value = 0
    cdef Py_ssize_t index
    for index in range(width):
        value = (value << 8) | data[index]
    return value


cdef Py_ssize_t read_integer(const uint8_t* data, Py_ssize_t at, Py_ssize_t size, int64_t* found) noexcept nogil:
    # Returns where the integer ends; -1 unless it is an integer of 64 bits with sign.
    cdef uint8_t kind
    cdef uint64_t value
    cdef Py_ssize_t width
    if at >= size:
        return -1
    kind = data[at]
    if kind < 0x80:
        found[0] = kind
        return at + 1
    if kind >= 0xE0:
        found[0] = <int64_t>kind - 256
        return at + 1
    if 0xCC <= kind <= 0xCF:
        width = 1 << (kind - 0xCC)
    elif 0xD0 <= kind <= 0xD3:
        width = 1 << (kind - 0xD0)
    else:
        return -1
    if at + 1 + width > size:
        return -1
    value = big_endian(data + at + 1, width)
    if kind <= 0xCF:
        if value > TS_MAX:
            return -1
    elif width < 8 and (value >> (8 * width - 1)) & 1:
        value |= ~<uint64_t>0 << (8 * width)
    found[0] = <int64_t>value
    return at + 1 + width


cdef inline Py_ssize_t read_binary(
    const uint8_t* data, Py_ssize_t at, Py_ssize_t size, uint32_t* start, uint32_t* length
) noexcept nogil:
    # Returns where the binary string ends; -1 if there is none.
    cdef Py_ssize_t width
    if at >= size or not 0xC4 <= data[at] <= 0xC6:
        return -1
    width = 1 << (data[at] - 0xC4)
    at += 1
    if at + width > size:
        return -1
    length[0] = <uint32_t>big_endian(data + at, width)
    at += width
    start[0] = <uint32_t>at
    at += length[0]
    return at if at <= size else -1


cdef bint read_record(const uint8_t* data, Py_ssize_t size, Place* place) noexcept nogil:
    cdef Py_ssize_t at
    if size < 1 or data[0] != 0x94 or <uint64_t>size > LENGTH_MAX:
        return False
    at = read_integer(data, 1, size, &place.ts_ns)
    if at > 0:
        at = read_binary(data, at, size, &place.subject, &place.subject_size)
    if at > 0:
        at = read_binary(data, at, size, &place.header, &place.header_size)
    if at > 0:
        at = read_binary(data, at, size, &place.payload, &place.payload_size)
    place.data = data
    return at > 0


# -- writing -------------------------------------------------------------------------------------------------------------

cdef inline char* put(char* to, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef inline char* put_unsigned(char* to, uint64_t value) noexcept nogil:
    cdef char digits[DIGITS_MAX]
    cdef int at = DIGITS_MAX
    while True:
        at -= 1
        digits[at] = <char>(48 + value % 10)
        value //= 10
        if not value:
            break
    memcpy(to, digits + at, DIGITS_MAX - at)
    return to + DIGITS_MAX - at


cdef inline char* put_signed(char* to, int64_t value) noexcept nogil:
    if value >= 0:
        return put_unsigned(to, <uint64_t>value)
    to[0] = 45
    return put_unsigned(to + 1, ~<uint64_t>value + 1)


cdef inline Py_ssize_t digits_of(uint64_t value) noexcept nogil:
    cdef Py_ssize_t count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


cdef inline Py_ssize_t signed_digits_of(int64_t value) noexcept nogil:
    return digits_of(<uint64_t>value) if value >= 0 else 1 + digits_of(~<uint64_t>value + 1)


cdef char* put_reply(char* to, bytes prefix, Place* place, uint64_t cseq, int64_t pending) noexcept:
    to = put(to, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
    to = put(to, b"1.", 2)
    to = put_unsigned(to, place.seq)
    to[0] = 46
    to = put_unsigned(to + 1, cseq)
    to[0] = 46
    to = put_signed(to + 1, place.ts_ns)
    to[0] = 46
    return put_signed(to + 1, pending)


cdef inline char* put_content(char* to, Place* place) noexcept nogil:
    # Writes the sizes at the end of a control line, the header and the payload.
    if place.header_size:
        to = put_unsigned(to, place.header_size)
        to[0] = 32
        to += 1
    to = put_unsigned(to, <uint64_t>place.header_size + place.payload_size)
    to = put(to, b"\r\n", 2)
    to = put(to, place.data + place.header, place.header_size)
    to = put(to, place.data + place.payload, place.payload_size)
    return put(to, b"\r\n", 2)


cdef inline Py_ssize_t array_size(Place* place) noexcept nogil:
    # The MessagePack array ends where the payload ends.
    return <Py_ssize_t>place.payload + place.payload_size


cdef inline bint same_subject(Place* one, Place* other) noexcept nogil:
    return one.subject_size == other.subject_size and memcmp(
        one.data + one.subject, other.data + other.subject, one.subject_size
    ) == 0


@cython.final
cdef class StoredRun:
    cdef Place* _places
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room
    cdef list _owners  # the objects that places point into
    cdef Py_ssize_t _cost
    cdef readonly Py_ssize_t size

    def __cinit__(self, Py_ssize_t cost=0):
        self._owners = []
        self._cost = cost

    def __dealloc__(self):
        free(self._places)

    def __len__(self):
        return self._count

    cdef Place* _next(self) except NULL:
        cdef Py_ssize_t room
        cdef Place* places
        if self._count == self._room:
            room = 2 * self._room if self._room else ROOM
            places = <Place*>realloc(self._places, room * sizeof(Place))
            if places == NULL:
                raise MemoryError
            self._places = places
            self._room = room
        return &self._places[self._count]

    # -- taking up

    def gather(self, pairs, uint64_t last, int64_t count, int64_t room, int64_t salt=-1):
        cdef Py_ssize_t begun = self._count
        cdef tuple pair
        cdef bytes key, value
        cdef const uint8_t* data
        cdef Py_ssize_t size
        cdef uint64_t seq
        cdef Place* place
        for pair in pairs:
            key, value = pair
            if key is None or value is None or PyBytes_GET_SIZE(key) != 8:
                raise ValueError("a key is not a sequence")
            data = <const uint8_t*>PyBytes_AS_STRING(key)
            seq = big_endian(data, 8)
            if seq > last:
                return 0
            size = PyBytes_GET_SIZE(value)
            room -= size + self._cost
            if room < 0 and self._count > begun:
                return seq
            if salt >= 0 and crc32(crc32(<uint32_t>salt, data, 8), <const uint8_t*>PyBytes_AS_STRING(value), size) != RESIDUE:
                return seq
            place = self._next()
            if not read_record(<const uint8_t*>PyBytes_AS_STRING(value), size, place):
                return seq
            place.seq = seq
            self._owners.append(value)
            self.size += size + self._cost
            self._count += 1
            if self._count - begun >= count:
                return seq + 1
        return 0

    def without(self, seqs, Py_ssize_t start):
        cdef Py_ssize_t index, kept
        kept = start = self._checked(start, self._count)
        for index in range(start, self._count):
            if self._places[index].seq not in seqs:
                self._places[kept] = self._places[index]
                kept += 1
        self._count = kept

    def matching(self, wanted, dict known not None, Py_ssize_t start):
        cdef Py_ssize_t index, kept
        cdef Py_ssize_t before = -1  # the same subject often comes several times in a row
        cdef bint answer = False
        cdef PyObject* found
        cdef bytes subject
        kept = start = self._checked(start, self._count)
        index = start
        while index < self._count:
            if before < 0 or not same_subject(&self._places[before], &self._places[index]):
                subject = PyBytes_FromStringAndSize(
                    <const char*>self._places[index].data + self._places[index].subject,
                    self._places[index].subject_size,
                )
                found = PyDict_GetItemWithError(known, subject)
                if found == NULL:
                    answer = bool(wanted(subject))
                    if len(known) >= KNOWN_MAX:
                        known.clear()
                    known[subject] = answer
                else:
                    answer = <object>found
            before = index
            if answer:
                # The target place is this one or an earlier one.
                self._places[kept] = self._places[index]
                kept += 1
            index += 1
        self._count = kept

    def cut(self, Py_ssize_t count):
        if count < 0:
            raise IndexError(count)
        if count < self._count:
            self._count = count

    # -- what is in it

    cdef Py_ssize_t _checked(self, Py_ssize_t start, Py_ssize_t stop) except -1:
        if not 0 <= start <= stop <= self._count:
            raise IndexError((start, stop))
        return start

    def seq(self, Py_ssize_t index):
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._places[index].seq

    def seqs(self):
        cdef Py_ssize_t index
        return [self._places[index].seq for index in range(self._count)]

    def sizes(self, Py_ssize_t extra):
        cdef Py_ssize_t index, total = 0
        cdef list found = []
        cdef Place* place
        for index in range(self._count):
            place = &self._places[index]
            total += <Py_ssize_t>place.subject_size + place.header_size + place.payload_size + extra
            found.append(total)
        return found

    def delivery_sizes(self, bytes prefix not None, uint64_t cseq, int64_t pending):
        cdef Py_ssize_t index, size
        cdef Py_ssize_t lead = PyBytes_GET_SIZE(prefix) + 5
        cdef Place* place
        cdef list found = []
        for index in range(self._count):
            place = &self._places[index]
            pending -= 1
            size = lead + place.subject_size + place.header_size + place.payload_size
            size += digits_of(place.seq) + digits_of(cseq) + signed_digits_of(place.ts_ns) + signed_digits_of(pending)
            found.append(size)
            cseq += 1
        return found

    # -- packed

    @property
    def packed_size(self):
        cdef Py_ssize_t index, total = self._count * DIRECTORY
        for index in range(self._count):
            total += array_size(&self._places[index])
        return total

    def packed(self):
        cdef Py_ssize_t index, size
        cdef Py_ssize_t total = self.packed_size
        cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
        cdef uint8_t* keys = <uint8_t*>PyBytes_AS_STRING(out)
        cdef uint8_t* lengths = keys + 8 * self._count
        cdef char* to = <char*>lengths + 4 * self._count
        cdef Place* place
        cdef int byte
        for index in range(self._count):
            place = &self._places[index]
            size = array_size(place)
            for byte in range(8):
                keys[byte] = <uint8_t>(place.seq >> (56 - 8 * byte))
            for byte in range(4):
                lengths[byte] = <uint8_t>(size >> (8 * byte))
            keys += 8
            lengths += 4
            to = put(to, place.data, size)
        return out

    # -- frames

    cdef Py_ssize_t _room_for(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t extra) noexcept:
        # Returns an upper bound of the frames' bytes.
        cdef Py_ssize_t index, total = 0
        cdef Place* place
        for index in range(start, stop):
            place = &self._places[index]
            total += <Py_ssize_t>place.subject_size + place.header_size + place.payload_size + extra
        return total

    def write_msgs(
        self, bytearray out not None, Py_ssize_t start, Py_ssize_t stop, bytes sid not None, bytes prefix not None,
        uint64_t cseq, int64_t pending,
    ):
        cdef Py_ssize_t index, before, total, size = 0
        cdef Py_ssize_t sid_size = PyBytes_GET_SIZE(sid)
        cdef Place* place
        cdef char* to
        self._checked(start, stop)
        before = PyByteArray_GET_SIZE(out)
        total = self._room_for(start, stop, FRAME_EXTRA + sid_size + PyBytes_GET_SIZE(prefix))
        PyByteArray_Resize(out, before + total)
        to = PyByteArray_AS_STRING(out) + before
        for index in range(start, stop):
            place = &self._places[index]
            pending -= 1
            if place.header_size:
                to = put(to, b"HMSG ", 5)
            else:
                to = put(to, b"MSG ", 4)
            to = put(to, place.data + place.subject, place.subject_size)
            to[0] = 32
            to = put(to + 1, PyBytes_AS_STRING(sid), sid_size)
            to[0] = 32
            to = put_reply(to + 1, prefix, place, cseq, pending)
            to[0] = 32
            to += 1
            cseq += 1
            to = put_content(to, place)
            size += <Py_ssize_t>place.header_size + place.payload_size
        PyByteArray_Resize(out, to - PyByteArray_AS_STRING(out))
        return size

    def write_lmsgs(
        self, Py_ssize_t start, Py_ssize_t stop, bytes subject not None, bytes prefix not None, uint64_t cseq,
        int64_t pending, Py_ssize_t size_max, Py_ssize_t chunk_bytes,
    ):
        cdef Py_ssize_t index, total, before, size = 0, count = 0
        cdef Py_ssize_t subject_size = PyBytes_GET_SIZE(subject)
        cdef Place* place
        cdef bytearray out = bytearray()
        cdef char* begun  # start of the chunk
        cdef char* frame
        cdef char* to
        cdef list chunks = []
        self._checked(start, stop)
        total = self._room_for(start, stop, FRAME_EXTRA + subject_size + PyBytes_GET_SIZE(prefix))
        PyByteArray_Resize(out, total)
        begun = to = PyByteArray_AS_STRING(out)
        for index in range(start, stop):
            place = &self._places[index]
            pending -= 1
            total = <Py_ssize_t>place.header_size + place.payload_size
            if total > size_max:
                cseq += 1
                continue
            frame = to
            if place.header_size:
                to = put(to, b"HMSG ", 5)
            else:
                to = put(to, b"LMSG ", 5)
            to = put(to, PyBytes_AS_STRING(subject), subject_size)
            to[0] = 32
            to = put_reply(to + 1, prefix, place, cseq, pending)
            to[0] = 64
            to = put(to + 1, place.data + place.subject, place.subject_size)
            to[0] = 32
            to += 1
            cseq += 1
            to = put_content(to, place)
            if count and to - begun > chunk_bytes:
                chunks.append((PyBytes_FromStringAndSize(begun, frame - begun), count, size))
                begun = frame
                count = size = 0
            count += 1
            size += total
        if count:
            chunks.append((PyBytes_FromStringAndSize(begun, to - begun), count, size))
        return chunks

    def header_holds(self, Py_ssize_t start, Py_ssize_t stop, bytes text not None):
        cdef Py_ssize_t index
        cdef Place* place
        self._checked(start, stop)
        for index in range(start, stop):
            place = &self._places[index]
            if memmem(
                place.data + place.header, place.header_size, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
            ) != NULL:
                return True
        return False

    def opened(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t index
        cdef Place* place
        cdef list found = []
        self._checked(start, stop)
        for index in range(start, stop):
            place = &self._places[index]
            found.append((
                place.seq,
                place.ts_ns,
                PyBytes_FromStringAndSize(<const char*>place.data + place.subject, place.subject_size),
                PyBytes_FromStringAndSize(<const char*>place.data + place.header, place.header_size),
                PyBytes_FromStringAndSize(<const char*>place.data + place.payload, place.payload_size),
            ))
        return found
