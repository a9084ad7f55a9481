# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""Encodes a run of messages, in C: the compiled twin of record_run.py, which documents the functions.

records/record.py defines the record. Times below 2^32 ns, which only test clocks give, have a shorter form in
MessagePack: the plain twin encodes such a run.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport Py_buffer
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from eyot_store import record_run
from eyot_store.records.record import CRC_RESIDUE, LARGE_RECORD

cdef uint32_t RESIDUE = CRC_RESIDUE
cdef Py_ssize_t LARGE = LARGE_RECORD
cdef uint8_t NOTHING

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

cdef uint64_t LONG_TIME = 1 << 32  # from here on a time takes 8 bytes in MessagePack
cdef int64_t SIZE_MAX = 1 << 31

include "../../wire/eyot_wire/crc32.pxi"
include "../../wire/eyot_wire/untracked.pxi"


cdef inline void put_be(uint8_t* to, uint64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        to[index] = <uint8_t>(value >> (8 * (size - 1 - index)))


cdef inline Py_ssize_t bin_size(Py_ssize_t size) noexcept nogil:
    return size + (2 if size < 256 else 3 if size < 65536 else 5)


def checksum(const uint8_t[::1] data not None, uint32_t before=0):
    cdef uint32_t value
    cdef Py_ssize_t size = data.shape[0]
    if not size:
        return before
    with nogil:
        value = crc32(before, &data[0], size)
    return value


cdef inline uint8_t* put_bin(uint8_t* to, const char* data, Py_ssize_t size) noexcept nogil:
    if size < 256:
        to[0] = 0xC4
        put_be(to + 1, size, 1)
        to += 2
    elif size < 65536:
        to[0] = 0xC5
        put_be(to + 1, size, 2)
        to += 3
    else:
        to[0] = 0xC6
        put_be(to + 1, size, 4)
        to += 5
    memcpy(to, data, size)
    return to + size


cdef bytes record_of(const uint8_t* key, uint32_t salt, uint64_t ts_ns, bytes subject, bytes header, bytes payload):
    cdef Py_ssize_t subject_size = PyBytes_GET_SIZE(subject)
    cdef Py_ssize_t header_size = PyBytes_GET_SIZE(header)
    cdef Py_ssize_t payload_size = PyBytes_GET_SIZE(payload)
    cdef Py_ssize_t size
    cdef bytes record
    cdef uint8_t* start
    cdef uint8_t* to
    cdef uint32_t crc
    cdef int index
    if subject_size > SIZE_MAX or header_size > SIZE_MAX or payload_size > SIZE_MAX:
        raise OverflowError("too long for a record")
    size = 10 + bin_size(subject_size) + bin_size(header_size) + bin_size(payload_size) + 4
    record = PyBytes_FromStringAndSize(NULL, size)
    start = <uint8_t*>PyBytes_AS_STRING(record)
    start[0] = 0x94
    start[1] = 0xCF
    put_be(start + 2, ts_ns, 8)
    to = put_bin(start + 10, PyBytes_AS_STRING(subject), subject_size)
    to = put_bin(to, PyBytes_AS_STRING(header), header_size)
    to = put_bin(to, PyBytes_AS_STRING(payload), payload_size)
    crc = crc32(crc32(salt, key, 8), start, size - 4)
    for index in range(4):
        to[index] = <uint8_t>(crc >> (8 * index))
    return record


cdef inline object message_of(object message):
    # Named tuples take this way, too: they are not exact tuples.
    if not PyTuple_Check(message) or PyTuple_GET_SIZE(message) != 4:
        raise TypeError("a message is subject, reply, header, payload")
    return message


cdef inline bytes field(object message, Py_ssize_t index):
    return <bytes?><object>PyTuple_GET_ITEM(message, index)


def encode_run(
    messages,
    int64_t seq,
    int64_t ts_ns,
    uint32_t salt,
    Py_ssize_t cost,
    Py_ssize_t header_cost,
    list items not None,
    list times=None,
):
    cdef uint8_t key[8]
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t counted = 0, written = 0
    cdef bytes subject, header, payload, record
    cdef object message
    if (ts_ns if times is None else min(times, default=0)) < <int64_t>LONG_TIME:
        return record_run.encode_run(messages, seq, ts_ns, salt, cost, header_cost, items, times)
    for one in messages:
        message = message_of(one)
        if times is not None:
            ts_ns = times[at]
            at += 1
        subject = field(message, 0)
        header = field(message, 2)
        payload = field(message, 3)
        put_be(key, seq, 8)
        record = record_of(key, salt, ts_ns, subject, header, payload)
        items.append(untracked((PyBytes_FromStringAndSize(<char*>key, 8), record)))
        written += PyBytes_GET_SIZE(record)
        counted += PyBytes_GET_SIZE(subject) + PyBytes_GET_SIZE(header) + PyBytes_GET_SIZE(payload) + cost
        if PyBytes_GET_SIZE(header):
            counted += header_cost
        seq += 1
        ts_ns += 1
    return counted, written


cdef bint values_in(const char* header, Py_ssize_t size, bytes special, tuple fields, list found) except -1:
    # Into `found` the first of each of the usual fields. False: there is another field that begins with `special`.
    cdef const char* end = header + size
    cdef const char* line_end
    cdef const char* start
    cdef const char* at = <const char*>memmem(header, size, PyBytes_AS_STRING(special), PyBytes_GET_SIZE(special))
    cdef Py_ssize_t index, length
    cdef bytes name
    while at != NULL:
        for index in range(5):
            name = <bytes>PyTuple_GET_ITEM(fields, index)
            length = PyBytes_GET_SIZE(name)
            if length <= end - at and memcmp(at, PyBytes_AS_STRING(name), length) == 0:
                break
        else:
            return False
        if found[index] is None:
            start = at + length
            line_end = <const char*>memmem(start, end - start, b"\r\n", 2)
            if line_end == NULL:
                line_end = end
            while start < line_end and start[0] == 32:
                start += 1
            found[index] = PyBytes_FromStringAndSize(start, line_end - start)
        at += 2
        at = <const char*>memmem(at, end - at, PyBytes_AS_STRING(special), PyBytes_GET_SIZE(special))
    return True


cdef int64_t number_of(bytes text) noexcept:
    # -1: no number; -2: a malformed number, or one too large for a sequence.
    cdef Py_ssize_t index
    cdef int64_t value = 0
    cdef char digit
    if text is None or not PyBytes_GET_SIZE(text):
        return -1
    if PyBytes_GET_SIZE(text) > 18:
        return -2
    for index in range(PyBytes_GET_SIZE(text)):
        digit = PyBytes_AS_STRING(text)[index]
        if not 48 <= digit <= 57:
            return -2
        value = value * 10 + (digit - 48)
    return value


def scan_batch(messages, rules not None):
    cdef Py_ssize_t counted = 0, size, length, header_size, at = 0, index
    cdef int64_t size_max = rules.size_max, header_max = rules.header_max  # "unlimited" does not fit 32 bits
    cdef Py_ssize_t cost = rules.cost, header_cost = rules.header_cost
    cdef bytes mark = <bytes?>rules.reply_end
    cdef bytes special = <bytes?>rules.special
    cdef bytes stream = <bytes?>rules.stream
    cdef tuple fields = <tuple?>rules.fields
    cdef Py_ssize_t mark_size = PyBytes_GET_SIZE(mark)
    cdef list ids = []
    cdef list expected = []
    cdef list found
    cdef object message
    cdef bytes reply, header, msg_id, last_id
    cdef int64_t last_seq, subject_seq
    if PyTuple_GET_SIZE(fields) != 5 or PyBytes_GET_SIZE(special) < 2:
        raise ValueError("marks are missing")
    for index in range(5):
        if PyBytes_GET_SIZE(<bytes?>fields[index]) < 2:
            raise ValueError("marks are missing")
    for one in messages:
        message = message_of(one)
        reply = field(message, 1)
        header = field(message, 2)
        header_size = PyBytes_GET_SIZE(header)
        size = header_size + PyBytes_GET_SIZE(field(message, 3))
        if size > size_max or header_size > header_max:
            return -1, [], []
        length = PyBytes_GET_SIZE(reply)
        if length >= mark_size and memcmp(
            PyBytes_AS_STRING(reply) + length - mark_size, PyBytes_AS_STRING(mark), mark_size
        ) == 0:
            return -1, [], []
        counted += PyBytes_GET_SIZE(field(message, 0)) + size + cost
        if header_size:
            found = [None, None, None, None, None]
            if not values_in(PyBytes_AS_STRING(header), header_size, special, fields, found):
                return -1, [], []
            if found[1] is not None and found[1] and found[1] != stream:
                return -1, [], []
            last_seq, subject_seq = number_of(found[2]), number_of(found[3])
            if last_seq == -2 or subject_seq == -2:
                return -1, [], []
            last_id = found[4]
            if last_id is None:
                last_id = b""
            if last_seq >= 0 or subject_seq >= 0 or PyBytes_GET_SIZE(last_id):
                expected.append(untracked((at, last_seq, subject_seq, last_id)))
            counted += header_cost
            if not ids:
                ids = [b""] * at
            msg_id = found[0]
            ids.append(b"" if msg_id is None else msg_id)
        elif ids:
            ids.append(b"")
        at += 1
    return counted, ids, expected


def pub_acks(messages, bytes head not None, int64_t seq):
    cdef list acks = []
    cdef char digits[24]
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head), at
    cdef bytes reply, ack
    cdef uint64_t rest
    cdef char* to
    for one in messages:
        reply = field(message_of(one), 1)
        if PyBytes_GET_SIZE(reply):
            at = 24
            rest = seq
            at -= 1
            digits[at] = 125  # }
            while True:
                at -= 1
                digits[at] = <char>(48 + rest % 10)
                rest //= 10
                if not rest:
                    break
            ack = PyBytes_FromStringAndSize(NULL, head_size + 24 - at)
            to = PyBytes_AS_STRING(ack)
            memcpy(to, PyBytes_AS_STRING(head), head_size)
            memcpy(to + head_size, digits + at, 24 - at)
            acks.append(untracked((reply, ack)))
        seq += 1
    return acks


