"""The short way for acknowledgements from clients to consumers.

Every acknowledgement is published on a subject of its own (`$JS.ACK.<stream>.<consumer>.<five numbers>`), so that the
remembered routes of other subjects are of no use to it: finding the way to its consumer would cost several times as
much as applying it. A consumer therefore registers the subscription it has for them here, by its literal prefix, and a
publish that finds it hands acknowledgements over directly, all that follow each other in a read at once.

That is right only as long as nobody else subscribes to these subjects (a client listening on `>`, a leaf link). The
account tells of every subscription that comes and goes; whether others touch a prefix is looked up when the first acknowledgement for
it comes, and forgotten when they change, so that neither many consumers nor many others make anything slow.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from eyot_wire.jetstream.ack import PREFIX
from eyot_wire.pattern_set import PatternSet
from eyot_wire.subject import overlaps

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.subscription import Subscription

#: Tokens behind the prefix: deliveries, stream sequence, consumer sequence, time, pending.
NUMBERS = 5
_ALL = PREFIX + b">"
_TAIL = b".*" * NUMBERS


#: An acknowledgement: its subject, reply and payload.
Ack = tuple[bytes, bytes, bytes]


class AckSink(Protocol):
    """A consumer."""

    def acknowledge(self, acks: Sequence[Ack]) -> None:
        """Take acknowledgements in the order in which they came."""
        ...

    def acknowledge_plain(self, sseqs: list[int]) -> None:
        """Take acknowledgements that say no more than that, by the stream sequences that they acknowledge."""
        ...


class AckSinks:
    """The registered subscriptions of one account; an InterestListener of it."""

    def __init__(self, account: "Account") -> None:
        self._sinks: dict[bytes, tuple[Subscription, AckSink]] = {}
        self._others: set[Subscription] = set()
        self._patterns = PatternSet()  # theirs
        #: what was looked up since the last change
        self._direct: dict[bytes, AckSink] = {}
        self._touched: set[bytes] = set()
        account.add_interest_listener(self)
        for sub in account.sublist.overlapping(_ALL):
            self.sub_added(sub)

    def find(self, subject: bytes) -> AckSink | None:
        """The only one whom an acknowledgement on `subject` can reach, if that is certain."""
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
        """What all acknowledgement subjects of a consumer begin with, by one of them."""
        return subject.rsplit(b".", NUMBERS)[0] + b"."

    def register(self, sub: "Subscription", sink: AckSink) -> None:
        """Who subscribed `sub` (of shape `$JS.ACK.<stream>.<consumer>.*.*.*.*.*`) may be reached directly."""
        prefix = sub.subject.removesuffix(_TAIL)
        self._sinks[prefix] = (sub, sink)
        self.sub_removed(sub)
        self._direct.pop(prefix, None)
        self._touched.discard(prefix)

    def unregister(self, sub: "Subscription") -> None:
        prefix = sub.subject.removesuffix(_TAIL)
        known = self._sinks.get(prefix)
        if known is not None and known[0] is sub:
            del self._sinks[prefix]
            self._direct.pop(prefix, None)
            self._touched.discard(prefix)

    # -- InterestListener ------------------------------------------------------------------------------------------

    def sub_added(self, sub: "Subscription") -> None:
        if overlaps(sub.subject, _ALL):
            self._others.add(sub)
            self._patterns.add(sub.subject)
            self._forget()

    def sub_removed(self, sub: "Subscription") -> None:
        if sub in self._others:
            self._others.remove(sub)
            self._patterns.discard(sub.subject)
            self._forget()

    def weight_changed(self, sub: "Subscription", previous: int) -> None:
        """Whether others listen does not depend on how many they are."""

    def _forget(self) -> None:
        """The others changed."""
        self._direct.clear()
        self._touched.clear()


def sinks_of(account: "Account") -> AckSinks:
    """The account's AckSinks, made on first use."""
    if account.ack_sinks is None:
        account.ack_sinks = AckSinks(account)
    return account.ack_sinks
