"""A copy that asks for what it has confirmed is asked once more before it is believed.

It may be right: its stream was purged, deleted and made again, or restored. But a nats-server (2.10 to 2.14) that has just become the
leader of a stream with several replicas does not know for up to 0.6 s where its sources stand, and if a leaf connects to it in that time it asks
for everything from the first message on: all of it would be stored twice. So nothing is sent for a second. Then a heartbeat
that it must object to makes it ask anew, from where it stands by now; what it then asks for it gets.
Source: nats-server's stream.go, `setLeader`, `retryDisconnectedSyncConsumers` and `setupSourceConsumers`.
"""

from __future__ import annotations

#: After this a new leader has looked where it stands, seconds.
ASK_AFTER_S = 1.0
#: Who does not ask anew by then is believed, seconds. nats-server leaves two between its requests.
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
        """True once: the reader is to be told to ask anew."""
        if self._told or now < self._ask_at:
            return False
        self._told = True
        return True

    def is_over(self, now: float) -> bool:
        """It did not ask anew: it is believed."""
        return now >= self._believe_at
