from libc.stdint cimport uint32_t


cdef struct Place:
    # A message in a read; offsets and lengths in bytes.
    uint32_t line
    uint32_t length
    uint32_t subject
    uint32_t subject_size
    uint32_t sid
    uint32_t sid_size
    uint32_t reply
    uint32_t reply_size
    uint32_t header_size
    uint32_t total
    bint same  # the control line equals that of the previous message


cdef class Publishes:
    cdef Py_buffer _view
    cdef const char* _data
    cdef Place* _places
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room

    cdef int _add(self, Place* place) except -1
    cdef Place* _at(self, Py_ssize_t index) except NULL
