# The counters of a subject, and access to subjects in parameters: included by _subject_table.pyx.


cdef struct Slot:
    int64_t count  # 0: free
    int64_t first
    int64_t last
    uint64_t at  # in the arena; of a free one: the next free one, and 1
    uint32_t size
    uint32_t hash


cdef inline void some_went(Slot* slot, int64_t low, int64_t high) noexcept nogil:
    if low <= slot.first <= high:
        slot.first = -(slot.first + 1) if low == high else -slot.first
    if low <= slot.last <= high:
        slot.last = 0
    if slot.count == 1:
        if slot.first <= 0 and slot.last:
            slot.first = slot.last
        elif slot.first > 0 and not slot.last:
            slot.last = slot.first


cdef inline bytes subject_in(object thing, Py_ssize_t at):
    # Returns the element at index `at` of a tuple; below 0: the object itself.
    cdef object subject = thing
    if at >= 0:
        if not PyTuple_Check(thing) or PyTuple_GET_SIZE(thing) <= at:
            raise TypeError("a subject is in a tuple")
        subject = <object>PyTuple_GET_ITEM(thing, at)
    if subject is None:
        raise TypeError("a subject is bytes")
    return <bytes?>subject