cdef inline const uint8_t* bytes_of(object buffer, Py_ssize_t* size) except NULL:
    # Of a bytes object or what LMDB shows.
    cdef Py_buffer* view
    if PyBytes_CheckExact(buffer):
        size[0] = PyBytes_GET_SIZE(buffer)
        return <const uint8_t*>PyBytes_AS_STRING(buffer)
    if not PyMemoryView_Check(buffer):
        raise TypeError("bytes, or a view of some")
    view = PyMemoryView_GET_BUFFER(buffer)
    if view.ndim != 1 or view.itemsize != 1 or (view.strides != NULL and view.strides[0] != 1):
        raise TypeError("a view of bytes in a row")
    size[0] = view.len
    if view.buf == NULL:
        return &NOTHING
    return <const uint8_t*>view.buf


cdef inline Py_ssize_t bin_at(const uint8_t* data, Py_ssize_t size, Py_ssize_t* at) noexcept nogil:
    # Returns the item's length and moves `at` past it; -1 for another type.
    cdef Py_ssize_t width, length = 0, index
    if at[0] >= size or not 0xC4 <= data[at[0]] <= 0xC6:
        return -1
    width = 1 << (data[at[0]] - 0xC4)
    if size - at[0] < 1 + width:
        return -1
    for index in range(width):
        length = length << 8 | data[at[0] + 1 + index]
    at[0] += 1 + width
    if length > size - at[0]:
        return -1
    at[0] += length
    return length


