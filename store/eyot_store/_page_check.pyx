# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""Checks of one page of an LMDB 0.9 data file, in C: the compiled twin of page_check.py, which documents the functions.

Whatever the page's bytes are, no function reads outside of the page.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef extern from "unistd.h" nogil:
    ssize_t pread(int file, void* to, size_t size, int64_t at)

cdef enum:
    WORD = sizeof(size_t)
    HEADER = sizeof(size_t) + 8
    NODE = 8
    BRANCH = 1
    LEAF = 2
    OVERFLOW = 4
    BIG = 1
    SUBTREE = 2
    DB_SIZE = 8 + 5 * sizeof(size_t)
    KEY_MAX = 511
    NUMBER_KEY = -2


cdef inline uint16_t u16(const uint8_t* at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint64_t word(const uint8_t* at) noexcept nogil:
    cdef size_t value
    memcpy(&value, at, sizeof(size_t))
    return value


cdef inline uint64_t child_of(const uint8_t* node) noexcept nogil:
    cdef uint64_t child = u16(node) | <uint64_t>u16(node + 2) << 16
    if WORD == 8:
        child |= <uint64_t>u16(node + 4) << 32
    return child


cdef inline int ordered(const uint8_t* a, Py_ssize_t a_size, const uint8_t* b, Py_ssize_t b_size) noexcept nogil:
    # Below 0, 0 or above 0, as LMDB compares keys.
    cdef int found = memcmp(a, b, a_size if a_size < b_size else b_size)
    if found:
        return found
    return -1 if a_size < b_size else 1 if a_size > b_size else 0


cdef int checked(const uint8_t* page, Py_ssize_t size, uint64_t pgno, uint64_t last_pgno, int key_size) noexcept nogil:
    cdef Py_ssize_t lower, upper, at, end, used = 0, index, count, keyed, data, before = 0, before_size = -1
    cdef int flags, node_flags, big = 0
    if word(page) != pgno:
        return -1
    flags = u16(page + WORD + 2)
    if flags != BRANCH and flags != LEAF:
        return -2
    lower = u16(page + WORD + 4)
    upper = u16(page + WORD + 6)
    count = (lower - HEADER) >> 1
    if lower < HEADER or lower & 1 or upper < lower or upper > size or upper & 1 or count < 1 + (flags == BRANCH):
        return -3
    for index in range(count):
        at = u16(page + HEADER + 2 * index)
        if at < upper or at & 1 or at + NODE > size:
            return -4
        node_flags = u16(page + at + 4)
        keyed = u16(page + at + 6)
        end = at + NODE + keyed
        if flags == BRANCH:
            if end > size:
                return -4
            if child_of(page + at) < 2 or child_of(page + at) > last_pgno or child_of(page + at) == pgno:
                return -9
        else:
            data = u16(page + at) | <Py_ssize_t>u16(page + at + 2) << 16
            if node_flags & ~(BIG | SUBTREE) or (node_flags & SUBTREE and (key_size != 0 or node_flags & BIG)):
                return -5
            if node_flags & SUBTREE and data != DB_SIZE:
                return -5
            end += WORD if node_flags & BIG else data
            big += node_flags & BIG
            if end > size or end < at:
                return -4
        used += (end - at + 1) & ~1
        if index or flags == LEAF:
            if key_size == NUMBER_KEY:
                if keyed != WORD:
                    return -6
                if before_size >= 0 and word(page + before) >= word(page + at + NODE):
                    return -7
            else:
                if (keyed != key_size) if key_size > 0 else not 0 < keyed <= KEY_MAX:
                    return -6
                if before_size >= 0 and ordered(page + before, before_size, page + at + NODE, keyed) >= 0:
                    return -7
            before = at + NODE
            before_size = keyed
    if used != size - upper:
        return -8
    return big


cdef inline Py_ssize_t count_of(const uint8_t[::1] page) except -1:
    # The number of nodes, limited to what a page can hold.
    cdef Py_ssize_t lower
    if page.shape[0] < HEADER:
        raise ValueError("not a page")
    lower = u16(&page[WORD + 4])
    if lower < HEADER or lower > page.shape[0]:
        raise ValueError("not a sound page")
    return (lower - HEADER) >> 1


cdef inline Py_ssize_t node_at(const uint8_t[::1] page, Py_ssize_t index) except -1:
    # Where a node is; it and its key are inside of the page.
    cdef Py_ssize_t at
    if not 0 <= index < count_of(page):
        raise IndexError("the page has no such node")
    at = u16(&page[HEADER + 2 * index])
    if at + NODE > page.shape[0] or at + NODE + u16(&page[at + 6]) > page.shape[0]:
        raise ValueError("not a sound page")
    return at


def check_page(const uint8_t[::1] page, uint64_t pgno, uint64_t last_pgno, int key_size):
    if page.shape[0] < HEADER:
        raise ValueError("not a page")
    return checked(&page[0], page.shape[0], pgno, last_pgno, key_size)


def is_branch(const uint8_t[::1] page):
    if page.shape[0] < HEADER:
        raise ValueError("not a page")
    return u16(&page[WORD + 2]) == BRANCH


def nodes_of(const uint8_t[::1] page):
    return count_of(page)


def key_at(const uint8_t[::1] page, Py_ssize_t index):
    cdef Py_ssize_t at = node_at(page, index)
    return PyBytes_FromStringAndSize(<const char*>&page[at] + NODE, u16(&page[at + 6]))


def child_at(const uint8_t[::1] page, Py_ssize_t index):
    return child_of(&page[node_at(page, index)])


cdef Py_ssize_t found_in(const uint8_t[::1] page, const uint8_t* key, Py_ssize_t key_size) except -1:
    cdef Py_ssize_t low, high = count_of(page), middle, at
    cdef bint branch = u16(&page[WORD + 2]) == BRANCH
    cdef int found
    low = branch
    while low < high:
        middle = (low + high) >> 1
        at = node_at(page, middle)
        found = ordered(&page[at] + NODE, u16(&page[at + 6]), key, key_size)
        if found < 0 or (branch and found == 0):
            low = middle + 1
        else:
            high = middle
    return low - branch


def search(const uint8_t[::1] page, bytes key):
    return found_in(page, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


def way_is_known(
    const uint8_t[::1] view, uint64_t page_size, bytearray known not None, int kind, uint64_t root, int depth, bytes key
):
    cdef const uint8_t[::1] kinds = known
    cdef const uint8_t[::1] page
    cdef uint64_t pgno = root, pages = view.shape[0] // page_size
    cdef int level
    if <uint64_t>kinds.shape[0] < pages:
        pages = kinds.shape[0]
    for level in range(1, depth + 1):
        if pgno >= pages or kinds[pgno] != kind:
            return False
        page = view[pgno * page_size : (pgno + 1) * page_size]
        if (u16(&page[WORD + 2]) == BRANCH) != (level < depth):
            return False
        if level < depth:
            pgno = child_of(
                &page[node_at(page, found_in(page, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)))]
            )
    return True


def data_at(const uint8_t[::1] page, Py_ssize_t index):
    cdef Py_ssize_t at = node_at(page, index)
    return u16(&page[at + 4]), u16(&page[at]) | <uint64_t>u16(&page[at + 2]) << 16, at + NODE + u16(&page[at + 6])


cdef Py_ssize_t unsound_run(
    const uint8_t* page, Py_ssize_t page_bytes, Py_ssize_t index, Py_ssize_t count, int file, uint64_t page_size, uint64_t end
) noexcept nogil:
    cdef uint8_t head[HEADER]
    cdef Py_ssize_t at
    cdef uint64_t pgno, pages, size
    cdef uint32_t found
    while index < count:
        at = u16(page + HEADER + 2 * index)
        if at + NODE > page_bytes:
            return index
        if u16(page + at + 4) & BIG:
            size = u16(page + at) | <uint64_t>u16(page + at + 2) << 16
            at += NODE + u16(page + at + 6)
            if at + WORD > page_bytes:
                return index
            pgno = word(page + at)
            pages = (HEADER - 1 + size) // page_size + 1
            if pgno < 2 or pgno > end or pgno + pages > end:
                return index
            if pread(file, head, HEADER, pgno * page_size) < <ssize_t>HEADER:
                return index
            memcpy(&found, head + WORD + 4, 4)
            # LMDB keeps the pages of data that became shorter within a transaction.
            if word(head) != pgno or u16(head + WORD + 2) != OVERFLOW or found < pages or found > end - pgno:
                return index
        index += 1
    return count


def next_unsound_run(const uint8_t[::1] page, Py_ssize_t index, int file, uint64_t page_size, uint64_t end):
    cdef Py_ssize_t count = count_of(page), found
    if index < 0 or not page_size:
        raise ValueError("below the first node, or no size of a page")
    with nogil:  # a page may have to come from the disk
        found = unsound_run(&page[0], page.shape[0], index, count, file, page_size, end)
    return found


def runs_of(const uint8_t[::1] page, Py_ssize_t index, uint64_t page_size, uint64_t end, uint64_t pages_max):
    cdef Py_ssize_t at, count = count_of(page), size = page.shape[0]
    cdef uint64_t pgno, pages, first = 0, after = 0, taken = 0
    cdef list found = []
    if index < 0 or not page_size:
        raise ValueError("below the first node, or no size of a page")
    while index < count and taken < pages_max:
        at = node_at(page, index)
        index += 1
        if not u16(&page[at + 4]) & BIG:
            continue
        pages = (HEADER - 1 + (u16(&page[at]) | <uint64_t>u16(&page[at + 2]) << 16)) // page_size + 1
        at += NODE + u16(&page[at + 6])
        pgno = word(&page[at]) if at + WORD <= size else 0
        if pgno < 2 or pgno > end or pgno + pages > end:
            break
        taken += pages
        if pgno != after:
            if after:
                found.append((first, after - first))
            first = pgno
        after = pgno + pages
    if after:
        found.append((first, after - first))
    return found


def mark_children(const uint8_t[::1] page, bytearray seen not None):
    cdef uint8_t[::1] marks = seen
    cdef Py_ssize_t index
    cdef uint64_t child, twice = 0
    for index in range(count_of(page)):
        child = child_of(&page[node_at(page, index)])
        if child >= <uint64_t>marks.shape[0]:
            raise IndexError("a child's number is out of range")
        if marks[child] and not twice:
            twice = child
        marks[child] = 1
    return twice


def next_unknown(const uint8_t[::1] page, Py_ssize_t index, Py_ssize_t end, bytearray known not None, int kind):
    cdef const uint8_t[::1] kinds = known
    cdef uint64_t child
    while index < end:
        child = child_of(&page[node_at(page, index)])
        if child >= <uint64_t>kinds.shape[0] or kinds[child] != kind:
            return index
        index += 1
    return end
