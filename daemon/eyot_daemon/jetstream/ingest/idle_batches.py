"""When an open batch has been idle for too long: the same rule for atomic and for fast batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.turn.timers import TimerHandle

#: An open batch ends when it has got no message for this long.
IDLE_S_MAX = 10.0


class OpenBatch(Protocol):
    """An open batch. `heard_at`: monotonic time of its last message, seconds."""

    heard_at: float


B = TypeVar("B", bound=OpenBatch)


class IdleBatches(Generic[B]):
    """Ends the idle ones of a stream's open batches, with one timer for all."""

    def __init__(self, stream: StreamCore, batches: Mapping[bytes, B], end: Callable[[bytes], object]) -> None:
        """Watch `batches`; `end` removes the one with an id."""
        self._stream = stream
        self._batches = batches
        self._end = end
        self._timer: TimerHandle | None = None

    def heard(self, batch: B) -> None:
        """Note that one of the batches got a message."""
        batch.heard_at = self._stream.clock.monotonic()
        if self._timer is None or not self._timer.active:
            self._set_timer()

    def stop(self) -> None:
        """Stop watching, until the next batch is heard."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        oldest = min(batch.heard_at for batch in self._batches.values())
        self._timer = self._stream.timers.call_at(oldest + IDLE_S_MAX, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self._stream.clock.monotonic()
        for batch_id, batch in list(self._batches.items()):
            if now - batch.heard_at >= IDLE_S_MAX:
                self._end(batch_id)
        if self._batches:
            self._set_timer()
