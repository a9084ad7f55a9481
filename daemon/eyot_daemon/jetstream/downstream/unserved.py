"""Deliver subjects on which a downstream listens although its consumer is gone.

Deliver subjects are on flash with the downstreams' positions. After a restart of this server, or a long link outage, a
downstream would wait up to 20 s for heartbeats. It gets one with an impossible count of deliveries, and then requests a
new consumer at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.deliver_subject import idle_heartbeat, interest_of

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import ConsumerPort, StreamCore

log = logging.getLogger("eyot.sync")

#: More deliveries than any consumer has made.
NEVER_DELIVERED: Final = 1 << 62


class UnservedDownstreams:
    """Watches the deliver subjects of one stream's downstreams."""

    def __init__(self, stream: StreamCore, consumers: Mapping[str, ConsumerPort]) -> None:
        self._stream = stream
        self._consumers = consumers
        self._broker = stream.account.broker
        self._watched: set[bytes] = set()
        self._told: set[bytes] = set()
        self._dirty = False

    def watch(self, wanted: set[bytes]) -> None:
        """Watch interest in these deliver subjects and no others."""
        interest = interest_of(self._stream.account)
        for subject in self._watched - wanted:
            interest.unwatch(subject, self)
        for subject in wanted - self._watched:
            interest.watch(subject, self)
        self._watched = wanted

    def interest_changed(self) -> None:
        """Note a changed interest in a deliver subject; processed when the turn ends."""
        if not self._dirty:
            self._dirty = True
            self._broker.mark_dirty(self)

    def flush(self) -> None:
        self._dirty = False
        account = self._stream.account
        for subject in self._watched:
            if not account.has_interest(subject):
                self._told.discard(subject)
            elif subject not in self._told and not self.is_served(subject):
                self._told.add(subject)
                log.info(
                    "%s: the downstream on %s has no consumer any more and is notified",
                    self._stream.name,
                    subject.decode(),
                )
                self.tell_to_ask(subject)

    def tell_to_ask(self, deliver: bytes) -> None:
        """Send a heartbeat that the subscriber of a deliver subject must reject: it then requests a new consumer from its position."""
        stream = self._stream
        stream.account.publish(deliver, header=idle_heartbeat(NEVER_DELIVERED, stream.log.committed_seq))

    def is_served(self, deliver: bytes) -> bool:
        """Return whether a consumer delivers to this subject."""
        subject = deliver.decode("utf-8", "surrogateescape")
        consumers = self._consumers.values()
        return any(each.config.direct and each.config.deliver_subject == subject for each in consumers)
