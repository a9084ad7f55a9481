# Reads the usual spelling of a message's control line into its places. Included by _frame_scanner.pyx.

cdef enum:
    TAB = 9
    LF = 10
    CR = 13
    SPACE = 32

# Which messages a scanner reads.
cdef enum:
    PUB = 0
    MSG = 1
    LMSG = 2

cdef struct Word:
    Py_ssize_t start
    Py_ssize_t size


cdef inline int split(const char* text, Py_ssize_t room, Word* words, Py_ssize_t* length) noexcept:
    # Cuts a line at its spaces into at most WORDS_MAX words. Returns their number, and sets the line's length with its
    # LF. Returns 0 when the line has no end or does not have the usual spelling: single spaces, no tab, CRLF.
    cdef Py_ssize_t at = 0, start = 0
    cdef int count = 0
    cdef unsigned char byte
    while at < room:
        byte = <unsigned char>text[at]
        if byte <= SPACE:
            if byte == SPACE:
                if at == start or count == WORDS_MAX - 1:
                    return 0
                words[count].start = start
                words[count].size = at - start
                count += 1
                start = at + 1
            elif byte == LF:
                if at - 1 <= start or text[at - 1] != CR:
                    return 0
                words[count].start = start
                words[count].size = at - 1 - start
                length[0] = at + 1
                return count + 1
            elif byte == TAB:
                return 0
        at += 1
    return 0


cdef inline Py_ssize_t number(const char* text, Word* word) noexcept:
    # Returns -1 unless the word is a number of at most DIGITS_MAX digits.
    cdef Py_ssize_t value = 0, index
    cdef unsigned char byte
    if word.size > DIGITS_MAX:
        return -1
    for index in range(word.start, word.start + word.size):
        byte = <unsigned char>text[index]
        if byte < 48 or byte > 57:
            return -1
        value = value * 10 + (byte - 48)
    return value


cdef inline bint is_word(const char* text, const char* word, Py_ssize_t size) noexcept:
    # Whether `text` starts with `word`, in lower case, and a space.
    cdef Py_ssize_t index
    for index in range(size):
        if (text[index] | 32) != word[index]:
            return False
    return text[size] == SPACE


cdef bint read_line(int kind, const char* text, Py_ssize_t room, Place* place) noexcept:
    # Reads a message's control line in its usual spelling; False for anything else. Offsets count from `text`.
    cdef Word words[6]
    cdef Py_ssize_t length = 0, total, header_size = 0
    cdef int count, needed
    cdef bint headers
    if room < 8:
        return False
    if kind == PUB:
        headers = is_word(text, b"hpub", 4)
        if not headers and not is_word(text, b"pub", 3):
            return False
    elif kind == MSG:
        headers = is_word(text, b"hmsg", 4)
        if not headers and not is_word(text, b"msg", 3):
            return False
    else:
        headers = is_word(text, b"hmsg", 4)
        if not headers and not is_word(text, b"lmsg", 4):
            return False
    count = split(text, room, words, &length)
    # Word, subject, [sid,] [reply,] [header size,] size.
    needed = 3 + headers + (kind == MSG)
    if count != needed and count != needed + 1:
        return False
    total = number(text, &words[count - 1])
    if headers:
        header_size = number(text, &words[count - 2])
        # A publish with an empty header continues as one without header.
        if header_size < (1 if kind == PUB else 0):
            return False
    if total < header_size:
        return False
    place.line = 0
    place.length = <uint32_t>length
    place.subject = <uint32_t>words[1].start
    place.subject_size = <uint32_t>words[1].size
    place.sid = place.sid_size = place.reply = place.reply_size = 0
    if kind == MSG:
        place.sid = <uint32_t>words[2].start
        place.sid_size = <uint32_t>words[2].size
    if count > needed:
        place.reply = <uint32_t>words[3 if kind == MSG else 2].start
        place.reply_size = <uint32_t>words[3 if kind == MSG else 2].size
    place.header_size = <uint32_t>header_size
    place.total = <uint32_t>total
    place.same = False
    return True


cdef inline void shift(Place* place, Py_ssize_t by) noexcept:
    place.line += <uint32_t>by
    place.subject += <uint32_t>by
    place.sid += <uint32_t>by
    place.reply += <uint32_t>by


cdef inline bytes cut(const char* data, Py_ssize_t start, Py_ssize_t size):
    return PyBytes_FromStringAndSize(data + start, size)


cdef inline int extend(bytearray gathered, const char* data, Py_ssize_t size) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(gathered)
    PyByteArray_Resize(gathered, before + size)
    memcpy(PyByteArray_AS_STRING(gathered) + before, data, size)
    return 0
