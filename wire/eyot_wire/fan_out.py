"""The plain case of a publish, in plain Python: from one client's read straight into other clients' buffers.

Nearly all messages of nearly all clients are plain: the publisher may publish there, nothing maps the subject, and only
ordinary subscriptions of clients match, one by one or as members of queue groups. Then the subscriber's frame is
`MSG <subject> <sid> ` and the bytes that followed the subject in the publisher's. `FanOut.publish` hands out plain
messages in a row and stops at the first that is not plain; that one is the caller's, who knows all the rules.

`_fan_out.pyx` does the same in C; this one runs where nothing was compiled, and is what the compiled one is tested against.
The classes here are bases: the broker's own accounts, connections and subscriptions derive from them, so that what the
fan-out touches per message are fields in C structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from eyot_wire.frames import FrameLine, Published, Publishes, encode_msg

# A destination that gathered this much, in bytes, does not wait for the end of the turn to send; nor does one that could
# not send, after as much again: bounds what a fan-out gathers, and how late a destination notices that it is too slow.
EARLY_FLUSH: Final = 1024 * 1024

# Reply subjects that only servers use.
RESERVED_REPLIES: Final = (b"_R_.", b"$JS.ACK.", b"_GR_.")
# What subjects begin with that have a meaning to the broker itself ($JS, $SYS, $SRV, ...).
RESERVED_SUBJECTS: Final = b"$"

# ... but for those of key-value and object buckets, which are streams like any other.
PLAIN_SUBJECTS: Final = (b"$KV.", b"$O.")

# In a reply subject: behind it stands the subject under which a leaf link or an import knows a message.
RENAMES: Final = b"@"

# The header by which a publisher asks what becomes of a message.
TRACE_HEADER: Final = b"Nats-Trace-Dest"

S = TypeVar("S")


class Match(Struct, Generic[S], eq=False):
    """The subscriptions one subject reaches: `plain` ones, and `groups` (queue name, members) of which one member each
    gets a message. False when there are none. `memo` is free for the caller; it lives as long as the match is right, and so does
    `sink`: where messages go when their only destination gathers them."""

    plain: tuple[S, ...]
    groups: tuple[tuple[bytes, tuple[S, ...]], ...] = ()
    memo: Any = None
    sink: IngestQueue | None = None

    def __bool__(self) -> bool:
        return bool(self.plain or self.groups)

    def all(self) -> Iterator[S]:
        """Every subscription, members of queue groups included."""
        yield from self.plain
        for _, members in self.groups:
            yield from members


class IngestQueue:
    """Where a destination that is no connection (a stream, `owner`) gathers messages until the turn ends."""

    __slots__ = ("_messages", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._messages: list[Published] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Published) -> None:
        """Gather one more. Who adds the first announces the owner to `mark_dirty`."""
        self._messages.append(message)

    def take(self) -> list[Published]:
        """All messages, in order; none is left."""
        messages, self._messages = self._messages, []
        return messages


class Traffic:
    """Messages and bytes of header and payload, in and out. What goes into streams or to the daemon's own services is not out."""

    __slots__ = ("in_bytes", "in_msgs", "out_bytes", "out_msgs")

    def __init__(self) -> None:
        self.in_msgs = 0
        self.in_bytes = 0
        self.out_msgs = 0
        self.out_bytes = 0


class OutBuffer(Traffic):
    """A client's connection as a place for frames.

    `out`      what is to be sent to it.
    `headers`  it understands HMSG.
    `closed`   nothing goes there any more.
    `dirty`    it has something to send and was announced to `mark_dirty`; `flush` is what makes it send.
    """

    __slots__ = ("_flush_at", "closed", "dirty", "headers", "out")

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.headers = False
        self.closed = False
        self.dirty = False
        self._flush_at = 0

    def flush(self) -> None:
        """Send what `out` holds."""


