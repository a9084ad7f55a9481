# Pattern matching of subjects, for the compiled tables. The including file defines memchr and memcmp.

cdef bint fits(const char* pattern, Py_ssize_t pattern_size, const char* text, Py_ssize_t size) noexcept nogil:
    # As eyot_wire.subject.matches.
    cdef const char* pattern_end = pattern + pattern_size
    cdef const char* end = text + size
    cdef const char* token_end
    cdef const char* wanted_end
    if size == pattern_size and memcmp(pattern, text, size) == 0:
        return True
    while True:
        wanted_end = <const char*>memchr(pattern, 46, pattern_end - pattern)
        if wanted_end == NULL:
            wanted_end = pattern_end
            if wanted_end - pattern == 1 and pattern[0] == 62:
                return True
        token_end = <const char*>memchr(text, 46, end - text)
        if token_end == NULL:
            token_end = end
        if not (wanted_end - pattern == 1 and pattern[0] == 42) and (
            wanted_end - pattern != token_end - text or memcmp(pattern, text, token_end - text) != 0
        ):
            return False
        if wanted_end == pattern_end or token_end == end:
            return wanted_end == pattern_end and token_end == end
        pattern = wanted_end + 1
        text = token_end + 1
