"""Calls from other threads that the loop's thread makes as part of a turn of the broker.

They arrive like bytes: through an eventfd among the `Readers`' sockets. On a fast disk, a commit is therefore answered
in the same pass in which its message was read; Trio's own way (`TrioToken.run_sync_soon`) needs two passes of its loop.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable

from eyot_daemon.turn.backpressure import Gate

log = logging.getLogger("eyot.broker")


class HandOver:
    """A `Reader`. Calls run in the order in which they were handed over; after `close` none runs."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._signalled = False
        self._when_woken: list[Callable[[], None]] = []
        self.closed = False

    def fileno(self) -> int:
        return self._event

    def when_woken(self, call: Callable[[], None]) -> None:
        """Have `call` made each time after the eventfd was written, by whomever."""
        self._when_woken.append(call)

    def soon(self, call: Callable[[], None]) -> None:
        """Have `call` made soon. From any thread. Raises OSError after `close`."""
        if self.closed:
            raise OSError("the loop accepts no more calls")
        self._calls.append(call)
        if not self._signalled:
            # Set before the write: a caller that finds it set added its call before `read` looks for calls.
            self._signalled = True
            os.eventfd_write(self._event, 1)

    def read(self) -> int:
        """Make the calls."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return 0
        self._signalled = False
        for _ in range(len(self._calls)):
            self._make(self._calls.popleft())
        for call in self._when_woken:
            self._make(call)
        return 0

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            # A failing call must not end the daemon.
            log.exception("after a commit")

    def stall(self, seconds: float) -> None:
        """Do nothing: the calls have already happened."""

    def hold(self, gate: Gate) -> None:
        """Do nothing: the calls have already happened."""

    def close(self) -> None:
        """Accept no more calls. The calling threads must have ended (another thread may be about to write)."""
        if not self.closed:
            self.closed = True
            os.close(self._event)
