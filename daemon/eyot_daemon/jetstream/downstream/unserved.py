"""Deliver subjects on which a downstream listens although its consumer is gone.

Deliver subjects are on flash with the downstreams' positions. After a restart of this server, or a long link outage, a
downstream would wait up to 20 s for heartbeats. It gets one with an impossible count of deliveries, and then requests a
new consumer at once.

A consumer that is deleted on request may be the downstream's own wish: it stops listening then. If it goes on listening,
somebody else deleted the consumer, and the downstream is told as well. One that does not listen at the moment (its disk is
full, its policy waits) says nothing by that: only nats-server's mirrors and sources have no other deregistration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from eyot_daemon.jetstream.deliver_subject import idle_heartbeat, interest_of

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import ConsumerPort, StreamCore
    from eyot_daemon.turn.timers import TimerHandle

log = logging.getLogger("eyot.sync")

#: More deliveries than any consumer has made.
NEVER_DELIVERED: Final = 1 << 62
#: A downstream that has its consumer deleted stops listening within this time, seconds. The end of its interest may take
#: another lane of the link than its request.
STOPS_WITHIN_S = 0.5


class _Deleted(NamedTuple):
    """A deliver subject whose consumer was deleted on request. `deregisters`: the end of its interest is a deregistration."""

    timer: TimerHandle
    deregisters: bool


class UnservedDownstreams:
    """Watches the deliver subjects of one stream's downstreams. `forget` is called with that of one that does not come back."""

    def __init__(
        self, stream: StreamCore, consumers: Mapping[str, ConsumerPort], forget: Callable[[bytes], None]
    ) -> None:
        self._stream = stream
        self._consumers = consumers
        self._broker = stream.account.broker
        self._watched: set[bytes] = set()
        self._told: set[bytes] = set()
        self._forget = forget
        #: Subjects whose consumer was deleted on request a moment ago. A subset of `_watched`.
        self._deleted: dict[bytes, _Deleted] = {}
        self._dirty = False

    def watch(self, wanted: set[bytes]) -> None:
        """Watch interest in these deliver subjects and no others."""
        interest = interest_of(self._stream.account)
        for subject in self._watched - wanted:
            interest.unwatch(subject, self)
        for subject in wanted - self._watched:
            interest.watch(subject, self)
        self._watched = wanted
        for subject in self._deleted.keys() - wanted:
            self._deleted.pop(subject).timer.cancel()

    def deleted(self, subject: bytes, *, deregisters: bool) -> None:
        """Note that the consumer that delivers to this subject is being deleted on request.

        `deregisters`: the downstream is forgotten if it does not listen any more.
        """
        if not self._stream.account.has_interest(subject):
            if deregisters:
                self._forget(subject)
        elif subject in self._watched and subject not in self._deleted:
            timer = self._stream.timers.call_later(STOPS_WITHIN_S, partial(self._still_listens, subject))
            self._deleted[subject] = _Deleted(timer, deregisters)

    def _still_listens(self, subject: bytes) -> None:
        del self._deleted[subject]
        self.interest_changed()

    def interest_changed(self) -> None:
        """Note a changed interest in a deliver subject; processed when the turn ends."""
        if not self._dirty:
            self._dirty = True
            self._broker.mark_dirty(self)

    def flush(self) -> None:
        self._dirty = False
        account = self._stream.account
        left: list[bytes] = []
        for subject in self._watched:
            if not account.has_interest(subject):
                self._told.discard(subject)
                left += [subject] if subject in self._deleted else []
            elif subject not in self._told and subject not in self._deleted and not self.is_served(subject):
                self._told.add(subject)
                log.info(
                    "%s: the downstream on %s has no consumer any more and is notified",
                    self._stream.name,
                    subject.decode(),
                )
                self.tell_to_ask(subject)
        for subject in left:
            timer, deregisters = self._deleted.pop(subject)
            timer.cancel()
            if deregisters:
                self._forget(subject)

    def tell_to_ask(self, deliver: bytes) -> None:
        """Send a heartbeat that the subscriber of a deliver subject must reject: it then requests a new consumer from its position."""
        stream = self._stream
        stream.account.publish(deliver, header=idle_heartbeat(NEVER_DELIVERED, stream.log.committed_seq))

    def is_served(self, deliver: bytes) -> bool:
        """Return whether a consumer delivers to this subject."""
        subject = deliver.decode("utf-8", "surrogateescape")
        consumers = self._consumers.values()
        return any(each.config.direct and each.config.deliver_subject == subject for each in consumers)
