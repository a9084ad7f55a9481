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

from eyot_wire.out_buffer import AT_ONCE_BYTES

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

    ssize_t writev(int fd, const iovec* vectors, int count)

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t send(int fd, const void* data, size_t size, int flags)


cdef struct Piece:
    # Part of a frame that stays in the publisher's bytes: behind the first `lead` bytes of the destination's `out`.
    Py_ssize_t lead
    const char* data
    Py_ssize_t size


cdef enum:
    PIECES = 256  # of one destination at a time
    SENDS = 64  # of as many destinations without the interpreter's lock

cdef Py_ssize_t AT_ONCE = AT_ONCE_BYTES


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
    # Has the bytes follow what `out` holds; they must stay where they are until `write_out`, which True asks for at once.
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


cdef int write_out(OutBuffer dest) except -1:
    # Writes `out` with its pieces. What the kernel does not accept is copied into `out`, for `flush` to deal with, and
    # nothing more is written past it until the transport sets `fd` again. An error shows at the transport's own attempt.
    cdef iovec vectors[2 * PIECES + 1]
    cdef bytearray out = dest.out
    cdef char* start = PyByteArray_AS_STRING(out)
    cdef Py_ssize_t at = 0, total = 0, sent, size
    cdef int count = 0, index, fd = dest.fd
    cdef Piece* piece
    cdef bytearray rest
    cdef char* to
    for index in range(dest._piece_count):
        piece = dest._pieces + index
        vectors[count].iov_base = start + at
        vectors[count].iov_len = piece.lead - at
        vectors[count + 1].iov_base = <void*>piece.data
        vectors[count + 1].iov_len = piece.size
        total += piece.lead - at + piece.size
        at = piece.lead
        count += 2
    size = PyByteArray_GET_SIZE(out)
    vectors[count].iov_base = start + at
    vectors[count].iov_len = size - at
    total += size - at
    count += 1
    dest._piece_count = 0
    sent = -1
    if fd >= 0:
        with nogil:
            sent = writev(fd, vectors, count)
    if sent == total:
        PyByteArray_Resize(out, 0)
        return 0
    dest.fd = -1
    sent = max(sent, 0)
    rest = PyByteArray_FromStringAndSize(NULL, total - sent)
    to = PyByteArray_AS_STRING(rest)
    for index in range(count):
        size = vectors[index].iov_len
        if sent >= size:
            sent -= size
            continue
        to = put(to, <const char*>vectors[index].iov_base + sent, size - sent)
        sent = 0
    dest.out = rest
    return 0


def send_out(list dests not None, Py_ssize_t at):
    cdef Py_ssize_t end = PyList_GET_SIZE(dests), first, sent
    cdef OutBuffer each
    cdef int fds[SENDS]
    cdef char* starts[SENDS]
    cdef Py_ssize_t sizes[SENDS]
    cdef int count, done
    if at < 0:
        raise IndexError(at)
    while at < end:
        first, count, done, sent = at, 0, 0, 0
        while at < end and count < SENDS and isinstance(<object>PyList_GET_ITEM(dests, at), OutBuffer):
            each = <OutBuffer><object>PyList_GET_ITEM(dests, at)
            fds[count], starts[count], sizes[count] = each.fd, PyByteArray_AS_STRING(each.out), PyByteArray_GET_SIZE(each.out)
            # One that was flushed in mid-turn and got more stands there twice: its bytes belong to the first of the two.
            if each.fd < 0 or each.closed or sizes[count] > AT_ONCE or (sizes[count] and not each.dirty):
                break
            each.dirty = False
            count += 1
            at += 1
        if not count:
            return at
        # No other thread uses what a connection has to send.
        with nogil:
            while done < count:
                sent = send(fds[done], starts[done], sizes[done], MSG_DONTWAIT | MSG_NOSIGNAL) if sizes[done] else 0
                if sent != sizes[done]:
                    break
                done += 1
        for at in range(first, first + done):
            each = <OutBuffer><object>PyList_GET_ITEM(dests, at)
            PyByteArray_Resize(each.out, 0)
        for at in range(first + done, first + count):
            each = <OutBuffer><object>PyList_GET_ITEM(dests, at)
            each.dirty = True
        at = first + done
        if done < count:
            if sent > 0:
                each = <OutBuffer><object>PyList_GET_ITEM(dests, at)
                del each.out[:sent]
            return at
    return at
