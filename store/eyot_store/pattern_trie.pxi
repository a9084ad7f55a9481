# Many patterns at once, for the compiled tables: each subject costs as much as the places of the trie that it reaches.
# The including file defines the C library's functions, hash_of and the fixed integers.

cdef enum:
    ENDS = 1  # a pattern ends here
    TAKES_REST = 2  # a pattern goes on with `>`

# Patterns with more tokens are compared one by one: the walk calls itself once a token.
cdef Py_ssize_t TOKENS_MAX = 256


cdef struct Branch:
    uint32_t parent, hashed, at, size
    uint32_t child  # 0: no branch


cdef class PatternTrie:
    cdef Branch* _branches  # a hash table with linear probing
    cdef uint64_t _mask
    cdef uint32_t* _star  # by node: its branch for any token, 0: none
    cdef uint8_t* _flags
    cdef uint32_t _nodes
    cdef bytes _text  # the patterns, one behind the other
    cdef const char* _letters  # of it

    def __cinit__(self, tuple patterns not None):
        cdef Py_ssize_t tokens = 1, size
        cdef bytes pattern
        for pattern in patterns:
            tokens += pattern.count(b".") + 1
        self._text = b"".join(patterns)
        self._letters = PyBytes_AS_STRING(self._text)
        if len(self._text) > 0x7FFFFFFF:
            raise OverflowError
        size = 8
        while size < 2 * tokens:
            size *= 2
        self._mask = size - 1
        self._branches = <Branch*>calloc(size, sizeof(Branch))
        self._star = <uint32_t*>calloc(tokens + 1, sizeof(uint32_t))
        self._flags = <uint8_t*>calloc(tokens + 1, sizeof(uint8_t))
        if self._branches == NULL or self._star == NULL or self._flags == NULL:
            raise MemoryError
        self._nodes = 1
        size = 0
        for pattern in patterns:
            self._add(size, size + len(pattern))
            size += len(pattern)

    def __dealloc__(self):
        free(self._branches)
        free(self._star)
        free(self._flags)

    cdef int _add(self, Py_ssize_t at, Py_ssize_t end) except -1:
        # Adds the pattern between these places of the text.
        cdef const char* text = self._letters
        cdef const char* dot
        cdef Py_ssize_t stop
        cdef uint32_t node = 0, hashed
        cdef Branch* branch
        if at == end:
            self._flags[0] |= TAKES_REST
            return 0
        while True:
            dot = <const char*>memchr(text + at, 46, end - at)
            stop = end if dot == NULL else dot - text
            if stop == end and stop - at == 1 and text[at] == 62:
                self._flags[node] |= TAKES_REST
                return 0
            if stop - at == 1 and text[at] == 42:
                if not self._star[node]:
                    self._star[node] = self._nodes
                    self._nodes += 1
                node = self._star[node]
            else:
                hashed = hash_of(text + at, stop - at)
                branch = self._find(node, hashed, text + at, stop - at)
                if not branch.child:
                    branch.parent, branch.hashed = node, hashed
                    branch.at, branch.size = <uint32_t>at, <uint32_t>(stop - at)
                    branch.child = self._nodes
                    self._nodes += 1
                node = branch.child
            if stop == end:
                self._flags[node] |= ENDS
                return 0
            at = stop + 1

    cdef Branch* _find(self, uint32_t node, uint32_t hashed, const char* token, Py_ssize_t size) noexcept nogil:
        # The branch of a node for a token, or the free place for it.
        cdef uint64_t place = mixed((<uint64_t>node << 32) | hashed) & self._mask
        cdef Branch* branch
        while True:
            branch = self._branches + place
            if not branch.child:
                return branch
            if branch.parent == node and branch.hashed == hashed and <Py_ssize_t>branch.size == size and (
                memcmp(self._letters + branch.at, token, size) == 0
            ):
                return branch
            place = (place + 1) & self._mask

    cdef bint fits(self, uint32_t node, const char* text, Py_ssize_t size) noexcept nogil:
        # Whether a pattern below a node matches the rest of a subject, which begins with a token.
        cdef const char* dot
        cdef Py_ssize_t stop
        cdef uint32_t child
        cdef int way
        if self._flags[node] & TAKES_REST:
            return True
        dot = <const char*>memchr(text, 46, size)
        stop = size if dot == NULL else dot - text
        for way in range(2):
            if way == 0:
                child = self._star[node]
            elif stop == 1 and text[0] == 42:
                child = 0  # a message may be published to `*`; the branch for any token has it
            else:
                child = self._find(node, hash_of(text, stop), text, stop).child
            if not child:
                continue
            if stop == size:
                if self._flags[child] & ENDS:
                    return True
            elif self.fits(child, text + stop + 1, size - stop - 1):
                return True
        return False


cdef PatternTrie trie_of(tuple patterns):
    # For many patterns, their trie; None: they are compared one by one.
    cdef bytes pattern
    if PyTuple_GET_SIZE(patterns) <= 4:
        return None
    for pattern in patterns:
        if pattern.count(b".") >= TOKENS_MAX:
            return None
    return PatternTrie(patterns)
