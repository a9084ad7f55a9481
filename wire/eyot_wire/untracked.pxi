# Tuples of bytes and numbers that are made once per message. They are in no cycle, so the collector need not know of them:
# it forgets a plain tuple of them only at the first collection that looks at it, and a named one never.

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void* item)


cdef inline void set_field(object item, Py_ssize_t at, object value) noexcept:
    # Into a tuple that is being made.
    Py_INCREF(value)
    PyTuple_SET_ITEM(item, at, value)


cdef inline object untracked(object item):
    PyObject_GC_UnTrack(<void*>item)
    return item
