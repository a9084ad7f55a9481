"""Where a message stands in the streams of the account, for a subscriber of MQTT 5 that asks for it.

A SUBSCRIBE with the user property `Eyot-Stream-Context: 1` gets messages with three user properties for each stream that
stored them: `Nats-Stream`, `Nats-Sequence` and `Nats-Time-Stamp`, the names of a republished message's headers. The
sequence of a message is known when it is on flash, and such a subscriber gets it then.

What the stream stored is found by subject and payload, from the sequence on that it had when the message was published.
What a stream did not store (a duplicate, a refusal) comes without its context.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from eyot_store.errors import StoreError
from eyot_wire import headers
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.jetstream.model import ns_to_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.mqtt.session_link import Outgoing
    from eyot_daemon.router.account import Account
    from eyot_store import StoredMessage
    from eyot_wire.mqtt.properties import Properties

REQUEST: Final = ("Eyot-Stream-Context", "1")
STREAM: Final = "Nats-Stream"
SEQUENCE: Final = "Nats-Sequence"
TIME: Final = "Nats-Time-Stamp"
NAMES: Final = frozenset((STREAM, SEQUENCE, TIME))
#: Messages, and their bytes, that wait for their commit to be sent to one connection.
WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 8 << 20
#: Messages of one subject that are looked at for one with the right payload.
LOOK_MAX: Final = 64
#: Sequences of each stream that are remembered as given to a subscription.
CLAIMED_MAX: Final = 1024
#: Subjects whose last sequence is remembered; it only shortens the look.
SUBJECTS_MAX: Final = 4096
#: A queued message and the stream's are one transaction; their times differ by less than this.
SAME_COMMIT_NS: Final = 2_000_000_000

Pairs = tuple[tuple[str, str], ...]


class Place(NamedTuple):
    """A stream that stores a message under `subject`, with a sequence above `since`."""

    stream: Stream
    subject: bytes
    since: int


def is_asked(properties: Properties | None) -> bool:
    """Return whether a SUBSCRIBE asks for the context."""
    return properties is not None and REQUEST in properties.user_properties


def places(account: Account, subject: bytes) -> list[Place]:
    """Return the streams that store a message which is published now."""
    return [
        Place(queue.owner, stored, queue.owner.log.state.last_seq) for queue, stored in account.route(subject).streams()
    ]


def of_delivery(header: bytes, reply: bytes) -> Pairs:
    """Return the context that a message brings along: republished, or delivered by a consumer; () if it has none."""
    if header and STREAM.encode() in header:
        values = [headers.get(header, name.encode()) for name in (STREAM, SEQUENCE, TIME)]
        if all(values):
            return tuple(
                (name, (value or b"").decode("utf-8", "replace"))
                for name, value in zip((STREAM, SEQUENCE, TIME), values, strict=True)
            )
    delivered = decode_ack_reply(reply) if reply else None
    if delivered is None:
        return ()
    return _pairs(delivered.stream.decode("utf-8", "replace"), delivered.stream_seq, delivered.ts_ns)


def of_queued(account: Account, subject: bytes, payload: bytes, ts_ns: int) -> Pairs:
    """Return the context of a message that came from a queue, stored at `ts_ns` together with the streams' messages."""
    found: Pairs = ()
    for place in places(account, subject):
        log = place.stream.log
        try:
            start = log.seq_at_time(ts_ns - SAME_COMMIT_NS)
            best = min(
                (each for each in _same(place, start, payload) if abs(each.ts_ns - ts_ns) <= SAME_COMMIT_NS),
                key=lambda each: abs(each.ts_ns - ts_ns),
                default=None,
            )
        except StoreError:
            continue  # the message is delivered, without what cannot be read
        if best is not None:
            found += _pairs(place.stream.name, best.seq, best.ts_ns)
    return found


