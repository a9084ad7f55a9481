"""Messages that left a stream before a downstream had confirmed them: counted and named, by downstream and reason.

Limits, ages, purges, rollups and deletions take messages whether or not a mirror or source elsewhere has them. The log tells of each
such removal (`Log.on_unconfirmed`); what it says is written in the same transaction as the removal itself.

A message that was never sent never arrives: it is counted at once. A message that was sent may have arrived all the same: it stays
open until the downstream confirms it (it arrived), or asks for what comes after an earlier message (it did not).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from eyot_store.journal.losses import gone_in, gone_position
from eyot_store.log.removals import UNWATCHED
from eyot_wire.status import NeverArrivedStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.errors import StoreError
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.sync")

#: What is kept of a downstream's losses stands under this and the rest of the downstream's own key.
LOST_KEY = b"eyot.lost."
#: More ranges of sequences than this are joined where they lie closest.
RANGES_MAX = 16
#: The reason of what a damaged store lost.
DAMAGE = "damage"
#: Under this key stands what a damaged store lost, for downstreams that are met later.
_UNMET = b""
OPEN_MAX = 32
#: While messages go on being lost that is logged no more often than this, seconds.
LOGGED_EVERY_S = 60.0

Range = tuple[int, int]


class Dropped(msgspec.Struct, array_like=True, frozen=True):
    """What was lost for one reason: how many messages, and between which sequences (ascending; joined ones may span others)."""

    messages: int = 0
    ranges: tuple[Range, ...] = ()


class Open(msgspec.Struct, array_like=True, frozen=True):
    """Messages from `first` to `last` that left for the reason `why` after they were sent, before they were confirmed."""

    why: str
    first: int
    last: int
    messages: int


class Losses(msgspec.Struct, array_like=True, frozen=True):
    """One downstream's. `never`: what never arrived, by reason. `sent`: what may have arrived."""

    never: dict[str, Dropped] = {}
    sent: tuple[Open, ...] = ()

    @property
    def messages(self) -> int:
        """How many never arrived."""
        return sum(each.messages for each in self.never.values())

    def dropped(self, why: str, first: int, last: int, messages: int) -> Losses:
        """With some more that never arrived."""
        before = self.never.get(why, Dropped())
        now = Dropped(before.messages + messages, joined((*before.ranges, (first, last)), RANGES_MAX))
        return replace(self, never={**self.never, why: now})

    def dropped_sent(self, each: Open) -> Losses:
        """With some more that may have arrived."""
        sent = [*self.sent, each]
        if len(sent) > 1:
            before = sent[-2]
            if before.why == each.why and before.last + 1 == each.first:
                sent[-2:] = [Open(each.why, before.first, each.last, before.messages + each.messages)]
        if len(sent) > OPEN_MAX:
            a, b = sent[0], sent[1]
            sent[:2] = [Open(b.why, min(a.first, b.first), max(a.last, b.last), a.messages + b.messages)]
        return replace(self, sent=tuple(sent))

    def confirmed(self, seq: int) -> Losses:
        """The downstream has what it was sent up to `seq`."""
        if not self.sent or all(each.first > seq for each in self.sent):
            return self
        left = [
            each if each.first > seq else Open(each.why, seq + 1, each.last, min(each.messages, each.last - seq))
            for each in self.sent
            if each.last > seq
        ]
        return replace(self, sent=tuple(left))

    def damaged(self, first: int, last: int) -> Losses:
        """A damaged store lost what is between these: it may have arrived before."""
        known = [(each.first, each.last) for each in self.sent if each.why == DAMAGE]
        if any(low <= first and last <= high for low, high in (*known, *self.never.get(DAMAGE, Dropped()).ranges)):
            return self
        return self.dropped_sent(Open(DAMAGE, first, last, last + 1 - first))

    def asked_after(self, seq: int) -> Losses:
        """The downstream asks for what comes after `seq`: what else it was sent did not arrive."""
        found = self.confirmed(seq)
        for each in found.sent:
            found = found.dropped(each.why, each.first, each.last, each.messages)
        return replace(found, sent=()) if found.sent else found


def joined(ranges: Iterable[Range], most: int) -> tuple[Range, ...]:
    """Ranges in order, those that touch as one, and no more than `most` of them."""
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


