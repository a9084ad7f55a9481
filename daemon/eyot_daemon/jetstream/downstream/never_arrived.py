"""Messages that left a stream before a downstream had confirmed them: counts and sequences, by downstream and reason.

Limits, ages, purges, rollups and deletions remove messages whether or not a mirror or source elsewhere has them. The
log reports each such removal (`LogRemovals.on_unconfirmed`); the record is written in the same transaction as the
removal itself.

A message that was never sent never arrives: it counts at once. A message that was sent may have arrived anyway: it
stays open until the downstream confirms it (it is on flash there), or resumes after an earlier message (it did not
arrive).

A removal that fails leaves its messages in the stream. A hidden consumer that has gone on behind them meanwhile does
not send them any more: they never arrive, unless the downstream resumes before them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from eyot_store.journal.losses import gone_in, gone_position
from eyot_store.log.removals import UNWATCHED
from eyot_wire.status import NeverArrivedStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.deliveries import Deliveries
    from eyot_daemon.jetstream.downstream.downstream import Delivered
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store import Log
    from eyot_store.errors import StoreError
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.sync")

#: Prefix of the keys of losses; the rest is the downstream's own key.
LOST_KEY = b"eyot.lost."
#: Beyond this many ranges of sequences, the closest are joined.
RANGES_MAX = 16
#: The reason for losses of a damaged store.
DAMAGE = "damage"
#: The key for losses of a damaged store, for downstreams that are met later.
_UNMET = b""
#: Messages and ranges that may have arrived are kept one by one up to this number; beyond, the oldest are joined, and when a downstream
#: confirms a part of a joined range the count may be too high. One takes about 20 bytes of the record.
OPEN_MAX = 512
#: Messages that are checked one by one before their removal.
_READ_BYTES = 4 << 20
#: The shortest interval between log lines while messages are being lost, seconds.
LOGGED_EVERY_S = 60.0

Range = tuple[int, int]


class Dropped(msgspec.Struct, array_like=True, frozen=True):
    """Losses of one reason: number of messages, and their ranges (ascending; joined ones may include others)."""

    messages: int = 0
    ranges: tuple[Range, ...] = ()


class Open(msgspec.Struct, array_like=True, frozen=True):
    """Messages from `first` to `last` that left for the reason `why` after they were sent, before they were confirmed."""

    why: str
    first: int
    last: int
    messages: int


class Losses(msgspec.Struct, array_like=True, frozen=True):
    """The losses of one downstream. `never`: what never arrived, by reason. `sent`: what may have arrived.

    `passed`: what was not sent, since its removal was under way; then the removal failed.
    """

    never: dict[str, Dropped] = {}
    sent: tuple[Open, ...] = ()
    passed: tuple[Open, ...] = ()

    @property
    def messages(self) -> int:
        """Number of messages that never arrived."""
        return sum(each.messages for each in self.never.values())

    def dropped(self, why: str, first: int, last: int, messages: int) -> Losses:
        """Return the losses with a further range that never arrived."""
        before = self.never.get(why, Dropped())
        now = Dropped(before.messages + messages, joined((*before.ranges, (first, last)), RANGES_MAX))
        return replace(self, never={**self.never, why: now})

    def dropped_sent(self, each: Open) -> Losses:
        """Return the losses with a further range that was sent and may have arrived."""
        return replace(self, sent=_with(self.sent, each))

    def passed_over(self, each: Open) -> Losses:
        """Return the losses with a further range that is stored and was not sent."""
        return replace(self, passed=_with(self.passed, each))

    def confirmed(self, seq: int) -> Losses:
        """Note that the downstream has what it was sent up to `seq`."""
        if not self.sent or all(each.first > seq for each in self.sent):
            return self
        left = [
            each if each.first > seq else Open(each.why, seq + 1, each.last, min(each.messages, each.last - seq))
            for each in self.sent
            if each.last > seq
        ]
        return replace(self, sent=tuple(left))

    def damaged(self, first: int, last: int) -> Losses:
        """Note that a damaged store lost these messages, which may have arrived before."""
        known = [(each.first, each.last) for each in self.sent if each.why == DAMAGE]
        if any(low <= first and last <= high for low, high in (*known, *self.never.get(DAMAGE, Dropped()).ranges)):
            return self
        return self.dropped_sent(Open(DAMAGE, first, last, last + 1 - first))

    def unreadable(self, seq: int) -> Losses:
        """Note that a damaged message is passed over, possibly once more."""
        known = self.never.get(DAMAGE, Dropped()).ranges
        return self if any(low <= seq <= high for low, high in known) else self.dropped(DAMAGE, seq, seq, 1)

    def asked_after(self, seq: int) -> Losses:
        """Note that the downstream resumes after `seq`: later messages that it was sent did not arrive.

        Earlier ones stay open: it may have them on their way to flash only, and lose them with its power. What it was
        not sent is sent now, or never.
        """
        found = replace(self.confirmed(seq), passed=())
        for each in self.passed:
            if each.first <= seq:
                last = min(each.last, seq)
                found = found.dropped(each.why, each.first, last, min(each.messages, last + 1 - each.first))
        if not found.sent:
            return replace(found, sent=self.sent)
        earlier = [
            each if each.last <= seq else Open(each.why, each.first, seq, each.messages - (each.last - seq))
            for each in self.sent
            if each.first <= seq and (each.last <= seq or each.messages > each.last - seq)
        ]
        for each in found.sent:
            found = found.dropped(each.why, each.first, each.last, each.messages)
        return replace(found, sent=tuple(earlier))


def _with(ranges: tuple[Open, ...], each: Open) -> tuple[Open, ...]:
    """Return `ranges` with one more, joined with the last if it follows it; at most `OPEN_MAX`."""
    found = [*ranges, each]
    if len(found) > 1:
        before = found[-2]
        if before.why == each.why and before.last + 1 == each.first:
            found[-2:] = [Open(each.why, before.first, each.last, before.messages + each.messages)]
    if len(found) > OPEN_MAX:
        a, b = found[0], found[1]
        found[:2] = [Open(b.why, min(a.first, b.first), max(a.last, b.last), a.messages + b.messages)]
    return tuple(found)


def joined(ranges: Iterable[Range], most: int) -> tuple[Range, ...]:
    """Join ranges in order: touching ones, and the closest until there are at most `most`."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    while len(found) > most:
        _, at = min((found[at + 1][0] - found[at][1], at) for at in range(len(found) - 1))
        found[at : at + 2] = [(found[at][0], found[at + 1][1])]
    return tuple(found)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Losses).decode
