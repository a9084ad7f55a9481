# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The plain case of a publish in C: the compiled twin of fan_out.py, which documents the classes.

What `publish` finds out about a message (its subscriptions, and that the message is plain) holds for the following
messages with the same control line. The subscriptions hold for messages with the same subject. Both become void when
Python code runs that may change interest: a destination's `flush`.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from eyot_wire._frame_scanner cimport Place, Publishes
from eyot_wire._out_buffer cimport OutBuffer, Traffic, add_piece, put, write_all

from eyot_wire._frame_scanner import PLACE_BYTES
from eyot_wire.fan_out import (
    EARLY_FLUSH,
    LONG_ROW_BYTES,
    LONG_TAIL_BYTES,
    PLAIN_SUBJECTS,
    RENAMES,
    RESERVED_REPLIES,
    RESERVED_SUBJECTS,
    TRACE_HEADER,
)
from eyot_wire.frames import Published

cdef extern from "string.h" nogil:
    void* memrchr(const void* text, int byte, size_t size)
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

if PLACE_BYTES != sizeof(Place):
    # Cython compares the sizes of classes, not those of the structs behind the pointers.
    raise ImportError("_fan_out was not compiled with this _frame_scanner")

cdef Py_ssize_t LONG_TAIL = LONG_TAIL_BYTES
cdef Py_ssize_t LONG_ROW = LONG_ROW_BYTES
cdef Py_ssize_t FLUSH_AT = EARLY_FLUSH
cdef tuple REPLIES = RESERVED_REPLIES
cdef bytes TRACED = TRACE_HEADER
cdef char RESERVED_START = RESERVED_SUBJECTS[0]
cdef tuple PLAIN = PLAIN_SUBJECTS
cdef char RENAMING = RENAMES[0]
cdef bytes STAR = b"*"
cdef bytes REST = b">"
cdef bytes ANY_LAST = b" *"
cdef type MESSAGE = Published  # a tuple, built here field by field


cdef class Match:
    cdef readonly tuple plain
    cdef readonly tuple groups
    cdef public object memo
    cdef public object sink

    def __init__(self, tuple plain not None, tuple groups not None=(), memo=None, sink=None):
        self.plain = plain
        self.groups = groups
        self.memo = memo
        self.sink = sink

    def __class_getitem__(cls, item):
        return cls

    def __bool__(self):
        return PyTuple_GET_SIZE(self.plain) > 0 or PyTuple_GET_SIZE(self.groups) > 0

    def all(self):
        found = list(self.plain)
        for _, members in self.groups:
            found += members
        return iter(found)


cdef class IngestQueue:
    cdef readonly object owner
    cdef list _messages

    def __init__(self, owner):
        self.owner = owner
        self._messages = []

    def __len__(self):
        return PyList_GET_SIZE(self._messages)

    def add(self, message):
        self._messages.append(message)

    def take(self):
        cdef list messages = self._messages
        self._messages = []
        return messages


cdef class Interest:
    cdef readonly object dest
    cdef readonly bytes sid
    cdef public bint slow
    cdef public object ingest_queue
    cdef public long long delivered

    def __init__(self, dest, bytes sid not None):
        self.dest = dest
        self.sid = sid
        self.slow = False
        self.delivered = 0


include "untracked.pxi"
include "plain_case.pxi"