class Interest:
    """A subscription: where its messages go (`dest`), its `sid` there, how many were `delivered`.

    `slow`: each message must be looked at by the destination (limits, filters, no echo). `ingest_queue`: where the destination gathers its
    messages, if it does and nothing else is to be done with them.
    """

    __slots__ = ("delivered", "dest", "ingest_queue", "sid", "slow")

    def __init__(self, dest: Any, sid: bytes) -> None:
        self.dest = dest
        self.sid = sid
        self.slow = False
        self.ingest_queue: IngestQueue | None = None
        self.delivered = 0


class Index(Protocol):
    """The subscriptions of an account (`SubList`); `recent` may hold the match of a subject already."""

    @property
    def recent(self) -> dict[bytes, Match[Any]]: ...

    def match(self, subject: bytes) -> Match[Any]: ...


class Mappings(Protocol):
    """The subject mappings of an account (`MappingTable`); `recent` may hold the answer already, None: not mapped."""

    @property
    def recent(self) -> dict[bytes, bytes | None]: ...

    def __bool__(self) -> bool: ...

    def maps(self, subject: bytes) -> bool: ...


class PublishAccess(Protocol):
    """What a client may publish; `publish_recent` may hold the answer already."""

    @property
    def publish_recent(self) -> dict[bytes, bool]: ...

    def may_publish_always(self, subject: bytes) -> bool: ...


class FanOut:
    """The plain publishes of one account.

    `traffic`     counts for the account what comes in and goes out.
    `index`       finds the subscriptions.
    `mappings`    says which subjects are mapped: those are not plain.
    `random`      0 <= random() < 1, draws the member of a queue group.
    `mark_dirty`  is told of a destination that has something to send.
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
        #: Messages with headers are not plain, whatever the headers say.
        self.looks_at_headers = False

    def publish(
        self, row: Publishes, at: int, client: OutBuffer, access: PublishAccess | None, no_responders: bool
    ) -> int:
        """Hand out the messages of `row` from index `at` on; the index of the first that is not plain (or that came
        after the client was closed), the row's length when there is none.

        `access`         what the client may publish, None: everything.
        `no_responders`  requests that reach nobody are not plain: they are answered.
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
                    # Who gets the next one is drawn anew; who gets it twice gets it twice in a row.
                    for tail in tails:
                        self._hand_out(match, line, [tail])
                else:
                    self._hand_out(match, line, tails)
            at += run
        return at

    def answer(self, answers: list[tuple[bytes, bytes]], at: int) -> int:
        """Hand the daemon's own messages (subject, payload) from index `at` on to the one subscription that each reaches; the index
        of the first for which there is none, or more to it than that; the list's length when there is no such."""
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

    def _take_in(self, ingest_queue: IngestQueue, line: FrameLine, row: Publishes, run: range) -> None:
        if not ingest_queue:
            self._mark_dirty(ingest_queue.owner)
        for index in run:
            ingest_queue.add(Published(line.subject, line.reply, *row.content(index)))

    def _untraced(self, row: Publishes, at: int, run: int) -> int:
        """How many of a run come before the first that is to be traced."""
        if self.looks_at_headers:
            return 0
        return next((i for i in range(run) if TRACE_HEADER in row.content(at + i)[0]), run)

    def _plain(self, line: FrameLine, client: OutBuffer, access: PublishAccess | None) -> Match[Any] | None:
        """The subscriptions a message reaches; None if there is more to it than handing it to them."""
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
        for sub in match.plain:
            self._append(sub, line, tails)
        for _, members in match.groups:
            start = int(self._random() * len(members))
            for step in range(len(members)):
                if self._append(members[(start + step) % len(members)], line, tails):
                    break

    def _append(self, sub: Interest, line: FrameLine, tails: list[bytes]) -> bool:
        dest: OutBuffer = sub.dest
        if dest.closed:
            return False
        prefix = b"%b %b %b " % (b"HMSG" if line.header_size else b"MSG", line.subject, sub.sid)
        count = len(tails)
        before = len(dest.out)
        dest.out += prefix
        dest.out += prefix.join(tails)
        self._sent(sub, count, count * line.total, before)
        return True

    def _sent(self, sub: Interest, count: int, size: int, before: int) -> None:
        """Count messages; the destination's `out` held `before` bytes."""
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
