"""The plain case of a publish, in plain Python: from one client's read straight into other clients' buffers.

Nearly all messages are plain: the publisher may publish there, no mapping applies to the subject, and only ordinary
subscriptions of clients match, alone or as members of queue groups. Then the subscriber's frame is `MSG <subject> <sid>
` followed by the bytes after the subject in the publisher's frame. `FanOut.publish` delivers a run of plain messages
and stops at the first that is not plain; the caller handles that one by the full rules.

`_fan_out.pyx` is the compiled twin. This module runs without a compiler, and tests compare both. The broker's accounts,
connections and subscriptions derive from the classes here, so that the fields used per message are fields of C structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from eyot_wire.frames import FrameLine, Published, Publishes, encode_msg
from eyot_wire.out_buffer import OutBuffer, Traffic

# A destination that gathered this many bytes flushes before the end of the turn. A destination that could not send
# flushes again after as many bytes more. This bounds what a fan-out gathers, and how late a slow consumer is detected.
EARLY_FLUSH: Final = 1024 * 1024

# In a read of at least so many bytes, frames that are at least this long are written from there (compiled twin only).
LONG_ROW_BYTES: Final = 32 * 1024
LONG_TAIL_BYTES: Final = 2048

# Reply subjects that only servers use.
RESERVED_REPLIES: Final = (b"_R_.", b"$JS.ACK.", b"_GR_.")
# Prefix of subjects with a meaning to the broker itself ($JS, $SYS, $SRV, ...).
RESERVED_SUBJECTS: Final = b"$"

# Exceptions: the subjects of key-value and object buckets, which are ordinary streams.
PLAIN_SUBJECTS: Final = (b"$KV.", b"$O.")

# In a reply subject: separates the subject under which a leaf link or an import knows a message.
RENAMES: Final = b"@"

# The header by which a publisher requests a trace of a message.
TRACE_HEADER: Final = b"Nats-Trace-Dest"

S = TypeVar("S")
M = TypeVar("M")


class Match(Struct, Generic[S], eq=False):
    """The subscriptions that one subject reaches. False when there are none.

    `plain` subscriptions each get a message; of each of the `groups` (queue name, members) one member does. `memo` is
    free for the caller's use. `sink` is the ingest queue of the only destination, if that destination has one. Both are
    valid as long as the match is.
    """

    plain: tuple[S, ...]
    groups: tuple[tuple[bytes, tuple[S, ...]], ...] = ()
    memo: Any = None
    sink: IngestQueue | None = None

    def __bool__(self) -> bool:
        return bool(self.plain or self.groups)

    def all(self) -> Iterator[S]:
        """Yield every subscription, members of queue groups included."""
        yield from self.plain
        for _, members in self.groups:
            yield from members


class IngestQueue:
    """The messages of one turn for a destination that is not a connection: a stream, `owner`."""

    __slots__ = ("_messages", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._messages: list[Published] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Published) -> None:
        """Append a message. The caller announces the owner to `mark_dirty` with the first one."""
        self._messages.append(message)

    def take(self) -> list[Published]:
        """Remove and return all messages, in order."""
        messages, self._messages = self._messages, []
        return messages


class Interest:
    """A subscription: its destination `dest`, its `sid` there, and the number of messages `delivered`.

    `slow`: the destination must check each message (limits, filters, no echo). `ingest_queue`: the destination's queue,
    if a message needs no other work than to be appended there.
    """

    __slots__ = ("delivered", "dest", "ingest_queue", "sid", "slow")

    def __init__(self, dest: Any, sid: bytes) -> None:
        self.dest = dest
        self.sid = sid
        self.slow = False
        self.ingest_queue: IngestQueue | None = None
        self.delivered = 0


class Index(Protocol):
    """The subscriptions of an account (`SubList`); `recent` holds the matches of recent subjects."""

    @property
    def recent(self) -> dict[bytes, Match[Any]]: ...

    def match(self, subject: bytes) -> Match[Any]: ...


class Mappings(Protocol):
    """The subject mappings of an account (`MappingTable`); `recent` holds recent answers, None: not mapped.

    A subject that begins with none of `heads`, and is not among the `literal` ones, is not mapped.
    """

    @property
    def heads(self) -> tuple[bytes, ...]: ...

    @property
    def literal(self) -> Mapping[bytes, object]: ...

    @property
    def recent(self) -> dict[bytes, bytes | None]: ...

    def __bool__(self) -> bool: ...

    def maps(self, subject: bytes) -> bool: ...


class PublishAccess(Protocol):
    """What a client may publish; `publish_recent` holds recent answers."""

    @property
    def publish_recent(self) -> dict[bytes, bool]: ...

    def may_publish_always(self, subject: bytes) -> bool: ...


class FanOut:
    """The plain publishes of one account.

    `traffic`: the account's counters. `index`: its subscriptions. `mappings`: its subject mappings; mapped subjects are
    not plain. `random`: 0 <= random() < 1, selects the member of a queue group. `mark_dirty`: called with a destination
    that has bytes to send.
    """

    def __init__(
        self,
        traffic: Traffic,
        index: Index,
        mappings: Mappings,
        random: Callable[[], float],
        mark_dirty: Callable[[Any], None],
    ) -> None:
        self._traffic = traffic
        self._index = index
        self._mappings = mappings
        self._random = random
        self._mark_dirty = mark_dirty
        #: Messages with headers are never plain.
        self.looks_at_headers = False

    def publish(
        self, row: Publishes, at: int, client: OutBuffer, access: PublishAccess | None, no_responders: bool
    ) -> int:
        """Deliver the messages of `row` from index `at` on; return the index of the first one that is not delivered.

        That is the first message that is not plain, or the first after the client was closed; otherwise the row's
        length.

        `access`: what the client may publish, None: everything. `no_responders`: a request without a subscriber is not
        plain, since the server answers it.
        """
        count = len(row)
        while at < count and not client.closed:
            line = row.line(at)
            match = self._plain(line, client, access)
            if match is None or (no_responders and line.reply and not match):
                return at
            run = row.run(at)
            if line.header_size:
                run = self._untraced(row, at, run)
                if not run:
                    return at
            size = run * line.total
            for traffic in (client, self._traffic):
                traffic.in_msgs += run
                traffic.in_bytes += size
            ingest_queue = _ingest_queue_of(match)
            if ingest_queue is not None:
                self._take_in(ingest_queue, line, row, range(at, at + run))
            elif match:
                tails = row.tails(at, run)
                dests = {sub.dest for sub in match.plain}
                if match.groups or len(dests) < len(match.plain):
                    # Each message selects its own member; one selected twice gets consecutive messages.
                    for tail in tails:
                        self._hand_out(match, line, [tail])
                else:
                    self._hand_out(match, line, tails)
            at += run
        return at

    def answer(self, answers: list[tuple[bytes, bytes]], at: int) -> int:
        """Deliver the daemon's own messages (subject, payload) from index `at` on; return the index of the first not delivered.

        A message is delivered when its subject reaches exactly one plain subscription. The result is the list's length
        when all are.
        """
        while at < len(answers):
            subject, payload = answers[at]
            match = self._index.match(subject)
            if len(match.plain) != 1 or match.groups or not _is_plain(match.plain[0], has_header=False):
                return at
            sub = match.plain[0]
            if sub.dest.closed:
                return at
            dest: OutBuffer = sub.dest
            before = len(dest.out)
            dest.out += encode_msg(subject, sub.sid, b"", b"", payload)
            self._sent(sub, 1, len(payload), before)
            at += 1
        return at

    def append(self, sub: Interest, subject: bytes, tails: list[bytes], size: int, has_header: bool) -> bool:
        """Put the frames of messages into the buffer of a client; False: it is closed, and gets none of them.

        `subject`     as this subscriber knows it.
        `tails`       what follows the sid in each frame.
        `size`        bytes of header and payload, of all of them.
        `has_header`  they all have headers, or none has.
        """
        dest: OutBuffer = sub.dest
        if dest.closed:
            return False
        prefix = b"%b %b %b " % (b"HMSG" if has_header else b"MSG", subject, sub.sid)
        before = len(dest.out)
        dest.out += prefix
        dest.out += prefix.join(tails)
        self._sent(sub, len(tails), size, before)
        return True

    def share(self, members: Sequence[tuple[Interest, bytes]], tails: list[bytes], size: int, has_header: bool) -> int:
        """Give each of some messages to one member of a queue group: a random one, or the next that is not closed.

        Returns how many were given; the rest found every member closed. `members` are subscriptions and the subjects that
        they know, `size` the bytes of header and payload of one message; the others as in `append`.
        """
        for given, tail in enumerate(tails):

            def hand(member: tuple[Interest, bytes], tail: bytes = tail) -> bool:
                return self.append(*member, [tail], size, has_header)

            if not serve_group(members, self._random, hand):
                return given
        return len(tails)

    def _take_in(self, ingest_queue: IngestQueue, line: FrameLine, row: Publishes, run: range) -> None:
        if not ingest_queue:
            self._mark_dirty(ingest_queue.owner)
        for index in run:
            ingest_queue.add(Published(line.subject, line.reply, *row.content(index)))

    def _untraced(self, row: Publishes, at: int, run: int) -> int:
        """Return how many messages of a run precede the first one with a trace header."""
        if self.looks_at_headers:
            return 0
        return next((i for i in range(run) if TRACE_HEADER in row.content(at + i)[0]), run)

    def _plain(self, line: FrameLine, client: OutBuffer, access: PublishAccess | None) -> Match[Any] | None:
        """Return the subscriptions that a message reaches; None when the message is not plain."""
        subject = line.subject
        if line.header_size and not client.headers:
            return None
        if subject.startswith(RESERVED_SUBJECTS) and not subject.startswith(PLAIN_SUBJECTS):
            return None
        if line.reply.startswith(RESERVED_REPLIES):
            return None
        if access is not None and not access.may_publish_always(subject):
            return None
        if self._mappings and self._mappings.maps(subject):
            return None
        match = self._index.match(subject)
        if _ingest_queue_of(match) is not None:
            return None if RENAMES in line.reply else match
        has_header = line.header_size > 0
        if not all(_is_plain(sub, has_header) for sub in match.plain):
            return None
        if not all(_is_plain(sub, has_header) for _, members in match.groups for sub in members):
            return None
        return match

    def _hand_out(self, match: Match[Any], line: FrameLine, tails: list[bytes]) -> None:
        has_header = line.header_size > 0
        for sub in match.plain:
            self.append(sub, line.subject, tails, len(tails) * line.total, has_header)
        for _, members in match.groups:
            self.share([(sub, line.subject) for sub in members], tails, line.total, has_header)

    def _sent(self, sub: Interest, count: int, size: int, before: int) -> None:
        """Count delivered messages; `before`: bytes in the destination's `out` before them."""
        dest: OutBuffer = sub.dest
        for traffic in (dest, self._traffic):
            traffic.out_msgs += count
            traffic.out_bytes += size
        sub.delivered += count
        if not dest.dirty:
            dest.dirty = True
            self._mark_dirty(dest)
        if before + EARLY_FLUSH < dest._flush_at or not dest._flush_at:
            dest._flush_at = before + EARLY_FLUSH
        if len(dest.out) > dest._flush_at:
            dest.flush()
            dest._flush_at = len(dest.out) + EARLY_FLUSH


def serve_group(members: Sequence[M], random: Callable[[], float], hand: Callable[[M], bool]) -> bool:
    """Offer a message to the members of a queue group, a random one first, then the next ones, until `hand` returns that one accepted it."""
    start = int(random() * len(members))
    return hand(members[start]) or any(hand(member) for member in (*members[start + 1 :], *members[:start]))


def _ingest_queue_of(match: Match[Any]) -> IngestQueue | None:
    if match.sink is not None or len(match.plain) != 1 or match.groups:
        return match.sink
    ingest_queue: IngestQueue | None = getattr(match.plain[0], "ingest_queue", None)
    return ingest_queue


def _is_plain(sub: Any, has_header: bool) -> bool:
    if not isinstance(sub, Interest) or sub.slow:
        return False
    dest = sub.dest
    return isinstance(dest, OutBuffer) and (dest.headers or not has_header)