cdef class FanOut:
    cdef Traffic _traffic
    cdef object _index
    cdef dict _literals
    cdef dict _inboxes
    cdef dict _patterns
    cdef object _mappings
    cdef tuple _mapped_heads  # what the mappings of wildcard sources begin with
    cdef dict _mapped_literals
    cdef object _random
    cdef object _mark_dirty
    cdef public bint looks_at_headers
    cdef unsigned int _passed  # subjects whose match was computed and not remembered
    cdef bint _flushed  # a destination has flushed: what was found out before is void
    cdef bytes _prefix  # of the last subject looked up as an inbox; None: not known, or void
    cdef object _of_prefix  # the only subscription to `<prefix>.*`, if it is in no queue group; None: there is none such
    cdef list _writing  # destinations with pieces; empty between calls
    cdef bint _is_long  # the row is worth a system call of its own for each destination

    def __init__(self, Traffic traffic not None, index, mappings, random, mark_dirty):
        self._traffic = traffic
        self._index = index
        self._literals, self._inboxes, self._patterns = getattr(index, "parts", ({}, {}, {}))
        self._mappings = mappings
        self._random = random
        self._mark_dirty = mark_dirty
        self._writing = []

    def publish(
        self, Publishes row not None, Py_ssize_t at, OutBuffer client not None, access, bint no_responders
    ):
        cdef Traffic traffic = self._traffic
        cdef long long msgs = 0, size = 0
        cdef Py_ssize_t count = row._count
        cdef const char* data = row._data
        cdef Place* place
        cdef Match match = None
        cdef Match checked = None  # the last match found to be plain, for messages with headers and without
        cdef bint checked_headers = False
        cdef bytes subject = None
        cdef bytes reply = None
        cdef IngestQueue ingest_queue = None
        cdef IngestQueue gathers = None  # the only stream of a subject that is not remembered
        cdef Interest only = None  # the only subscription of an inbox
        cdef bint reaches = False
        cdef PyObject* known
        cdef object mappings = None
        if not 0 <= at <= count:
            raise IndexError(at)
        self._flushed = True
        self._is_long = row._view.len - (row._data - <const char*>row._view.buf) >= LONG_ROW
        try:
            while at < count and not client.closed:
                place = &row._places[at]
                if place.header_size and (self.looks_at_headers or is_traced(data, place)):
                    break
                if self._flushed or not place.same:
                    if self._flushed:
                        self._flushed = False
                        match = checked = subject = only = gathers = None
                        self._prefix = self._of_prefix = None
                        mappings = self._mappings if self._mappings else None
                        if mappings is not None:
                            self._mapped_heads = mappings.heads
                            self._mapped_literals = mappings.literal
                    if place.header_size and not client.headers:
                        break
                    if place.reply_size and is_reserved_reply(data + place.reply, place.reply_size):
                        break
                    if (
                        subject is None
                        or PyBytes_GET_SIZE(subject) != place.subject_size
                        or memcmp(PyBytes_AS_STRING(subject), data + place.subject, place.subject_size) != 0
                    ):
                        subject = PyBytes_FromStringAndSize(data + place.subject, place.subject_size)
                        if is_reserved(data + place.subject, place.subject_size) or not self._may_publish(subject, access, mappings):
                            break
                        only = gathers = None
                        reaches = True
                        known = PyDict_GetItemWithError(<dict?>self._index.recent, subject)
                        if known == NULL:
                            only = self._inbox(subject)
                            if only is None:
                                gathers = self._lone_ingest_queue(subject)
                        if only is None and gathers is None:
                            match = <Match?>(self._index.match(subject) if known == NULL else <object>known)
                            reaches = PyTuple_GET_SIZE(match.plain) > 0 or PyTuple_GET_SIZE(match.groups) > 0
                    ingest_queue = None
                    if only is not None:
                        if not is_plain(only, place.header_size > 0):
                            break
                    elif gathers is not None:
                        if memchr(data + place.reply, RENAMING, place.reply_size) != NULL:
                            break
                        ingest_queue = gathers
                        reply = PyBytes_FromStringAndSize(data + place.reply, place.reply_size)
                    elif reaches and (checked is not match or checked_headers != (place.header_size > 0)):
                        if is_plain_match(match, place.header_size > 0):
                            checked = match
                            checked_headers = place.header_size > 0
                        else:
                            ingest_queue = ingest_queue_of(match)
                            if ingest_queue is None or memchr(data + place.reply, RENAMING, place.reply_size) != NULL:
                                break
                            reply = PyBytes_FromStringAndSize(data + place.reply, place.reply_size)
                    if not reaches and no_responders and place.reply_size:
                        break
                at += 1
                msgs += 1
                size += place.total
                if only is not None:
                    self._append(only, data, place)
                elif ingest_queue is not None:
                    self._take_in(ingest_queue, subject, reply, data, place)
                elif reaches:
                    self._hand_out(match, data, place)
        finally:
            self._prefix = self._of_prefix = None
            if PyList_GET_SIZE(self._writing):
                self._write_pieces()
            client.in_msgs += msgs
            client.in_bytes += size
            traffic.in_msgs += msgs
            traffic.in_bytes += size
        return at

    def answer(self, list answers not None, Py_ssize_t at):
        cdef Match match
        cdef Interest sub = None
        cdef bytes subject = None
        cdef bytes to, payload
        cdef tuple answer
        if not 0 <= at <= PyList_GET_SIZE(answers):
            raise IndexError(at)
        self._flushed = True
        while at < PyList_GET_SIZE(answers):
            answer = <tuple?><object>PyList_GET_ITEM(answers, at)
            if PyTuple_GET_SIZE(answer) != 2:
                raise ValueError("an answer is subject and payload")
            to = <bytes?><object>PyTuple_GET_ITEM(answer, 0)
            payload = <bytes?><object>PyTuple_GET_ITEM(answer, 1)
            if to is None or payload is None:
                raise TypeError("an answer is subject and payload")
            if (
                self._flushed
                or PyBytes_GET_SIZE(to) != PyBytes_GET_SIZE(subject)
                or memcmp(PyBytes_AS_STRING(to), PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(to)) != 0
            ):
                self._flushed = False
                self._prefix = self._of_prefix = None
                subject = to
                sub = None
                if PyDict_GetItemWithError(<dict?>self._index.recent, subject) == NULL:
                    sub = self._inbox(subject)
                if sub is None:
                    match = self._match(subject)
                    if PyTuple_GET_SIZE(match.plain) != 1 or PyTuple_GET_SIZE(match.groups):
                        break
                    if not isinstance(<object>PyTuple_GET_ITEM(match.plain, 0), Interest):
                        break
                    sub = <Interest>PyTuple_GET_ITEM(match.plain, 0)
                if not is_plain(sub, False):
                    break
            if (<OutBuffer?>sub.dest).closed:
                break
            self._send_own(sub, subject, payload)
            at += 1
        self._prefix = self._of_prefix = None
        return at

    def append(self, Interest sub not None, bytes subject not None, list tails not None, Py_ssize_t size, bint has_header):
        return self._append_tails(sub, subject, tails, 0, PyList_GET_SIZE(tails), size, has_header)

    def share(self, members not None, list tails not None, Py_ssize_t size, bint has_header):
        cdef tuple among = tuple(members)
        cdef tuple member
        cdef Py_ssize_t count = PyTuple_GET_SIZE(among), given, start, step
        for given in range(PyList_GET_SIZE(tails)):
            start = <Py_ssize_t>(<double>self._random() * count)
            for step in range(count):
                member = <tuple?><object>PyTuple_GET_ITEM(among, (start + step) % count)
                if self._append_tails(<Interest?>member[0], <bytes?>member[1], tails, given, given + 1, size, has_header):
                    break
            else:
                return given
        return PyList_GET_SIZE(tails)

    cdef bint _append_tails(
        self, Interest sub, bytes subject, list tails, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size, bint headers
    ) except -1:
        # Flushes of other destinations have run: nothing is taken for granted about the fields.
        cdef OutBuffer dest = <OutBuffer?>sub.dest
        cdef bytearray out = dest.out
        cdef bytes sid = sub.sid
        cdef bytes tail
        cdef Py_ssize_t before, index, lead, more
        cdef char* to
        if dest.closed:
            return False
        if out is None or sid is None or subject is None:
            raise TypeError("a buffer, a sid and a subject are needed")
        if stop > PyList_GET_SIZE(tails):
            raise IndexError(stop)
        lead = 4 + headers + PyBytes_GET_SIZE(subject) + 1 + PyBytes_GET_SIZE(sid) + 1
        more = (stop - start) * lead
        for index in range(start, stop):
            tail = <bytes?><object>PyList_GET_ITEM(tails, index)
            if tail is None:
                raise TypeError("a tail is bytes")
            more += PyBytes_GET_SIZE(tail)
        before = PyByteArray_GET_SIZE(out)
        PyByteArray_Resize(out, before + more)
        to = PyByteArray_AS_STRING(out) + before
        for index in range(start, stop):
            tail = <bytes><object>PyList_GET_ITEM(tails, index)
            to = put(to, b"HMSG ", 5) if headers else put(to, b"MSG ", 4)
            to = put(to, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
            to = put(to, b" ", 1)
            to = put(to, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
            to = put(to, b" ", 1)
            to = put(to, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))
        self._sent(sub, dest, stop - start, size, before, more)
        return True

    cdef bint _may_publish(self, bytes subject, access, mappings) except -1:
        cdef PyObject* known
        if access is not None:
            known = PyDict_GetItemWithError(<dict?>access.publish_recent, subject)
            if not (access.may_publish_always(subject) if known == NULL else <object>known):
                return False
        if mappings is not None:
            if not self._may_be_mapped(subject):
                return True
            known = PyDict_GetItemWithError(<dict?>mappings.recent, subject)
            if mappings.maps(subject) if known == NULL else <object>known is not None:
                return False
        return True

    cdef bint _may_be_mapped(self, bytes subject) except -1:
        cdef bytes head
        for head in self._mapped_heads:
            if (
                PyBytes_GET_SIZE(subject) >= PyBytes_GET_SIZE(head)
                and memcmp(PyBytes_AS_STRING(subject), PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)) == 0
            ):
                return True
        return len(self._mapped_literals) > 0 and PyDict_GetItemWithError(self._mapped_literals, subject) != NULL

    cdef Interest _inbox(self, bytes subject):
        # Returns the subscription to `<prefix>.*` of the client that gave out such a reply subject, if the subject
        # reaches nothing else. A reply subject is mostly used once: to compute and remember its match costs as much as
        # all other work for the answer. The caller knows that the subject is none of the recent ones.
        cdef const char* text = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(subject)
        cdef const char* dot = <const char*>memrchr(text, 46, size)
        cdef PyObject* found
        if dot == NULL or dot == text + size - 1:
            return None
        if (
            self._prefix is None
            or PyBytes_GET_SIZE(self._prefix) != dot - text
            or memcmp(PyBytes_AS_STRING(self._prefix), text, dot - text) != 0
        ):
            self._prefix = PyBytes_FromStringAndSize(text, dot - text)
            found = PyDict_GetItemWithError(self._inboxes, self._prefix)
            self._of_prefix = None if found == NULL or not isinstance(<object>found, Interest) or (<object>found).queue else <object>found
        if self._of_prefix is None or not isinstance((<Interest>self._of_prefix).dest, OutBuffer):
            return None
        if PyDict_GetItemWithError(self._literals, subject) != NULL:
            return None
        if self._patterns:
            dot = <const char*>memchr(text, 46, size)
            first = PyBytes_FromStringAndSize(text, dot - text)
            if first in self._patterns or STAR in self._patterns or REST in self._patterns:
                return None
        return <Interest>self._of_prefix

    cdef IngestQueue _lone_ingest_queue(self, bytes subject):
        # Returns the stream that is the only destination of a subject that is not remembered. Streams with very many
        # subjects would evict everything else from the memory, at many times the cost of another lookup. One subject in
        # 32 is remembered anyway, so that a busy subject soon is.
        cdef const char* text = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(subject)
        cdef const char* dot
        cdef Held held
        if not self._patterns or PyDict_GetItemWithError(<dict?>self._index.recent, subject) != NULL:
            return None
        self._passed += 1
        if self._passed % 32 == 0 or not is_literal_subject(text, size):
            return None
        held.one = NULL
        held.count = 0
        hold(&held, PyDict_GetItemWithError(self._literals, subject))
        dot = <const char*>memrchr(text, 46, size)
        if dot != NULL and self._inboxes:
            hold(&held, PyDict_GetItemWithError(self._inboxes, PyBytes_FromStringAndSize(text, dot - text)))
        collect(self._patterns, text, size, &held)
        if held.count != 1 or not isinstance(<object>held.one, Interest) or (<object>held.one).queue:
            return None
        found = (<Interest>held.one).ingest_queue
        return <IngestQueue>found if isinstance(found, IngestQueue) else None

    cdef Match _match(self, bytes subject):
        cdef PyObject* known = PyDict_GetItemWithError(<dict?>self._index.recent, subject)
        return <Match?>(self._index.match(subject) if known == NULL else <object>known)

    cdef int _hand_out(self, Match match, const char* data, Place* place) except -1:
        cdef Py_ssize_t index, count, start
        cdef tuple members
        cdef tuple plain = match.plain
        for index in range(PyTuple_GET_SIZE(plain)):
            self._append(<Interest>PyTuple_GET_ITEM(plain, index), data, place)
        if PyTuple_GET_SIZE(match.groups):
            for _, members in match.groups:
                count = PyTuple_GET_SIZE(members)
                start = <Py_ssize_t>(<double>self._random() * count)
                for index in range(count):
                    if self._append(<Interest>PyTuple_GET_ITEM(members, (start + index) % count), data, place):
                        break
        return 0

    cdef int _take_in(self, IngestQueue ingest_queue, bytes subject, bytes reply, const char* data, Place* place) except -1:
        cdef Py_ssize_t start = <Py_ssize_t>place.line + place.length
        cdef Py_ssize_t header_size = place.header_size
        cdef bytes header = PyBytes_FromStringAndSize(data + start, header_size)
        cdef bytes payload = PyBytes_FromStringAndSize(data + start + header_size, place.total - header_size)
        if not PyList_GET_SIZE(ingest_queue._messages):
            self._mark_dirty(ingest_queue.owner)
        ingest_queue._messages.append(published(subject, reply, header, payload))
        return 0

    cdef int _send_own(self, Interest sub, bytes subject, bytes payload) except -1:
        cdef OutBuffer dest = <OutBuffer?>sub.dest
        cdef bytearray out = dest.out
        cdef bytes sid = sub.sid
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), before, frame_size, digits_at = 24
        cdef Py_ssize_t rest = size
        cdef char digits[24]
        cdef char* to
        if out is None or sid is None:
            raise TypeError("an outlet without a buffer, or a subscription without a sid")
        while True:
            digits_at -= 1
            digits[digits_at] = <char>(48 + rest % 10)
            rest //= 10
            if not rest:
                break
        before = PyByteArray_GET_SIZE(out)
        frame_size = 4 + PyBytes_GET_SIZE(subject) + 1 + PyBytes_GET_SIZE(sid) + 1 + (24 - digits_at) + 2 + size + 2
        PyByteArray_Resize(out, before + frame_size)
        to = PyByteArray_AS_STRING(out) + before
        to = put(to, b"MSG ", 4)
        to = put(to, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        to = put(to, b" ", 1)
        to = put(to, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        to = put(to, b" ", 1)
        to = put(to, digits + digits_at, 24 - digits_at)
        to = put(to, b"\r\n", 2)
        to = put(to, PyBytes_AS_STRING(payload), size)
        put(to, b"\r\n", 2)
        self._sent(sub, dest, 1, size, before, frame_size)
        return 0

    cdef bint _append(self, Interest sub, const char* data, Place* place) except -1:
        # Appends the frame for one subscription, unless its destination is closed. Python code (marks, flushes) has run
        # since the match was found to be plain, and any code may set the fields: check them before using them as C
        # values.
        cdef OutBuffer dest = <OutBuffer?>sub.dest
        cdef bytearray out = dest.out
        cdef bytes sid = sub.sid
        cdef Py_ssize_t before, sid_size
        cdef Py_ssize_t tail = <Py_ssize_t>place.subject + place.subject_size + 1
        cdef Py_ssize_t tail_size = <Py_ssize_t>place.line + place.length + place.total + 2 - tail
        cdef bint headers = place.header_size > 0
        cdef bint stays = self._is_long and tail_size >= LONG_TAIL and dest.fd >= 0
        cdef char* to
        if dest.closed:
            return False
        if out is None or sid is None:
            raise TypeError("an outlet without a buffer, or a subscription without a sid")
        before = PyByteArray_GET_SIZE(out)
        sid_size = PyBytes_GET_SIZE(sid)
        PyByteArray_Resize(out, before + 4 + headers + place.subject_size + 1 + sid_size + 1 + (0 if stays else tail_size))
        to = PyByteArray_AS_STRING(out) + before
        to = put(to, b"HMSG ", 5) if headers else put(to, b"MSG ", 4)
        to = put(to, data + place.subject, place.subject_size)
        to = put(to, b" ", 1)
        to = put(to, PyBytes_AS_STRING(sid), sid_size)
        to = put(to, b" ", 1)
        if stays:
            self._add_piece(dest, data + tail, tail_size)
            self._sent(sub, dest, 1, place.total, before, 0)
            return True
        put(to, data + tail, tail_size)
        self._sent(sub, dest, 1, place.total, before, tail_size)
        return True

    cdef int _add_piece(self, OutBuffer dest, const char* data, Py_ssize_t size) except -1:
        # Has the bytes follow what `out` holds. They are written, or copied into `out`, before `publish` returns and
        # before Python code runs that may use `out`.
        if dest._piece_count == 0:
            self._writing.append(dest)
        if add_piece(dest, data, size):
            self._write_pieces()
        return 0

    cdef int _write_pieces(self) except -1:
        cdef list writing = self._writing
        self._writing = []
        return write_all(writing)

    cdef int _sent(
        self, Interest sub, OutBuffer dest, Py_ssize_t count, Py_ssize_t size, Py_ssize_t before, Py_ssize_t more
    ) except -1:
        # Counts messages of `size` bytes together. `out` held `before` bytes before them and received at least `more` bytes.
        dest.out_msgs += count
        dest.out_bytes += size
        self._traffic.out_msgs += count
        self._traffic.out_bytes += size
        sub.delivered += count
        if not dest.dirty:
            dest.dirty = True
            self._mark_dirty(dest)
        if before + FLUSH_AT < dest._flush_at or dest._flush_at == 0:
            dest._flush_at = before + FLUSH_AT
        if before + more > dest._flush_at:
            if PyList_GET_SIZE(self._writing):
                self._write_pieces()
            dest.flush()
            dest._flush_at = PyByteArray_GET_SIZE(dest.out) + FLUSH_AT
            self._flushed = True
        return 0