_NONE = Losses()


class Lacks(NamedTuple):
    """Messages from `first` to `last` that a downstream has not confirmed, and whether they were sent to it."""

    first: int
    last: int
    messages: int
    sent: bool


def counted_of(log: Log, filters: tuple[bytes, ...], lacks: Lacks, subject: bytes | None) -> Iterator[Lacks]:
    """Yield `lacks` with the number of messages, none if there are none.

    `subject`: it is one message on that subject; None: all messages of the range that the filters take. A few that were
    sent and are not all come one by one: which of them arrived is known later.
    """
    if subject is not None:
        yield lacks._replace(messages=1)
        return
    first, last, _, was_sent = lacks
    count = log.count(first, filters) - log.count(last + 1, filters)
    if was_sent and 0 < count < last + 1 - first:
        if count <= OPEN_MAX:
            read = log.read_on(first, max_messages=count, max_bytes=_READ_BYTES, filters=filters, up_to=last)
            if len(read.messages) == count:
                yield from (Lacks(each.seq, each.seq, 1, True) for each in read.messages)
                return
        # What the filters leave out at the end would stay open when all before it is confirmed.
        last = _last_match(log, first, last, filters)
    if count:
        yield lacks._replace(last=last, messages=count)


def _last_match(log: Log, first: int, last: int, filters: tuple[bytes, ...]) -> int:
    """Return the last sequence from `first` to `last` with a message that the filters take; there is one."""
    beyond = log.count(last + 1, filters)
    while first < last:
        middle = (first + last) // 2
        if log.count(middle + 1, filters) == beyond:
            last = middle
        else:
            first = middle + 1
    return first


class Readers(Protocol):
    """The downstreams of a stream, as far as losses need them."""

    def unconfirmed_from(self) -> Iterator[int]:
        """Yield for each downstream the first sequence that it may lack."""
        ...

    def lacking(self, first: int, last: int, subject: bytes | None) -> Iterator[tuple[bytes, Lacks]]:
        """Yield what downstreams have not confirmed of these messages, by key."""
        ...

    def name_of(self, key: bytes) -> str:
        """Return a downstream's name for people."""
        ...

    def request_again(self, key: bytes) -> None:
        """Make a downstream request messages again from where it stands."""
        ...


