# Subjects that match, with their counts, and pages of them in order of names: included by _subject_table.pyx.


cdef struct Entry:
    uint64_t at  # in the arena; when they are sorted, in memory
    int64_t count
    uint32_t size


cdef int by_name(const void* one, const void* other) noexcept nogil:
    cdef const Entry* left = <const Entry*>one
    cdef const Entry* right = <const Entry*>other
    cdef int order = memcmp(<const void*>left.at, <const void*>right.at, min(left.size, right.size))
    if order:
        return order
    return -1 if left.size < right.size else left.size > right.size


cdef class Matched:
    cdef Entry* _entries
    cdef Py_ssize_t _used, _size
    cdef char* _arena
    cdef uint64_t _arena_used, _arena_size

    def __dealloc__(self):
        free(self._entries)
        free(self._arena)

    def __len__(self):
        return self._used

    cdef int _add(self, const char* text, uint32_t size, int64_t count) except -1:
        cdef void* moved
        if self._used == self._size:
            moved = realloc(self._entries, (self._size * 2 + 64) * sizeof(Entry))
            if moved == NULL:
                raise MemoryError
            self._entries = <Entry*>moved
            self._size = self._size * 2 + 64
        if self._arena_used + size > self._arena_size:
            moved = realloc(self._arena, self._arena_size * 2 + size + 4096)
            if moved == NULL:
                raise MemoryError
            self._arena = <char*>moved
            self._arena_size = self._arena_size * 2 + size + 4096
        self._entries[self._used] = Entry(at=self._arena_used, count=count, size=size)
        memcpy(self._arena + self._arena_used, text, size)
        self._arena_used += size
        self._used += 1
        return 0

    def page(self, Py_ssize_t offset, Py_ssize_t limit):
        cdef Py_ssize_t index, end
        cdef Entry* entries
        cdef Entry* entry
        cdef list found = []
        if offset < 0 or offset >= self._used or limit <= 0:
            return found
        end = self._used if limit > self._used - offset else offset + limit
        # In an array of its own: other threads may change the table meanwhile.
        entries = <Entry*>malloc(self._used * sizeof(Entry))
        if entries == NULL:
            raise MemoryError
        try:
            with nogil:
                for index in range(self._used):
                    entries[index] = self._entries[index]
                    entries[index].at += <uint64_t>self._arena
                qsort(entries, self._used, sizeof(Entry), by_name)
            for index in range(offset, end):
                entry = entries + index
                found.append((PyBytes_FromStringAndSize(<char*>entry.at, entry.size), entry.count))
            return found
        finally:
            free(entries)