cdef tuple weighed(int64_t seq, const uint8_t* data, Py_ssize_t size, Py_ssize_t cost, Py_ssize_t header_cost):
    # Of a body as nearly all are; None of any other.
    cdef Py_ssize_t subject, header, payload, subject_end, at = 10
    if size < 10 or data[0] != 0x94 or data[1] != 0xCF:
        return None
    subject = bin_at(data, size, &at)
    subject_end = at
    header = bin_at(data, size, &at) if subject >= 0 else -1
    payload = bin_at(data, size, &at) if header >= 0 else -1
    if payload < 0 or at != size or data[2] >= 0x80:
        return None
    return (
        seq,
        PyBytes_FromStringAndSize(<const char*>data + subject_end - subject, subject),
        subject + header + payload + cost + (header_cost if header else 0),
    )


def count_bytes(records, int64_t salt, opened, Py_ssize_t cost, Py_ssize_t header_cost):
    cdef list out = []
    cdef const uint8_t* key
    cdef const uint8_t* data
    cdef Py_ssize_t key_size = 0, size = 0
    cdef uint64_t seq
    cdef int index
    cdef tuple found
    for item in records:
        if not PyTuple_Check(item) or PyTuple_GET_SIZE(item) != 2:
            raise TypeError("a record is key, value")
        first = <object>PyTuple_GET_ITEM(item, 0)
        value = <object>PyTuple_GET_ITEM(item, 1)
        key = bytes_of(first, &key_size)
        if key_size != 8:
            raise ValueError("a record's key has 8 bytes")
        seq = 0
        for index in range(8):
            seq = seq << 8 | key[index]
        if opened is not None:
            value = opened(PyBytes_FromStringAndSize(<const char*>key, 8), value)
            if value is None:
                continue
            data = bytes_of(value, &size)
        else:
            data = bytes_of(value, &size)
            if salt >= 0 and size <= LARGE and crc32(crc32(<uint32_t>salt, key, 8), data, size) != RESIDUE:
                continue
            size = max(size - 4, 0)
        found = weighed(seq, data, size, cost, header_cost)
        if found is None:
            out += record_run.count_bytes([item], salt, opened, cost, header_cost)
        else:
            out.append(untracked(found))
    return out
