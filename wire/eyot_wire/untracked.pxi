# Tuples of bytes and numbers that are made once per message. They are in no cycle, so the collector need not know of them:
# it forgets a plain tuple of them only at the first collection that looks at it, and a named one never.

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* item)


cdef inline object untracked(object item):
    PyObject_GC_UnTrack(<void*>item)
    return item