def _pairs(stream: str, seq: int, ts_ns: int) -> Pairs:
    return (STREAM, stream), (SEQUENCE, str(seq)), (TIME, ns_to_rfc3339(ts_ns))


def _same(place: Place, start: int, payload: bytes) -> Iterable[StoredMessage]:
    """Yield messages of the place's subject with this payload, from `start` on. Raises StoreError."""
    seq = start
    for _ in range(LOOK_MAX):
        message = place.stream.log.next_for(place.subject, seq)
        if message is None:
            return
        if message.payload == payload:
            yield message
        seq = message.seq + 1


class _Waiting:
    __slots__ = ("missing", "outgoing", "places", "sid")

    def __init__(self, sid: bytes, outgoing: Outgoing, found: list[Place]) -> None:
        self.sid = sid
        self.outgoing = outgoing
        self.places = found
        #: streams whose commit is not through
        self.missing = len(found)


class ContextQueue:
    """The messages of one connection that wait for their sequences, in the order in which they came."""

    def __init__(self, account: Account, send: Callable[[Outgoing], bool], drop: Callable[[str], None]) -> None:
        self._account = account
        self._send = send
        self._drop = drop
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._new: list[_Waiting] = []
        #: sequences that were given to messages of a subscription, by its id and the stream
        self._claimed: dict[tuple[bytes, str], deque[int]] = {}
        #: the last of each subject, and the `since` of its message
        self._last: dict[tuple[bytes, str, bytes], tuple[int, int]] = {}

    def add(self, sid: bytes, outgoing: Outgoing, found: list[Place], *, committed: bool) -> bool:
        """Send a message with its context, once its streams have it on flash. False: dropped, and counted."""
        size = len(outgoing.payload) + len(outgoing.header)
        if len(self._waiting) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            self._drop("full")
            return False
        entry = _Waiting(sid, outgoing, found)
        self._waiting.append(entry)
        self._bytes += size
        if committed:
            entry.missing = 0
            self._drain()
            return True
        if not self._new:
            self._account.broker.mark_dirty(self)
        self._new.append(entry)
        return True

    def flush(self) -> None:
        """End of the turn: the streams hand their messages in now; what the next turn waits for is their commits."""
        self._account.broker.timers.call_later(0.0, self._wait)

    def _wait(self) -> None:
        new, self._new = self._new, []
        for entry in new:
            for place in entry.places:
                place.stream.after_commits(partial(self._through, entry))

    def _through(self, entry: _Waiting, failure: StoreError | None) -> None:
        entry.missing -= 1
        self._drain()

    def _drain(self) -> None:
        while self._waiting and not self._waiting[0].missing:
            entry = self._waiting.popleft()
            outgoing = entry.outgoing
            self._bytes -= len(outgoing.payload) + len(outgoing.header)
            context: Pairs = ()
            for place in entry.places:
                context += self._found(entry.sid, place, outgoing.payload)
            self._send(outgoing._replace(context=context))

    def _found(self, sid: bytes, place: Place, payload: bytes) -> Pairs:
        claimed = self._claimed.setdefault((sid, place.stream.name), deque(maxlen=CLAIMED_MAX))
        key = (sid, place.stream.name, place.subject)
        since, last = self._last.get(key, (0, 0))
        # A message that was published before the last one, and is on flash after it, may stand before it.
        start = max(last, place.since) + 1 if place.since >= since else place.since + 1
        try:
            for message in _same(place, start, payload):
                if message.seq not in claimed:
                    claimed.append(message.seq)
                    if len(self._last) >= SUBJECTS_MAX:
                        self._last.clear()
                    self._last[key] = max(since, place.since), max(last, message.seq)
                    return _pairs(place.stream.name, message.seq, message.ts_ns)
        except StoreError:
            pass  # the message is delivered, without what cannot be read
        return ()

    def end(self) -> None:
        """Forget everything: the connection ended."""
        self._waiting.clear()
        self._new.clear()
        self._bytes = 0
