# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The scanning loop in C on the raw buffer: the compiled twin of frame_scanner.py and of `Publishes` in frames.py.

The plain twins document the classes. This module reads the usual spelling of a message's control line (single spaces,
CRLF) without making a Python object. Every other line goes to the grammar's functions, so that one place knows the rest
of the protocol. For a publish only its place in the read is noted.

Memory: the code takes a pointer into a `bytearray` after its last resize and uses it before any Python code can run. A
row of publishes holds a reference to the buffer that it points into.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from eyot_wire.frames import (
    ACK_DIGITS_MAX,
    OK_OP,
    PING_OP,
    PLAIN_ACKS,
    PONG_OP,
    FrameLine,
    LeafMsg,
    Msg,
    ProtocolError,
    Pub,
)
from eyot_wire.grammar import SIZE_DIGITS_MAX, no_end

# The most bytes that one call scans, so that places fit into 32 bits.
cdef Py_ssize_t PIECE_MAX = 1 << 30
cdef Py_ssize_t DIGITS_MAX = SIZE_DIGITS_MAX
cdef int ACK_DIGITS = ACK_DIGITS_MAX
if PLAIN_ACKS != {b"", b"+ACK", b"+OK"}:
    raise ImportError("other acknowledgements than is_plain_ack knows")
PLACE_BYTES = sizeof(Place)  # for modules that share the layout
cdef int WORDS_MAX = 6
cdef type LEAF_MSG = LeafMsg  # a tuple, built here field by field

# Places of a row that are enough for most reads. Some are kept for later rows: fresh memory from the system costs as
# much as all the scanning. A row that finds none begins with a few: a read may have thousands of rows of one message.
cdef Py_ssize_t ROOM = 2048
cdef Py_ssize_t FEW = 8
cdef enum:
    SPARES_MAX = 8
cdef Place* spares[SPARES_MAX]
cdef Py_ssize_t spare_count = 0

include "untracked.pxi"
include "control_line.pxi"


cdef object leaf_msg(bytes subject, bytes reply, bytes header, bytes payload):
    cdef object message = PyType_GenericAlloc(LEAF_MSG, 5)
    set_field(message, 0, subject)
    set_field(message, 1, reply)
    set_field(message, 2, header)
    set_field(message, 3, payload)
    set_field(message, 4, ())
    return untracked(message)


