"""Reading from very many sockets with little ado: one epoll, one task, a function called for each readable socket.

A Trio task per read costs 7 us and two system calls, as much as all else that is done for a request on its way through
the broker. Here the sockets stay registered (level-triggered), and one task serves them all: it waits in Trio until one
of them is readable, calls what belongs to each, and then stays a little while for what comes next, without a turn of
Trio's loop in between, as long as Trio has nothing to do.

It stays no longer than STAY_S with its work, and leaves at once when a task becomes runnable or something that Trio waits
for happens (`_Loop`), so that Trio's own sockets and tasks hardly notice; timers may be late by LOOK_S. The functions are
synchronous and must not raise.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import trio

log = logging.getLogger("eyot.transport")

#: Work of one stay: what a request of somebody else may have to wait for.
STAY_S = 0.0005
#: How long to look out for the next readable socket before leaving the field to Trio.
LOOK_S = 0.001
#: Sockets taken from the kernel at once.
READY_MAX = 64


class Readers:
    """The sockets of one broker. `run` is a task of the daemon, started before the first connection and ended after the
    last."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._functions: dict[int, Callable[[], None]] = {}
        self._ready: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._functions)

    def add(self, sock: socket.socket, function: Callable[[], None]) -> None:
        """Call `function` whenever `sock` is readable (or has failed), until it is removed."""
        fd = sock.fileno()
        self._opened().register(fd, select.EPOLLIN)
        self._functions[fd] = function

    def remove(self, sock: socket.socket) -> None:
        """No more calls for `sock`, which is still open. Removing what is not there does nothing."""
        fd = sock.fileno()
        if self._functions.pop(fd, None) is not None and self._epoll is not None:
            self._epoll.unregister(fd)

    def _opened(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
        return self._epoll

    async def run(self) -> None:
        """Serve until cancelled."""
        epoll = self._opened()
        loop = _Loop(epoll)
        trio.lowlevel.add_instrument(loop)
        try:
            while True:
                await trio.lowlevel.wait_readable(epoll.fileno())
                self._stay(epoll, loop)
        finally:
            trio.lowlevel.remove_instrument(loop)
            loop.close()
            epoll.close()
            self._epoll = None
            self._functions.clear()

    def _stay(self, epoll: select.epoll, loop: _Loop) -> None:
        functions = self._functions
        leave_at = monotonic() + STAY_S
        while True:
            # What was not served in the last stay comes first.
            ready = self._ready = self._ready or epoll.poll(0, READY_MAX)
            while ready:
                fd, _ = ready.pop()
                function = functions.get(fd)
                if function is not None:
                    try:
                        function()
                    except Exception:
                        log.exception("reading failed")
                        functions.pop(fd, None)
                        epoll.unregister(fd)
                if monotonic() > leave_at:
                    return
            if not loop.nothing_but_reading():
                return


class _Loop(trio.abc.Instrument):
    """What must be known of Trio's loop to keep it waiting for a moment: whether tasks want to run, and whether anything
    that it waits for has happened.

    The first is counted through Trio's instruments. For the second its epoll is looked at, which Trio shows nobody: should
    it be somewhere else in a coming version, nothing is kept waiting, and reading costs more.
    """

    def __init__(self, ours: select.epoll) -> None:
        self._runnable = 0
        self._ours = ours.fileno()
        self._both: select.epoll | None = None
        theirs = _epoll_of_trio()
        if theirs is not None:
            self._both = select.epoll()
            self._both.register(self._ours, select.EPOLLIN)
            self._both.register(theirs, select.EPOLLIN)

    def close(self) -> None:
        if self._both is not None:
            self._both.close()

    def nothing_but_reading(self) -> bool:
        """Wait up to LOOK_S; True if our sockets are readable again, and Trio has nothing to do."""
        if self._both is None or self._runnable > 0:
            return False
        found = self._both.poll(LOOK_S, 2)
        return len(found) == 1 and found[0][0] == self._ours

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            self._runnable = 0

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._runnable += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._runnable -= 1


def _epoll_of_trio() -> int | None:
    try:
        from trio._core import _run

        manager: Any = _run.GLOBAL_RUN_CONTEXT.runner.io_manager
        fd = manager._epoll.fileno()
    except (ImportError, AttributeError):
        log.debug("Trio's epoll was not found: every read goes through Trio's loop")
        return None
    return fd if isinstance(fd, int) else None