class NeverArrived:
    """The losses of one stream's downstreams, by the keys of their records."""

    def __init__(self, stream: StreamCore, downstream: Readers, deliveries: Deliveries, met: Iterable[bytes]) -> None:
        self._stream = stream
        self._downstream = downstream
        self._deliveries = deliveries
        positions = stream.log.positions()
        self._committed = {
            key.removeprefix(LOST_KEY): _decode(value) for key, value in positions.items() if key.startswith(LOST_KEY)
        }
        #: Downstreams with losses that could not be written yet.
        self._unwritten: set[bytes] = set()
        for key, value in stream.store.spare_positions.of(stream.log.id).items():
            if key.startswith(LOST_KEY):
                self._committed[key.removeprefix(LOST_KEY)] = _decode(value)
                self._unwritten.add(key.removeprefix(LOST_KEY))
        self._gone = gone_in(positions)
        for first, last in self._gone:
            for key in (_UNMET, *met):
                self._committed[key] = self._committed.get(key, _NONE).damaged(first, last)
                self._unwritten.add(key)
        self._losses = dict(self._committed)
        self._logged_at: dict[bytes, float] = {}
        #: Per downstream: consumers that skipped messages whose removal then failed.
        self._passed_over: dict[bytes, list[Delivered]] = {}
        stream.log.removals.on_unconfirmed = self._removing

    def of(self, key: bytes) -> Losses:
        return self._losses.get(key, _NONE)

    def open_messages(self, key: bytes) -> int:
        """Return the number of messages that may or may not have arrived."""
        return sum(each.messages for each in self.of(key).sent)

    def statuses(self, key: bytes) -> list[NeverArrivedStatus]:
        return [
            NeverArrivedStatus(reason=why, messages=each.messages, sequences=[_span(*one) for one in each.ranges])
            for why, each in sorted(self.of(key).never.items())
        ]

    def watch(self) -> None:
        """Watch removals from the first sequence on that a downstream lacks."""
        self._stream.log.removals.unconfirmed_from = min(self._downstream.unconfirmed_from(), default=UNWATCHED)

    def start(self) -> None:
        """Record what a damaged store lost, since downstreams may lack it, and what a full disk left unwritten."""
        if self._unwritten:
            stream = self._stream
            txn = stream.store.begin()
            self._note(txn).keys |= self._unwritten
            for span in self._gone:
                stream.log.delete_position(txn, gone_position(*span)[0])
            stream.store.submit(txn, lambda _: None)

    # -- changes -----------------------------------------------------------------------------------------------------

    def confirmed(self, key: bytes, seq: int, txn: Txn) -> None:
        self._set(key, self.of(key).confirmed(seq), txn)

    def asked_after(self, key: bytes, seq: int, txn: Txn) -> None:
        self._note(txn).asked[key] = seq
        self._set(key, self.of(key).asked_after(seq), txn)

    def met(self, key: bytes, seq: int, txn: Txn) -> None:
        """Record a new downstream that resumes after `seq`: what it may have received before was lost, too."""
        losses = self.of(key)
        for each in self.of(_UNMET).sent:
            losses = losses.damaged(each.first, each.last)
        if losses.sent:
            self._losses[key] = losses
            self.asked_after(key, seq, txn)

    def skipped(self, key: bytes, why: str, seq: int, txn: Txn) -> None:
        """Record a message that a bridge passes over: its remote does not accept it."""
        self._set(key, self.of(key).dropped(why, seq, seq, 1), txn)

    def damaged(self, key: bytes, seq: int, txn: Txn) -> None:
        """Record a message that is not sent, because it is damaged."""
        self._set(key, self.of(key).unreadable(seq), txn)

    def forget(self, key: bytes, txn: Txn) -> None:
        """Forget a downstream's losses."""
        self._set(key, _NONE, txn)

    def move(self, key: bytes, other: bytes, txn: Txn) -> None:
        """Move a downstream's losses to another key."""
        self._set(other, self.of(key), txn)
        self._set(key, _NONE, txn)

    def _set(self, key: bytes, losses: Losses, txn: Txn) -> None:
        if losses != self.of(key) or key in self._unwritten:
            self._losses[key] = losses
            self._note(txn).keys.add(key)

    def _removing(self, txn: Txn, why: str, first: int, last: int, subject: bytes | None) -> None:
        """Record a removal by the log: one message on `subject`, or all from `first` to `last`."""
        for key, lacks in self._downstream.lacking(first, last, subject):
            note = self._note(txn)
            if key not in note.standing:
                note.standing[key] = [(state, state.delivered_sseq) for state in self._deliveries.at_present(key)]
            note.add(key, Open(why, lacks.first, lacks.last, lacks.messages), sent=lacks.sent)

    def _note(self, txn: Txn) -> _Note:
        found = next((each for each in txn.closing if isinstance(each, _Note) and each.whose is self), None)
        if found is None:
            found = _Note(self)
            txn.closing = (*txn.closing, found)
        return found

    # -- transactions ----------------------------------------------------------------------------------------------

    def seal(self, txn: Txn, note: _Note) -> None:
        """Stage the changes of a transaction."""
        stream = self._stream
        for key, each, sent in note.removed:
            before = self.of(key)
            self._losses[key] = (
                before.dropped_sent(each) if sent else before.dropped(each.why, each.first, each.last, each.messages)
            )
            note.keys.add(key)
        for key in sorted(note.keys):
            losses = note.written[key] = self.of(key)
            if losses == _NONE:
                stream.log.delete_position(txn, LOST_KEY + key)
            else:
                stream.log.put_position(txn, LOST_KEY + key, _encode(losses))

    def settled(self, note: _Note, failure: StoreError | None) -> None:
        spare, stream_id = self._stream.store.spare_positions, self._stream.log.id
        for key, losses in note.written.items():
            if failure is not None:
                # What was staged on top of it has failed, too; the downstream's losses remain.
                before = self._committed.get(key, _NONE)
                if key in note.asked:
                    before = self._committed[key] = before.asked_after(note.asked[key])
                    self._unwritten.add(key)
                    if before != _NONE:
                        # Its next request may be for later messages: this one says what did not arrive.
                        spare.put(stream_id, LOST_KEY + key, _encode(before))
                self._losses[key] = before
                continue
            self._unwritten.discard(key)
            spare.remove(stream_id, LOST_KEY + key)
            if losses.messages > self._committed.get(key, _NONE).messages:
                self._log(key, losses)
            self._committed[key] = losses
        for key, standing in note.standing.items() if failure is not None else ():
            for state, delivered in standing:
                self._stayed(key, state, list(note.between(key, delivered, state.delivered_sseq)))

    def _stayed(self, key: bytes, state: Delivered, passed: list[Open]) -> None:
        """Note what a consumer has passed over of a removal that failed: it does not send that any more.

        The downstream is made to request again.
        """
        if not passed:
            return
        present = self._deliveries.at_present(key)
        if key not in self._deliveries.bridges:
            for one in passed:
                self._losses[key] = self.of(key).passed_over(one)
            self._committed[key] = replace(self._committed.get(key, _NONE), passed=self._losses[key].passed)
            self._unwritten.add(key)
            self._stream.store.spare_positions.put(self._stream.log.id, LOST_KEY + key, _encode(self._committed[key]))
        if any(one is state for one in present):
            before = [one for one in self._passed_over.get(key, ()) if any(one is other for other in present)]
            self._passed_over[key] = [*before, state]
            self._downstream.request_again(key)

    def was_passed_over(self, state: Delivered) -> bool:
        """Return whether this consumer skipped stored messages; an answer to it confirms nothing."""
        return any(state is one for passed in self._passed_over.values() for one in passed)

    def _log(self, key: bytes, losses: Losses) -> None:
        now = self._stream.clock.monotonic()
        if now < self._logged_at.get(key, now):
            return
        self._logged_at[key] = now + LOGGED_EVERY_S
        stream = self._stream
        for each in (one for one in losses.never.items()):
            why, dropped = each
            log.warning(
                "Stream '%s > %s': dropped unconfirmed by %s: %d, sequences %s, reason %s",
                stream.account.name, stream.name, self._downstream.name_of(key), dropped.messages,
                ", ".join(_span(*one) for one in dropped.ranges), why,
            )  # fmt: skip


