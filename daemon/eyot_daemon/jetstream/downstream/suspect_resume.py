"""Lets a downstream that requests confirmed messages resume once more before it is served.

Its request may be right: its stream was purged, created again, or restored. But a nats-server (2.10 to 2.14) that has
just become the leader of a stream with several replicas does not know its sources' positions for up to 0.6 s. If a leaf
node connects in that time, it requests everything from the first message on, which would all be stored twice. So
nothing is sent for a second. Then a heartbeat that it must reject makes it request again, from its present position,
and that request is served. Source: nats-server's stream.go, `setLeader`, `retryDisconnectedSyncConsumers` and
`setupSourceConsumers`.
"""

from __future__ import annotations

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