class NeverArrived:
    """The losses of one stream's downstreams, by the keys of their records."""

    def __init__(self, stream: Stream, downstream: DownstreamTracker, met: Iterable[bytes]) -> None:
        self._stream = stream
        self._downstream = downstream
        positions = stream.log.positions()
        self._committed = {
            key.removeprefix(LOST_KEY): _decode(value) for key, value in positions.items() if key.startswith(LOST_KEY)
        }
        #: What is known of these could not be written down yet.
        self._unwritten: set[bytes] = set()
        self._gone = gone_in(positions)
        for first, last in self._gone:
            for key in (_UNMET, *met):
                self._committed[key] = self._committed.get(key, _NONE).damaged(first, last)
                self._unwritten.add(key)
        self._losses = dict(self._committed)
        self._logged_at: dict[bytes, float] = {}
        stream.log.on_unconfirmed = self._removing

    def of(self, key: bytes) -> Losses:
        return self._losses.get(key, _NONE)

    def open_messages(self, key: bytes) -> int:
        """How many messages it is not known of whether they arrived."""
        return sum(each.messages for each in self.of(key).sent)

    def statuses(self, key: bytes) -> list[NeverArrivedStatus]:
        return [
            NeverArrivedStatus(reason=why, messages=each.messages, sequences=[_span(*one) for one in each.ranges])
            for why, each in sorted(self.of(key).never.items())
        ]

    def watch(self) -> None:
        """Be told of removals from the first sequence on that some downstream lacks."""
        self._stream.log.unconfirmed_from = min(self._downstream.unconfirmed_from(), default=UNWATCHED)

    def start(self) -> None:
        """Write down what a damaged store lost: who copies the stream may lack it."""
        if self._gone:
            stream = self._stream
            txn = stream.store.begin()
            self._note(txn).keys |= self._unwritten
            for span in self._gone:
                stream.log.delete_position(txn, gone_position(*span)[0])
            stream.store.submit(txn, lambda _: None)

    # -- what changes ----------------------------------------------------------------------------------------------

    def confirmed(self, key: bytes, seq: int, txn: Txn) -> None:
        self._set(key, self.of(key).confirmed(seq), txn)

    def asked_after(self, key: bytes, seq: int, txn: Txn) -> None:
        self._note(txn).asked[key] = seq
        self._set(key, self.of(key).asked_after(seq), txn)

    def met(self, key: bytes, seq: int, txn: Txn) -> None:
        """A downstream of which nothing is known asks for what comes after `seq`: what it may have known of it was lost, too."""
        losses = self.of(key)
        for each in self.of(_UNMET).sent:
            losses = losses.damaged(each.first, each.last)
        if losses.sent:
            self._losses[key] = losses
            self.asked_after(key, seq, txn)

    def forget(self, key: bytes, txn: Txn) -> None:
        """What was lost is not to be told any more."""
        self._set(key, _NONE, txn)

    def move(self, key: bytes, other: bytes, txn: Txn) -> None:
        """A downstream is kept under another key from now on."""
        self._set(other, self.of(key), txn)
        self._set(key, _NONE, txn)

    def _set(self, key: bytes, losses: Losses, txn: Txn) -> None:
        if losses != self.of(key) or key in self._unwritten:
            self._losses[key] = losses
            self._note(txn).keys.add(key)

    def _removing(self, txn: Txn, why: str, first: int, last: int, subject: bytes | None) -> None:
        """The log is about to remove messages: one on `subject`, or all from `first` to `last`."""
        for key, lacks in self._downstream.lacking(first, last, subject):
            self._note(txn).add(key, Open(why, lacks.first, lacks.last, lacks.messages), sent=lacks.sent)

    def _note(self, txn: Txn) -> _Note:
        found = next((each for each in txn.closing if isinstance(each, _Note) and each.whose is self), None)
        if found is None:
            found = _Note(self)
            txn.closing = (*txn.closing, found)
        return found

    # -- transactions ----------------------------------------------------------------------------------------------

    def seal(self, txn: Txn, note: _Note) -> None:
        """Stage what a transaction changes."""
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
        for key, losses in note.written.items():
            if failure is not None:
                # What was staged on top of it has failed, too. What a downstream lacks it lacks all the same.
                before = self._committed.get(key, _NONE)
                if key in note.asked:
                    before = self._committed[key] = before.asked_after(note.asked[key])
                    self._unwritten.add(key)
                self._losses[key] = before
                continue
            self._unwritten.discard(key)
            if losses.messages > self._committed.get(key, _NONE).messages:
                self._log(key, losses)
            self._committed[key] = losses

    def _log(self, key: bytes, losses: Losses) -> None:
        now = self._stream.broker.clock.monotonic()
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
    """What one transaction means for the losses of one stream."""

    def __init__(self, whose: NeverArrived) -> None:
        self.whose = whose
        #: Changed, besides by what is removed.
        self.keys: set[bytes] = set()
        self.asked: dict[bytes, int] = {}
        self.written: dict[bytes, Losses] = {}
        self.removed: list[tuple[bytes, Open, bool]] = []

    def add(self, key: bytes, each: Open, *, sent: bool) -> None:
        """Messages are removed that the downstream has not confirmed. In a row they are one entry."""
        if self.removed:
            before_key, before, before_sent = self.removed[-1]
            if (before_key, before.why, before_sent, before.last + 1) == (key, each.why, sent, each.first):
                messages = before.messages + each.messages
                self.removed[-1] = key, Open(each.why, before.first, each.last, messages), sent
                return
        self.removed.append((key, each, sent))

    def seal(self, txn: Txn) -> None:
        self.whose.seal(txn, self)

    def settled(self, failure: StoreError | None) -> None:
        self.whose.settled(self, failure)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
