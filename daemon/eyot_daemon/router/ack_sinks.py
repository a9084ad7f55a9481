"""The fast path of acknowledgements from clients to consumers.

Every acknowledgement has a subject of its own (`$JS.ACK.<stream>.<consumer>.<five numbers>`), so remembered routes do
not help: to find its consumer would cost several times as much as to apply it. A consumer therefore registers its
subscription here by its literal prefix. A publish that finds it passes acknowledgements directly, all consecutive ones
of a read at once.

This is correct only while no other subscription matches these subjects (a client on `>`, a leaf link). The account
reports every added and removed subscription. Whether others overlap a prefix is computed when its first acknowledgement
comes, and dropped when subscriptions change, so that neither many consumers nor many subscriptions slow publishing down.
"""

from collections.abc import Sequence
from typing import Protocol

from eyot_daemon.router.subscription import Subscription
from eyot_wire.jetstream.ack import PREFIX
from eyot_wire.pattern_set import PatternSet
from eyot_wire.subject import overlaps
from eyot_wire.sublist import SubList

#: Tokens after the prefix: deliveries, stream sequence, consumer sequence, time, pending.
NUMBERS = 5
_ALL = PREFIX + b">"
_TAIL = b".*" * NUMBERS


#: An acknowledgement: its subject, reply and payload.
Ack = tuple[bytes, bytes, bytes]


class AckSink(Protocol):
    """A consumer."""

    def acknowledge(self, acks: Sequence[Ack]) -> None:
        """Process acknowledgements in order of arrival."""
        ...

    @property
    def takes_plain_acks(self) -> bool:
        """Return whether `acknowledge_plain` may be called."""
        ...

    def acknowledge_plain(self, sseqs: list[int]) -> None:
        """Process plain acknowledgements, given by the stream sequences that they acknowledge."""
        ...


class AckSinks:
    """The registered subscriptions of one account; an InterestListener of it."""

    def __init__(self, subscriptions: SubList[Subscription]) -> None:
        self._sinks: dict[bytes, tuple[Subscription, AckSink]] = {}
        self._others: set[Subscription] = set()
        self._patterns = PatternSet()  # theirs
        #: results since the last change
        self._direct: dict[bytes, AckSink] = {}
        self._touched: set[bytes] = set()
        for sub in subscriptions.overlapping(_ALL):
            self.sub_added(sub)

    def find(self, subject: bytes) -> AckSink | None:
        """Return the only receiver of an acknowledgement on `subject`, if that is certain."""
        prefix = subject.rsplit(b".", NUMBERS)[0]
        sink = self._direct.get(prefix)
        return self._look_up(prefix) if sink is None and prefix in self._sinks else sink

    def _look_up(self, prefix: bytes) -> AckSink | None:
        if prefix in self._touched:
            return None
        sub, sink = self._sinks[prefix]
        if self._patterns.overlaps(sub.subject):
            self._touched.add(prefix)
            return None
        self._direct[prefix] = sink
        return sink

    @staticmethod
    def prefix_of(subject: bytes) -> bytes:
        """Return the common prefix of a consumer's acknowledgement subjects, from one of them."""
        return subject.rsplit(b".", NUMBERS)[0] + b"."

    def register(self, sub: Subscription, sink: AckSink) -> None:
        """Register `sink`, whose subscription `sub` has the shape `$JS.ACK.<stream>.<consumer>.*.*.*.*.*`."""
        prefix = sub.subject.removesuffix(_TAIL)
        self._sinks[prefix] = (sub, sink)
        self.sub_removed(sub)
        self._direct.pop(prefix, None)
        self._touched.discard(prefix)

    def unregister(self, sub: Subscription) -> None:
        prefix = sub.subject.removesuffix(_TAIL)
        known = self._sinks.get(prefix)
        if known is not None and known[0] is sub:
            del self._sinks[prefix]
            self._direct.pop(prefix, None)
            self._touched.discard(prefix)

    # -- InterestListener ------------------------------------------------------------------------------------------

    def sub_added(self, sub: Subscription) -> None:
        if overlaps(sub.subject, _ALL):
            self._others.add(sub)
            self._patterns.add(sub.subject)
            self._forget()

    def sub_removed(self, sub: Subscription) -> None:
        if sub in self._others:
            self._others.remove(sub)
            self._patterns.discard(sub.subject)
            self._forget()

    def weight_changed(self, sub: Subscription, previous: int) -> None:
        """Whether others listen does not depend on how many they are."""

    def _forget(self) -> None:
        """Drop results after a change of other subscriptions."""
        self._direct.clear()
        self._touched.clear()
