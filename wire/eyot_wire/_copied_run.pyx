# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""Runs of copied messages in C: the compiled twin of jetstream/copied_run.py, which documents the functions."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, Py_TYPE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from eyot_wire.frames import LeafMsg
from eyot_wire.jetstream.copied_run import CopiedMessage

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

include "untracked.pxi"

cdef uint64_t NUMBER_MAX = 0x7FFFFFFFFFFFFFFF
cdef enum:
    DOTS = 8  # before the token with what is left and the subject
    SEQ = 0  # the fields of a CopiedMessage
    TS_NS = 1
    SUBJECT = 2
    HEADER = 3
    PAYLOAD = 4

cdef type DELIVERED = LeafMsg  # subject, reply, header, payload, queues
cdef type COPIED = CopiedMessage  # a tuple, built here field by field


cdef inline int64_t number_of(const char* start, const char* end) noexcept nogil:
    # -1: no number, or one above NUMBER_MAX.
    cdef uint64_t value = 0
    cdef unsigned char digit
    if start == end:
        return -1
    while start < end:
        digit = <unsigned char>start[0] - 48  # below "0" it wraps
        if digit > 9 or value > (NUMBER_MAX - digit) // 10:
            return -1
        value = value * 10 + digit
        start += 1
    return <int64_t>value


cdef inline bint is_same(bytes one, bytes other):
    return one is other or (
        PyBytes_GET_SIZE(one) == PyBytes_GET_SIZE(other)
        and memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), PyBytes_GET_SIZE(one)) == 0
    )