@cython.final
@cython.no_gc
cdef class Publishes:
    def __dealloc__(self):
        global spare_count
        if self._data != NULL:
            PyBuffer_Release(&self._view)
        if self._room == ROOM and spare_count < SPARES_MAX:
            spares[spare_count] = self._places
            spare_count += 1
        else:
            free(self._places)

    def __len__(self):
        return self._count

    cdef int _add(self, Place* place) except -1:
        global spare_count
        cdef Py_ssize_t room
        cdef Place* places
        if self._count == self._room:
            if self._room == 0 and spare_count:
                spare_count -= 1
                places = spares[spare_count]
                room = ROOM
            else:
                room = 2 * self._room if self._room else FEW
                places = <Place*>realloc(self._places, room * sizeof(Place))
                if places == NULL:
                    raise MemoryError
            self._places = places
            self._room = room
        self._places[self._count] = place[0]
        self._count += 1
        return 0

    cdef Place* _at(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return &self._places[index]

    def line(self, Py_ssize_t index):
        return line_of(self._data, self._at(index))

    def run(self, Py_ssize_t index):
        cdef Py_ssize_t end = index + 1
        self._at(index)
        while end < self._count and self._places[end].same:
            end += 1
        return end - index

    def tails(self, Py_ssize_t index, Py_ssize_t count):
        cdef list found = []
        cdef Place* place
        cdef Py_ssize_t start
        for index in range(index, index + count):
            place = self._at(index)
            start = <Py_ssize_t>place.subject + place.subject_size + 1
            found.append(cut(self._data, start, <Py_ssize_t>place.line + place.length + place.total + 2 - start))
        return found

    def content(self, Py_ssize_t index):
        cdef Place* place = self._at(index)
        cdef Py_ssize_t start = <Py_ssize_t>place.line + place.length
        cdef Py_ssize_t header_size = place.header_size
        header = cut(self._data, start, header_size) if header_size else b""
        return header, cut(self._data, start + header_size, place.total - header_size)

    def acknowledged(self, Py_ssize_t index, bytes prefix not None):
        cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
        cdef Py_ssize_t size = 0
        cdef int64_t seq
        cdef list seqs = []
        cdef Place* place
        if not 0 <= index <= self._count:
            raise IndexError(index)
        while index < self._count:
            place = &self._places[index]
            if place.reply_size or place.header_size or place.subject_size <= prefix_size:
                break
            if memcmp(self._data + place.subject, PyBytes_AS_STRING(prefix), prefix_size) != 0:
                break
            seq = second_of_five(self._data + place.subject + prefix_size, place.subject_size - prefix_size)
            if seq < 0 or not is_plain_ack(self._data + place.line + place.length, place.total):
                break
            seqs.append(seq)
            size += place.total
            index += 1
        return seqs, size


def detach_all(list ops not None):
    cdef Publishes row
    cdef Py_buffer view
    cdef Py_ssize_t offset
    cdef const char* copied = NULL
    cdef bytes copy = b""
    for op in ops:
        if type(op) is not Publishes:
            continue
        row = <Publishes>op
        if row._data == NULL or PyBytes_CheckExact(<object>row._view.obj):
            continue
        view = row._view
        if view.buf != copied or view.len != PyBytes_GET_SIZE(copy):
            copied = <const char*>view.buf
            copy = PyBytes_FromStringAndSize(copied, view.len)
        offset = row._data - copied
        PyObject_GetBuffer(copy, &row._view, PyBUF_SIMPLE)
        row._data = <const char*>row._view.buf + offset
        PyBuffer_Release(&view)


cdef int64_t second_of_five(const char* text, Py_ssize_t size) noexcept:
    # Returns the second of five numbers separated by dots; -1 for any other text, and for a number that is too long.
    cdef Py_ssize_t at, start = 0
    cdef int dots = 0
    cdef int64_t value = 0
    cdef unsigned char byte
    for at in range(size):
        byte = <unsigned char>text[at]
        if byte == 46:
            if at == start or dots == 4 or (dots == 1 and at - start > ACK_DIGITS):
                return -1
            dots += 1
            start = at + 1
        elif byte < 48 or byte > 57:
            return -1
        elif dots == 1 and at - start < ACK_DIGITS:
            value = value * 10 + (byte - 48)
    return value if dots == 4 and start < size else -1


cdef inline bint is_plain_ack(const char* text, Py_ssize_t size) noexcept:
    if size == 4:
        return memcmp(text, b"+ACK", 4) == 0
    return size == 0 or (size == 3 and memcmp(text, b"+OK", 3) == 0)


cdef object line_of(const char* data, Place* place):
    subject = cut(data, place.subject, place.subject_size)
    reply = cut(data, place.reply, place.reply_size)
    skip = place.subject + place.subject_size + 1 - place.line
    return FrameLine(subject, reply, place.header_size, place.total, place.length, skip)


cdef class FrameScanner:
    cdef object _quick
    cdef object _parse_line
    cdef object _check_start
    cdef object _make
    cdef int _kind
    cdef Py_ssize_t _after
    cdef bint _batches
    cdef int64_t _max_control_line
    cdef int64_t _max_payload
    cdef bytes _rest  # incomplete control line
    cdef bytes _subject  # of the last message that was made
    # A frame whose payload is incomplete. For a line read here, `_place` describes `_gathered`, the frame so far. For
    # any other line, `_line` is the parsed line and `_gathered` what the grammar keeps of it.
    cdef bytearray _gathered
    cdef Place _place
    cdef object _line
    cdef Py_ssize_t _missing
    cdef Py_ssize_t _received
    cdef tuple _failed  # text and detail of the error

    def __init__(self, grammar, *, bint batches=False, int64_t max_control_line, int64_t max_payload):
        self._quick = grammar.quick
        self._parse_line = grammar.parse
        self._check_start = grammar.check_start
        self._make = grammar.make
        self._kind = {"PUB": PUB, "MSG": MSG, "LMSG": LMSG}[grammar.message]
        self._after = 2 if grammar.keep_end else 0
        self._batches = batches
        self._max_control_line = max_control_line
        self._max_payload = max_payload
        self._rest = b""
        self._subject = b""
        self._gathered = None
        self._line = None
        self._missing = 0
        self._received = 0
        self._failed = None

    @property
    def max_control_line(self):
        return self._max_control_line

    @max_control_line.setter
    def max_control_line(self, int64_t limit):
        self._max_control_line = limit

    @property
    def max_payload(self):
        return self._max_payload

    @max_payload.setter
    def max_payload(self, int64_t limit):
        self._max_payload = limit

    @property
    def pending(self):
        return self._received if self._gathered is not None else PyBytes_GET_SIZE(self._rest)

    def feed(self, data):
        cdef Py_buffer view
        cdef Py_ssize_t start = 0, size
        cdef list ops = []
        if self._failed is not None:
            raise ProtocolError(*self._failed)
        if not isinstance(data, (bytes, memoryview)):
            data = bytes(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while start < view.len:
                size = min(view.len - start, PIECE_MAX)
                self._scan(data, start, <const char*>view.buf + start, size, ops)
                start += size
        except ProtocolError as error:
            error.ops = ops
            self._failed = (error.text, error.detail)
            self._rest = b""
            self._line = self._gathered = None
            raise
        finally:
            PyBuffer_Release(&view)
        return ops

    cdef int _scan(
        self, object owner, Py_ssize_t offset, const char* data, Py_ssize_t size, list ops
    ) except -1:
        # `data` holds the bytes of `owner` from `offset` on.
        cdef Py_ssize_t at = 0, end
        cdef Py_ssize_t known = -1  # start of the last line read here
        cdef Place place
        cdef Publishes row = None
        cdef const char* lf
        if self._gathered is not None:
            at = self._take_payload(data, size, ops)
        elif PyBytes_GET_SIZE(self._rest):
            at = self._finish_line(data, size, ops)
        while at < size:
            if known >= 0 and size - at >= place.length and memcmp(data + at, data + known, place.length) == 0:
                shift(&place, at - known)
                # After any other operation a new row starts; its first message has no previous control line.
                place.same = row is not None
            elif read_line(self._kind, data + at, size - at, &place) and self._is_within(&place):
                shift(&place, at)
            else:
                known = -1
                row = None
                lf = <const char*>memchr(data + at, LF, size - at)
                if lf == NULL:
                    self._keep_start(cut(data, at, size - at))
                    return 0
                end = lf - data + 1
                at = self._other_line(cut(data, at, end - at), data, end, size, ops)
                continue
            known = at
            end = at + place.length + place.total
            if end + 2 > size:
                self._begin_payload(&place, data, at, size)
                return 0
            if data[end] != CR or data[end + 1] != LF:
                raise no_end(place.total)
            if self._batches:
                if row is None:
                    row = new_row(owner, offset)
                    ops.append(row)
                row._add(&place)
            else:
                ops.append(self._op(data, &place))
            at = end + 2
        return 0

    cdef inline bint _is_within(self, Place* place) noexcept:
        # The grammar refuses a line that may be too long and a payload that is too large.
        return place.length <= self._max_control_line and place.total <= self._max_payload

    cdef object _op(self, const char* data, Place* place):
        cdef Py_ssize_t start = <Py_ssize_t>place.line + place.length
        cdef Py_ssize_t header_size = place.header_size, skip
        if self._kind == PUB:
            skip = place.subject + place.subject_size + 1
            return Pub(line_of(data, place), cut(data, skip, start + place.total + 2 - skip))
        subject = self._subject_of(data, place)
        reply = cut(data, place.reply, place.reply_size) if place.reply_size else b""
        header = cut(data, start, header_size) if header_size else b""
        payload = cut(data, start + header_size, place.total - header_size)
        if self._kind == MSG:
            return Msg(subject, cut(data, place.sid, place.sid_size), reply, header, payload)
        return leaf_msg(subject, reply, header, payload)

    cdef bytes _subject_of(self, const char* data, Place* place):
        # Mostly that of the message before.
        if PyBytes_GET_SIZE(self._subject) != place.subject_size or memcmp(
            PyBytes_AS_STRING(self._subject), data + place.subject, place.subject_size
        ) != 0:
            self._subject = cut(data, place.subject, place.subject_size)
        return self._subject

    # control lines

    cdef int _keep_start(self, bytes start) except -1:
        # Keeps an incomplete control line.
        self._rest = self._check_start(start, self._max_control_line)
        return 0

    cdef Py_ssize_t _finish_line(self, const char* data, Py_ssize_t size, list ops) except -1:
        # Completes the control line that began in an earlier read. Returns how many bytes of this read belong to it.
        cdef const char* lf = <const char*>memchr(data, LF, size)
        cdef Py_ssize_t end
        cdef Place place
        if lf == NULL:
            self._keep_start(self._rest + cut(data, 0, size))
            return size
        end = lf - data + 1
        text = self._rest + cut(data, 0, end)
        self._rest = b""
        if read_line(self._kind, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &place) and self._is_within(&place):
            self._begin_payload(&place, PyBytes_AS_STRING(text), 0, PyBytes_GET_SIZE(text))
            return end + self._take_payload(data + end, size - end, ops)
        return self._other_line(text, data, end, size, ops)

    cdef Py_ssize_t _other_line(
        self, bytes text, const char* data, Py_ssize_t at, Py_ssize_t size, list ops
    ) except -1:
        # Hands a line that is not read here, whose bytes in `data` end at `at`, to the grammar. Returns where the next
        # line begins.
        op = None
        if text == b"PING\r\n":
            op = PING_OP
        elif text == b"PONG\r\n":
            op = PONG_OP
        elif text == b"+OK\r\n":
            op = OK_OP
        else:
            if PyBytes_GET_SIZE(text) <= self._max_control_line:
                op = self._quick(text)
            if op is None or (isinstance(op, FrameLine) and op.total > self._max_payload):
                op = self._parse_line(text, self._max_control_line, self._max_payload)
        if not isinstance(op, FrameLine):
            ops.append(op)
            return at
        self._line = op
        self._gathered = bytearray(op.prefix)
        self._gathered += text[op.skip :]
        self._missing = op.total + 2
        self._received = PyBytes_GET_SIZE(text)
        return at + self._take_payload(data + at, size - at, ops)

    # payloads in pieces

    cdef int _begin_payload(self, Place* place, const char* data, Py_ssize_t at, Py_ssize_t size) except -1:
        self._place = place[0]
        shift(&self._place, -at)
        self._place.same = False
        self._gathered = bytearray()
        extend(self._gathered, data + at, size - at)
        self._missing = at + place.length + place.total + 2 - size
        self._received = size - at
        return 0

    cdef Py_ssize_t _take_payload(self, const char* data, Py_ssize_t size, list ops) except -1:
        # Appends what the incomplete payload still needs. Returns the number of bytes used.
        cdef Py_ssize_t taken = min(self._missing, size)
        cdef bytearray gathered = self._gathered
        cdef Py_ssize_t length
        cdef Publishes row
        extend(gathered, data, taken)
        self._missing -= taken
        self._received += taken
        if self._missing:
            return taken
        line = self._line
        self._line = self._gathered = None
        length = PyByteArray_GET_SIZE(gathered)
        if PyByteArray_AS_STRING(gathered)[length - 2] != CR or PyByteArray_AS_STRING(gathered)[length - 1] != LF:
            raise no_end(self._place.total if line is None else line.total)
        if line is not None:
            if not self._after:
                PyByteArray_Resize(gathered, length - 2)
            op = self._make(line, bytes(gathered))
            if not self._batches:
                ops.append(op)
                return taken
            gathered = bytearray((b"HPUB " if line.header_size else b"PUB ") + line.subject + b" " + op.tail)
            length = PyByteArray_GET_SIZE(gathered)
            if not read_line(PUB, PyByteArray_AS_STRING(gathered), length, &self._place):
                raise AssertionError(f"a control line that reads two ways: {line!r}")
        if self._batches:
            row = new_row(gathered, 0)
            row._add(&self._place)
            ops.append(row)
        else:
            ops.append(self._op(PyByteArray_AS_STRING(gathered), &self._place))
        return taken


cdef Publishes new_row(object owner, Py_ssize_t start):
    # Returns a row of publishes in the bytes of `owner` from `start` on.
    cdef Publishes row = Publishes.__new__(Publishes)
    PyObject_GetBuffer(owner, &row._view, PyBUF_SIMPLE)
    row._data = <const char*>row._view.buf + start
    return row
