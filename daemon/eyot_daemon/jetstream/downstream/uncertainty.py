"""What is uncertain about a downstream: whether its request is right, and whether its record claims too much.

A downstream that requests confirmed messages may be right: its stream was purged, created again, or restored. But a
nats-server (2.10 to 2.14) that has just become the leader of a stream with several replicas does not know its sources'
positions for up to 0.6 s. If a leaf node connects in that time, it requests everything from the first message on, which
would all be stored twice. So nothing is sent for a second (`SuspectResume`). Then a heartbeat that it must reject makes it
request again, from its present position, and that request is served. Source: nats-server's stream.go, `setLeader`,
`retryDisconnectedSyncConsumers` and `setupSourceConsumers`.

A downstream that was restored from a backup has less than it had confirmed. Until the corrected record is on flash, the
stored one is wrong. If this server loses power in between (a full disk makes that time long), it must not trust the old
record. A marker (`eyot_store.journal.marker`) says so, where a full disk cannot prevent it. A server that finds it set
trusts no record until the downstream has resumed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from eyot_store.journal.marker import Marker

if TYPE_CHECKING:
    from eyot_store.store import Store

#: After this time a new leader knows its position, seconds.
ASK_AFTER_S = 1.0
#: Without a new request by then, the first one is accepted, seconds. nats-server waits two between requests.
BELIEVE_AFTER_S = 6.0


class SuspectResume:
    """One doubtful request. Times are monotonic seconds."""

    __slots__ = ("_ask_at", "_believe_at", "_told")

    def __init__(self, now: float) -> None:
        self._ask_at = now + ASK_AFTER_S
        self._believe_at = now + BELIEVE_AFTER_S
        self._told = False

    @property
    def next_at(self) -> float:
        return self._believe_at if self._told else self._ask_at

    def is_due(self, now: float) -> bool:
        """Return True once: the downstream must now request again."""
        if self._told or now < self._ask_at:
            return False
        self._told = True
        return True

    def is_over(self, now: float) -> bool:
        """Return whether it did not request again: the first request is accepted."""
        return now >= self._believe_at


log = logging.getLogger("eyot.sync")

_NAME = "readers-doubted"


class UncertaintyMarker:
    """The open corrections for all downstreams of one store. `at_start`: records from before the start are uncertain."""

    def __init__(self, store: Store) -> None:
        self._marker = Marker(store.path, _NAME)
        self.at_start = self._marker.is_on
        self._open: set[object] = set()

    def begin(self, doubt: object) -> None:
        """Set the marker: a stored record claims too much, or may do so."""
        if not self._open and not self._marker.turn(on=True):
            log.warning("Losses of downstreams cannot be recorded: the store's directory is not writable")
        self._open.add(doubt)

    def end(self, doubt: object) -> None:
        """Clear a correction: the stored record is right again."""
        if doubt in self._open:
            self._open.discard(doubt)
            if not self._open:
                self._marker.turn(on=False)


_by_store: WeakKeyDictionary[Store, UncertaintyMarker] = WeakKeyDictionary()


def uncertainty_of(store: Store) -> UncertaintyMarker:
    """Return the store's UncertaintyMarker, made on first use."""
    found = _by_store.get(store)
    if found is None:
        found = _by_store[store] = UncertaintyMarker(store)
    return found
