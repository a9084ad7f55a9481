# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""What a connection has to send, in C: the compiled twin of out_buffer.py, which documents the classes."""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import os

from eyot_wire.out_buffer import AT_ONCE_BYTES, SHARED_BYTES

include "send_worker.pxi"


cdef struct Piece:
    # Part of a frame that stays in the publisher's bytes: behind the first `lead` bytes of the destination's `out`.
    Py_ssize_t lead
    const char* data
    Py_ssize_t size


cdef enum:
    PIECES = 256  # of one destination at a time
    SENDS = 64  # at a time

cdef Py_ssize_t AT_ONCE = AT_ONCE_BYTES
cdef Py_ssize_t SHARED = SHARED_BYTES
cdef bint is_alone = len(os.sched_getaffinity(0)) < 2
cdef bint is_shared = False  # the other thread is in use


cdef class Traffic:
    pass


cdef class OutBuffer(Traffic):
    def __cinit__(self, *args, **kwargs):
        self.out = bytearray()
        self.fd = -1

    def __dealloc__(self):
        free(self._pieces)

    def flush(self):
        pass


cdef bint add_piece(OutBuffer dest, const char* data, Py_ssize_t size) except -1:
    # Has the bytes follow what `out` holds; they must stay where they are until `write_all`, which True asks for at once.
    cdef Piece* piece
    if dest._pieces == NULL:
        dest._pieces = <Piece*>malloc(PIECES * sizeof(Piece))
        if dest._pieces == NULL:
            raise MemoryError
    piece = dest._pieces + dest._piece_count
    piece.lead = PyByteArray_GET_SIZE(dest.out)
    piece.data = data
    piece.size = size
    dest._piece_count += 1
    return dest._piece_count == PIECES


cdef int write_all(list dests) except -1:
    # Writes `out` of each with its pieces. What the kernel does not accept is copied into `out`, for `flush` to deal with, and
    # nothing more is written past it until the transport sets `fd` again.
    cdef Send sends[SENDS]
    cdef iovec* vectors
    cdef Py_ssize_t first
    cdef int count, index, used
    for first in range(0, PyList_GET_SIZE(dests), SENDS):
        count = min(PyList_GET_SIZE(dests) - first, SENDS)
        used = count
        for index in range(count):
            used += 2 * (<OutBuffer><object>PyList_GET_ITEM(dests, first + index))._piece_count
        vectors = <iovec*>malloc(used * sizeof(iovec))
        if vectors == NULL:
            raise MemoryError
        try:
            used = 0
            for index in range(count):
                used += gather(<OutBuffer><object>PyList_GET_ITEM(dests, first + index), vectors + used, sends + index)
            send_together(sends, count)
            for index in range(count):
                settle(<OutBuffer><object>PyList_GET_ITEM(dests, first + index), sends + index)
        finally:
            free(vectors)
    return 0


cdef int send_together(Send* sends, int count) except -1:
    # The other thread has one caller at a time.
    global is_shared
    cdef Py_ssize_t total = 0
    cdef int index
    cdef bint together = count > 1 and not is_alone and not is_shared
    for index in range(count):
        total += sends[index].size
    if not together or total < SHARED:
        with nogil:
            for index in range(count):
                send_one(sends + index)
        return 0
    is_shared = True
    with nogil:
        send_all(sends, count)
    is_shared = False
    return 0


cdef int gather(OutBuffer dest, iovec* to, Send* one):
    # Returns the number of vectors.
    cdef char* start = PyByteArray_AS_STRING(dest.out)
    cdef Py_ssize_t at = 0
    cdef int index
    cdef Piece* piece
    one.fd, one.vectors, one.size = dest.fd, to, PyByteArray_GET_SIZE(dest.out)
    for index in range(dest._piece_count):
        piece = dest._pieces + index
        to[0].iov_base, to[0].iov_len = start + at, piece.lead - at
        to[1].iov_base, to[1].iov_len = <void*>piece.data, piece.size
        one.size += piece.size
        at = piece.lead
        to += 2
    to[0].iov_base, to[0].iov_len = start + at, PyByteArray_GET_SIZE(dest.out) - at
    one.count = 2 * dest._piece_count + 1
    dest._piece_count = 0
    return one.count


cdef int settle(OutBuffer dest, Send* one) except -1:
    cdef Py_ssize_t sent = one.sent, size
    cdef bytearray rest
    cdef char* to
    cdef int index
    if sent == one.size:
        PyByteArray_Resize(dest.out, 0)
        return 0
    dest.fd = -1
    rest = PyByteArray_FromStringAndSize(NULL, one.size - sent)
    to = PyByteArray_AS_STRING(rest)
    for index in range(one.count):
        size = one.vectors[index].iov_len
        if sent >= size:
            sent -= size
            continue
        to = put(to, <const char*>one.vectors[index].iov_base + sent, size - sent)
        sent = 0
    dest.out = rest
    return 0


def send_out(list dests not None, Py_ssize_t at):
    cdef Py_ssize_t end = PyList_GET_SIZE(dests), first
    cdef OutBuffer each
    cdef Send sends[SENDS]
    cdef iovec whole[SENDS]
    cdef Send* one
    cdef int count, index
    cdef bint complete = True
    if at < 0:
        raise IndexError(at)
    while at < end and complete:
        first, count = at, 0
        while at < end and count < SENDS and isinstance(<object>PyList_GET_ITEM(dests, at), OutBuffer):
            each = <OutBuffer><object>PyList_GET_ITEM(dests, at)
            one = sends + count
            one.fd, one.vectors, one.count, one.size = each.fd, whole + count, 1, PyByteArray_GET_SIZE(each.out)
            # One that was flushed in mid-turn and got more stands there twice: its bytes belong to the first of the two.
            if (
                one.fd < 0
                or each.closed
                or each.waited_for
                or one.size > AT_ONCE
                or (one.size and not each.dirty)
            ):
                break
            whole[count].iov_base, whole[count].iov_len = PyByteArray_AS_STRING(each.out), one.size
            each.dirty = False
            count += 1
            at += 1
        if not count:
            return at
        # No other thread uses what a connection has to send.
        send_together(sends, count)
        for index in range(count - 1, -1, -1):
            each = <OutBuffer><object>PyList_GET_ITEM(dests, first + index)
            if sends[index].sent == sends[index].size:
                PyByteArray_Resize(each.out, 0)
                continue
            del each.out[:sends[index].sent]
            each.dirty, complete = True, False
            at = first + index
    return at
