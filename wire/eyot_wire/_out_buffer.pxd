from libc.string cimport memcpy


cdef struct Piece


cdef class Traffic:
    cdef public long long in_msgs
    cdef public long long in_bytes
    cdef public long long out_msgs
    cdef public long long out_bytes


cdef class OutBuffer(Traffic):
    cdef public bytearray out
    cdef public bint headers
    cdef public bint closed
    cdef public bint dirty
    cdef public bint waited_for
    cdef public int fd
    cdef Py_ssize_t _flush_at
    cdef Piece* _pieces
    cdef int _piece_count


cdef bint add_piece(OutBuffer dest, const char* data, Py_ssize_t size) except -1
cdef int write_all(list dests) except -1


cdef inline char* put(char* to, const char* text, Py_ssize_t size) noexcept:
    memcpy(to, text, size)
    return to + size