class _Note:
    """The changes of one transaction in the losses of one stream."""

    def __init__(self, whose: NeverArrived) -> None:
        self.whose = whose
        #: Changed other than by removals.
        self.keys: set[bytes] = set()
        self.asked: dict[bytes, int] = {}
        self.written: dict[bytes, Losses] = {}
        self.removed: list[tuple[bytes, Open, bool]] = []
        #: The consumers of each downstream that lacks something of what is removed, and what each had delivered then.
        self.standing: dict[bytes, list[tuple[Delivered, int]]] = {}

    def add(self, key: bytes, each: Open, *, sent: bool) -> None:
        """Messages are removed that the downstream has not confirmed. In a row they are one entry."""
        if self.removed:
            before_key, before, before_sent = self.removed[-1]
            if (before_key, before.why, before_sent, before.last + 1) == (key, each.why, sent, each.first):
                messages = before.messages + each.messages
                self.removed[-1] = key, Open(each.why, before.first, each.last, messages), sent
                return
        self.removed.append((key, each, sent))

    def between(self, key: bytes, after: int, upto: int) -> Iterator[Open]:
        """Yield what is removed between two positions of a consumer, which has passed over it."""
        for of, each, _ in self.removed:
            if of == key and after < each.last and each.first <= upto:
                first = max(each.first, after + 1)
                yield Open(each.why, first, each.last, min(each.messages, each.last + 1 - first))

    def seal(self, txn: Txn) -> None:
        self.whose.seal(txn, self)

    def settled(self, failure: StoreError | None) -> None:
        self.whose.settled(self, failure)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
