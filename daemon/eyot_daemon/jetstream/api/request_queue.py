"""Requests to an account's API that wait for their answers.

They are answered in order, at the end of the turn that brought them. What takes longer than `SLICE_S` goes on in the next turns, so that
one client's thousands of requests keep nobody else waiting. While many wait, connections that bring more are not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from eyot_daemon.router.subscription import Origin
from eyot_daemon.turn.backpressure import Gate

if TYPE_CHECKING:
    from eyot_daemon.router.core import BrokerCore
    from eyot_daemon.turn.timers import TimerHandle

#: How long requests are answered in one turn, seconds.
SLICE_S: Final = 0.003
#: Connections that bring requests are not read while more of them wait.
HELD_FROM: Final = 1000
#: Bytes that may wait, where `request_queue_limit` sets no number; what a request takes beside its bytes counts as `REQUEST_BYTES`.
BYTES_MAX: Final = 64 << 20
REQUEST_BYTES: Final = 300

#: Subject, reply, header, payload and origin.
Queued = tuple[bytes, bytes, bytes, bytes, Origin | None]


class RequestQueue:
    """The queue of one account. `limit`: requests that may wait; 0: as many as `BYTES_MAX` holds.

    `answer` is called for each request. `dropped` is called with the number of requests that found no room, once the queue is empty again.
    """

    def __init__(
        self, broker: BrokerCore, limit: int, answer: Callable[[Queued], None], dropped: Callable[[int], None]
    ) -> None:
        self._broker = broker
        self._limit = limit
        self._answer = answer
        self._tell_dropped = dropped
        self._waiting: deque[Queued] = deque()
        self._bytes = 0
        self._dropped = 0
        self._gate = Gate(broker.timers, lambda: len(self._waiting) > HELD_FROM)
        #: set while requests wait for a later turn
        self._later: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Queued) -> bool:
        """Append a request, and return whether the caller must have this turn end with `run`."""
        size = _size(request)
        if len(self._waiting) >= self._limit if self._limit else self._bytes + size > BYTES_MAX:
            self._dropped += 1
            return False
        is_first = not self._waiting
        self._waiting.append(request)
        self._bytes += size
        if self._later is not None:
            self._hold_back()
            return False
        return is_first

    def run(self) -> None:
        """Answer requests, those that have waited longest first; what is left for a later turn runs by itself."""
        clock, waiting = self._broker.clock, self._waiting
        ends = clock.monotonic() + SLICE_S
        try:
            while waiting:
                request = waiting.popleft()
                self._bytes -= _size(request)
                self._answer(request)
                if clock.monotonic() > ends:
                    break
        finally:
            self._leave_rest()

    def _leave_rest(self) -> None:
        if self._waiting:
            self._later = self._broker.timers.call_later(0.0, self._go_on)
            self._hold_back()
        elif self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._tell_dropped(dropped)
        if self._gate.waiting and not self._gate.is_shut:
            self._gate.open()

    def _go_on(self) -> None:
        self._later = None
        self.run()

    def _hold_back(self) -> None:
        if self._gate.is_shut:
            self._broker.hold_back(self._gate)


def _size(request: Queued) -> int:
    subject, reply, header, payload, _ = request
    return REQUEST_BYTES + len(subject) + len(reply) + len(header) + len(payload)
