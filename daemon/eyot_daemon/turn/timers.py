"""Timers of the daemon: one heap, one Trio task, no task per timer.

`call_at(deadline, fn)` runs `fn()` in the loop's thread once `deadline` (seconds of `Clock.monotonic`) has passed.
Everything that fell due is run in one turn, and the turn ends with the broker's flush, as every entry into the
broker from outside does. Cancelling is lazy: a cancelled handle stays in the heap until it surfaces or until
cancelled handles are the majority, when the heap is rebuilt.
"""

import heapq
import logging
from collections.abc import Callable

import trio

from eyot_daemon.turn.clock import Clock

log = logging.getLogger("eyot.timers")

#: How many due timers run before other tasks get their turn: bounds the latency one burst of timers can cause.
TIMERS_PER_TURN = 256


class TimerHandle:
    """A pending call; `cancel()` is idempotent and frees the callback at once."""

    __slots__ = ("_fn", "_owner", "deadline", "order")

    def __init__(self, deadline: float, order: int, fn: Callable[[], None], owner: "Timers") -> None:
        self.deadline = deadline
        self.order = order
        self._fn: Callable[[], None] | None = fn
        self._owner = owner

    def __lt__(self, other: "TimerHandle") -> bool:
        return (self.deadline, self.order) < (other.deadline, other.order)

    @property
    def active(self) -> bool:
        """True until the timer has run or was cancelled."""
        return self._fn is not None

    def cancel(self) -> None:
        if self._fn is not None:
            self._fn = None
            self._owner.note_cancelled()

    def take(self) -> Callable[[], None] | None:
        """Return the callback, once: afterwards the handle is no longer active."""
        fn, self._fn = self._fn, None
        return fn


class Timers:
    """The heap of pending timers. `run` serves it as a Trio task; tests may drive `run_due` by hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[TimerHandle] = []
        self._order = 0
        self._cancelled = 0
        self._sleeping: trio.CancelScope | None = None
        self.failures = 0

    def call_at(self, deadline: float, fn: Callable[[], None]) -> TimerHandle:
        """Run `fn` once `deadline` (monotonic seconds) has passed. Loop thread only."""
        self._order += 1
        handle = TimerHandle(deadline, self._order, fn, self)
        heapq.heappush(self._heap, handle)
        if self._sleeping is not None and self._heap[0] is handle:
            self._sleeping.deadline = deadline
        return handle

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> TimerHandle:
        """Run `fn` after `delay_s` seconds."""
        return self.call_at(self._clock.monotonic() + delay_s, fn)

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    @property
    def next_deadline(self) -> float | None:
        """Return when the earliest active timer is due; None without one."""
        heap = self._heap
        while heap and not heap[0].active:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0].deadline if heap else None

    def note_cancelled(self) -> None:
        """Note a cancelled handle: rebuild the heap when dead handles outnumber live ones."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [handle for handle in self._heap if handle.active]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run_due(self, now: float, limit: int = TIMERS_PER_TURN) -> int:
        """Run the timers due at `now`, at most `limit`; return how many ran.

        A timer that raises is logged and counted in `failures`: one faulty timer must not stop the others.
        """
        ran = 0
        while ran < limit:
            deadline = self.next_deadline
            if deadline is None or deadline > now:
                break
            fn = heapq.heappop(self._heap).take()
            if fn is None:
                continue
            ran += 1
            try:
                fn()
            except Exception:
                self.failures += 1
                log.exception("timer failed")
        return ran

    async def run(self, after_turn: Callable[[], None]) -> None:
        """Serve the timers until cancelled; `after_turn` (the broker's flush) runs after each turn that ran some."""
        while True:
            ran = self.run_due(self._clock.monotonic())
            if ran:
                after_turn()
            deadline = self.next_deadline
            if ran and deadline is not None and deadline <= self._clock.monotonic():
                await trio.lowlevel.checkpoint()
                continue
            with trio.CancelScope(deadline=float("inf") if deadline is None else deadline) as scope:
                self._sleeping = scope
                try:
                    await trio.sleep_forever()
                finally:
                    self._sleeping = None
