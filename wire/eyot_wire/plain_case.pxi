# Decides whether a publish is the plain case: who receives it, and what prevents it. Included by _fan_out.pyx.


cdef struct Held:
    PyObject* one  # borrowed from the index
    int count


cdef inline void hold(Held* held, PyObject* found) noexcept:
    if found != NULL:
        held.one = found
        held.count += 1


cdef int collect(dict node, const char* text, Py_ssize_t size, Held* held) except -1:
    # Collects what a SubList's trie holds for a subject (or the rest of one), up to two entries. sublist.py documents
    # the trie.
    cdef const char* dot
    cdef PyObject* below
    cdef bytes token
    while held.count < 2:
        hold(held, PyDict_GetItemWithError(node, REST))
        dot = <const char*>memchr(text, 46, size)
        if dot == NULL:
            token = PyBytes_FromStringAndSize(NULL, size + 1)
            PyBytes_AS_STRING(token)[0] = 32
            memcpy(PyBytes_AS_STRING(token) + 1, text, size)
            hold(held, PyDict_GetItemWithError(node, token))
            hold(held, PyDict_GetItemWithError(node, ANY_LAST))
            return 0
        token = PyBytes_FromStringAndSize(text, dot - text)
        size -= dot - text + 1
        text = dot + 1
        below = PyDict_GetItemWithError(node, STAR)
        if below != NULL:
            collect(<dict?><object>below, text, size, held)
        below = PyDict_GetItemWithError(node, token)
        if below == NULL:
            return 0
        node = <dict?><object>below
    return 0


cdef inline bint is_plain(object sub, bint headers):
    cdef object dest
    if not isinstance(sub, Interest) or (<Interest>sub).slow:
        return False
    dest = (<Interest>sub).dest
    return isinstance(dest, OutBuffer) and ((<OutBuffer>dest).headers or not headers)


cdef bint is_plain_match(Match match, bint headers):
    cdef tuple members
    for sub in match.plain:
        if not is_plain(sub, headers):
            return False
    for _, members in match.groups:
        for sub in members:
            if not is_plain(sub, headers):
                return False
    return True


cdef IngestQueue ingest_queue_of(Match match):
    if isinstance(match.sink, IngestQueue):
        return <IngestQueue>match.sink
    if PyTuple_GET_SIZE(match.plain) == 1 and not PyTuple_GET_SIZE(match.groups):
        sub = <object>PyTuple_GET_ITEM(match.plain, 0)
        if isinstance(sub, Interest) and isinstance((<Interest>sub).ingest_queue, IngestQueue):
            return <IngestQueue>(<Interest>sub).ingest_queue
    return None


cdef inline bint is_literal_subject(const char* text, Py_ssize_t size) noexcept:
    # No empty token, and no token that looks like a wildcard.
    cdef char before = 46
    cdef Py_ssize_t index
    for index in range(size):
        if text[index] == 42 or text[index] == 62 or (text[index] == 46 and before == 46):
            return False
        before = text[index]
    return before != 46


cdef inline bint is_reserved(const char* subject, Py_ssize_t size):
    cdef bytes start
    if subject[0] != RESERVED_START:
        return False
    for start in PLAIN:
        if size >= PyBytes_GET_SIZE(start) and memcmp(subject, PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start)) == 0:
            return False
    return True


cdef inline bint is_reserved_reply(const char* reply, Py_ssize_t size):
    cdef bytes start
    for start in REPLIES:
        if size >= PyBytes_GET_SIZE(start) and memcmp(reply, PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start)) == 0:
            return True
    return False


cdef inline bint is_traced(const char* data, Place* place):
    return memmem(
        data + place.line + place.length, place.header_size, PyBytes_AS_STRING(TRACED), PyBytes_GET_SIZE(TRACED)
    ) != NULL


cdef object published(bytes subject, bytes reply, bytes header, bytes payload):
    cdef object message = PyType_GenericAlloc(MESSAGE, 4)
    set_field(message, 0, subject)
    set_field(message, 1, reply)
    set_field(message, 2, header)
    set_field(message, 3, payload)
    return untracked(message)