cdef inline Py_ssize_t times_in(bytes text, bytes part, Py_ssize_t most):
    # How often `part` is in `text`, without overlaps, counted up to `most`.
    cdef const char* at = PyBytes_AS_STRING(text)
    cdef const char* end = at + PyBytes_GET_SIZE(text)
    cdef Py_ssize_t found = 0
    while found < most:
        at = <const char*>memmem(at, end - at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        if at == NULL:
            break
        found += 1
        at += PyBytes_GET_SIZE(part)
    return found


def other_kind(list items not None, Py_ssize_t at, kind):
    cdef Py_ssize_t size = PyList_GET_SIZE(items)
    if at < 0:
        raise IndexError("below the first item")
    while at < size and <PyObject*>Py_TYPE(<object>PyList_GET_ITEM(items, at)) == <PyObject*>kind:
        at += 1
    return at


cdef inline tuple checked(object item, type kind):
    if <PyObject*>Py_TYPE(item) != <PyObject*>kind:
        raise TypeError(f"{kind.__name__}, not {type(item).__name__}")
    return <tuple>item


cdef inline bytes text(tuple item, Py_ssize_t index):
    return <bytes?><object>PyTuple_GET_ITEM(item, index)


cdef inline object value(tuple item, Py_ssize_t index):
    return <object>PyTuple_GET_ITEM(item, index)


cdef inline object copied(object seq, object ts_ns, bytes subject, bytes header, bytes payload):
    cdef object made = PyType_GenericAlloc(COPIED, 5)
    set_field(made, SEQ, seq)
    set_field(made, TS_NS, ts_ns)
    set_field(made, SUBJECT, subject)
    set_field(made, HEADER, header)
    set_field(made, PAYLOAD, payload)
    return untracked(made)


def content_bytes(list messages not None):
    cdef Py_ssize_t size = 0
    cdef tuple message
    for each in messages:
        message = checked(each, DELIVERED)
        size += PyBytes_GET_SIZE(text(message, 2)) + PyBytes_GET_SIZE(text(message, 3))
    return size


def same_subject(list messages not None, Py_ssize_t at, bytes mark not None):
    cdef Py_ssize_t size = PyList_GET_SIZE(messages)
    cdef bytes subject, header
    cdef tuple message
    if not 0 <= at < size:
        raise IndexError("no such message")
    subject = text(checked(messages[at], DELIVERED), 0)
    at += 1
    while at < size:
        message = checked(messages[at], DELIVERED)
        if not is_same(subject, text(message, 0)):
            break
        header = text(message, 2)
        if PyBytes_GET_SIZE(header) and times_in(header, mark, 1):
            break
        at += 1
    return at


def has_headers(batch):
    for each in batch:
        if PyBytes_GET_SIZE(text(checked(each, COPIED), HEADER)):
            return True
    return False


def newest_ns(batch):
    cdef int64_t newest = 0, ts_ns
    for each in batch:
        ts_ns = value(checked(each, COPIED), TS_NS)
        newest = max(newest, ts_ns)
    return newest


def mirrored_run(list messages not None, Py_ssize_t at, int64_t last_seq, bytes field not None, tuple known not None):
    cdef list run = []
    cdef list times = []
    cdef bytes header
    cdef Py_ssize_t size = PyList_GET_SIZE(messages), allowed
    cdef int64_t seq
    cdef tuple message
    if at < 0 or not PyBytes_GET_SIZE(field):
        raise ValueError("below the first message, or no field")
    while at < size:
        message = checked(messages[at], COPIED)
        seq = value(message, SEQ)
        header = text(message, HEADER)
        if seq - 1 != last_seq:
            break
        if PyBytes_GET_SIZE(header):
            allowed = 0
            for name in known:
                allowed += times_in(header, <bytes?>name, 1)
            if times_in(header, field, allowed + 1) > allowed:
                break
        last_seq = seq
        run.append(untracked((text(message, SUBJECT), b"", header, text(message, PAYLOAD))))
        times.append(value(message, TS_NS))
        at += 1
    return run, times


def sourced_run(list messages not None, bytes field not None, bytes needed not None):
    cdef list run = []
    cdef bytes header
    cdef tuple message
    if not PyBytes_GET_SIZE(field):
        raise ValueError("no field")
    for each in messages:
        message = checked(each, COPIED)
        header = text(message, HEADER)
        if times_in(header, field, 2) > 1 or not times_in(header, needed, 1):
            break
        run.append(untracked((text(message, SUBJECT), b"", header, text(message, PAYLOAD))))
    return run


def read_run(run, bytes consumer not None, int64_t consumer_seq, int64_t last_seq, is_old, list into not None):
    cdef Py_ssize_t taken = 0, index
    cdef int64_t seq, ts_ns, more, pending = 0
    cdef bytes reply
    cdef tuple delivered
    cdef const char* starts[DOTS + 1]
    cdef const char* at
    cdef const char* end
    cdef const char* mark
    for each in run:
        delivered = checked(each, DELIVERED)
        reply = text(delivered, 1)
        at = PyBytes_AS_STRING(reply)
        end = at + PyBytes_GET_SIZE(reply)
        starts[0] = at
        for index in range(1, DOTS + 1):
            at = <const char*>memchr(at, 46, end - at)
            if at == NULL:
                break
            at += 1
            starts[index] = at
        if at == NULL:
            break
        index = starts[4] - starts[3] - 1
        if index != PyBytes_GET_SIZE(consumer) or memcmp(starts[3], PyBytes_AS_STRING(consumer), index) != 0:
            break
        if starts[5] - starts[4] != 2 or starts[4][0] != 49:
            break
        mark = <const char*>memchr(starts[8], 64, end - starts[8])
        if mark == NULL:
            break
        seq = number_of(starts[5], starts[6] - 1)
        ts_ns = number_of(starts[7], starts[8] - 1)
        more = number_of(starts[8], mark)
        if seq < 0 or ts_ns < 0 or more < 0 or seq <= last_seq:
            break
        if number_of(starts[6], starts[7] - 1) != consumer_seq + taken + 1:
            break
        if is_old is not None and is_old(seq, ts_ns):
            break
        last_seq = seq
        pending = more
        taken += 1
        into.append(
            copied(seq, ts_ns, PyBytes_FromStringAndSize(mark + 1, end - mark - 1), text(delivered, 2), text(delivered, 3))
        )
    return taken, pending


cdef bytes block(bytes before_seq, int64_t seq, bytes after_seq, bytes subject):
    cdef char digits[24]
    cdef Py_ssize_t digits_at = 24, size
    cdef uint64_t rest = seq
    cdef bytes made
    cdef char* to
    if seq < 0:
        raise OverflowError("a sequence is not negative")
    while True:
        digits_at -= 1
        digits[digits_at] = <char>(48 + rest % 10)
        rest //= 10
        if not rest:
            break
    size = PyBytes_GET_SIZE(before_seq) + 24 - digits_at + PyBytes_GET_SIZE(after_seq) + PyBytes_GET_SIZE(subject) + 4
    made = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(made)
    memcpy(to, PyBytes_AS_STRING(before_seq), PyBytes_GET_SIZE(before_seq))
    to += PyBytes_GET_SIZE(before_seq)
    memcpy(to, digits + digits_at, 24 - digits_at)
    to += 24 - digits_at
    memcpy(to, PyBytes_AS_STRING(after_seq), PyBytes_GET_SIZE(after_seq))
    to += PyBytes_GET_SIZE(after_seq)
    memcpy(to, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
    to += PyBytes_GET_SIZE(subject)
    memcpy(to, b"\r\n\r\n", 4)
    return made


def stamp_run(batch, bytes before_seq not None, bytes after_seq not None, stamp):
    cdef list out = []
    cdef bytes subject, header
    cdef tuple message
    for each in batch:
        message = checked(each, COPIED)
        seq = value(message, SEQ)
        subject = text(message, SUBJECT)
        header = text(message, HEADER)
        if PyBytes_GET_SIZE(header):
            header = <bytes?>stamp(header, seq, subject)
        else:
            header = block(before_seq, seq, after_seq, subject)
        out.append(copied(seq, value(message, TS_NS), subject, header, text(message, PAYLOAD)))
    return out
