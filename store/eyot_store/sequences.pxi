# Very many sequences, gathered in any order and returned in ascending order. The including file imports array, and defines
# the C library's functions and the fixed integers.

cdef enum:
    DIGIT_BITS = 11
    DIGITS = 2048


cdef class Sequences:
    cdef int64_t* _seqs
    cdef Py_ssize_t _used, _size
    cdef int64_t _most
    cdef bint _ascend

    def __cinit__(self):
        self._ascend = True

    def __dealloc__(self):
        free(self._seqs)

    cdef int add(self, int64_t seq) except -1:
        # A sequence is not negative.
        cdef void* moved
        if self._used == self._size:
            moved = realloc(self._seqs, (self._size * 2 + 64) * sizeof(int64_t))
            if moved == NULL:
                raise MemoryError
            self._seqs = <int64_t*>moved
            self._size = self._size * 2 + 64
        if seq < self._most:
            self._ascend = False
        else:
            self._most = seq
        self._seqs[self._used] = seq
        self._used += 1
        return 0

    cdef int _sort(self) except -1:
        # By one digit after the other, from the lowest: each pass keeps the order of the ones before.
        cdef Py_ssize_t counts[DIGITS]
        cdef Py_ssize_t index, place, count
        cdef int shift = 0
        cdef int64_t* moved = <int64_t*>malloc(self._used * sizeof(int64_t))
        if moved == NULL:
            raise MemoryError
        while shift < 63 and self._most >> shift:
            for index in range(DIGITS):
                counts[index] = 0
            for index in range(self._used):
                counts[(self._seqs[index] >> shift) & (DIGITS - 1)] += 1
            place = 0
            for index in range(DIGITS):
                count = counts[index]
                counts[index] = place
                place += count
            for index in range(self._used):
                count = (self._seqs[index] >> shift) & (DIGITS - 1)
                moved[counts[count]] = self._seqs[index]
                counts[count] += 1
            self._seqs, moved = moved, self._seqs
            shift += DIGIT_BITS
        free(moved)
        self._size = self._used
        self._ascend = True
        return 0

    cdef object ascending(self):
        found = array("q")
        if self._used:
            if not self._ascend:
                self._sort()
            found.frombytes(<char[:self._used * sizeof(int64_t)]><char*>self._seqs)
        return found
