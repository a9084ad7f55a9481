"""Reading from very many sockets with little ado: one epoll, one task, a function called for each readable socket.

A Trio task per read costs 7 us and two system calls, as much as all else that is done for a request on its way through
the broker. Here the sockets stay registered (level-triggered), and one task serves them all: it waits in Trio until one
of them is readable, calls what belongs to each, and then stays a little while for what comes next, without a turn of
Trio's loop in between, as long as Trio has nothing to do.

Sockets that are readable at the same time, or become so meanwhile, share a turn of the broker, up to TURN_BYTES: what they
brought is stored in one transaction and leaves in one send per destination. When a destination asks its publishers to slow down,
it must be known whose turn it is, so that nobody else waits: until that is over, every read is a turn of its own.

It reads for ROUND_S at most before it looks whether anybody else wants to go on, and leaves at once when a task is runnable,
something that Trio waits for has happened, or the next of Trio's deadlines is near (`_Loop`), so that Trio's own sockets,
tasks and timers hardly notice. Reading is synchronous and must not raise.
"""

from __future__ import annotations

import logging
import select
from time import monotonic
from typing import Any, Protocol

import trio

from eyot_daemon.turn.backpressure import Gate

log = logging.getLogger("eyot.transport")

#: Reading without looking up: what a task of somebody else may have to wait for.
ROUND_S = 0.0005
#: How long to look out for the next readable socket before leaving the field to Trio.
LOOK_S = 0.005
#: The longest stay: a timer of Trio's that was set just before it is late by so much at most.
STAY_S = 0.005
#: Sockets taken from the kernel at once.
READY_MAX = 64
#: A turn ends when so much was read in it: destinations hold no more of it than that before they can send.
TURN_BYTES = 256 * 1024


class Socket(Protocol):
    """A socket, or anything else that can be polled."""

    def fileno(self) -> int: ...


class Reader(Protocol):
    """Who reads from a socket."""

    def read(self) -> int:
        """The socket is readable (or has failed): read once and take in what came. Returns how many bytes that were."""
        ...

    def stall(self, seconds: float) -> None:
        """Who is served is far behind with what this one sends: read on after a while only."""
        ...

    def hold(self, gate: Gate) -> None:
        """What this one sends is more than can be taken in: read on when the gate is open."""
        ...


class TurnEnd(Protocol):
    """The broker, as far as it is known here."""

    def flush(self) -> None:
        """End the turn: what was gathered is sent, and stored."""
        ...

    def take_stall_s(self) -> float:
        """How long whoever was read in the turn that just ended shall wait; 0: go on."""
        ...

    def take_gate(self) -> Gate | None:
        """Where whoever was read in the turn that just ended shall wait; None: nowhere."""
        ...

    def due_in_s(self) -> float:
        """How long until the next timer falls due; infinity: there is none. A turn may have set one."""
        ...


class Readers:
    """The sockets of one broker. `run` is a task of the daemon, started before the first connection and ended after the
    last."""

    def __init__(self, broker: TurnEnd) -> None:
        self._broker = broker
        self._epoll: select.epoll | None = None
        self._readers: dict[int, Reader] = {}
        self._ready: list[tuple[int, int]] = []
        self._turn: list[Reader] = []  # read in the turn that is under way
        self._turn_bytes = 0
        self._one_by_one = False

    def __len__(self) -> int:
        return len(self._readers)

    def add(self, sock: Socket, reader: Reader) -> None:
        """Have `reader` read whenever `sock` is readable (or has failed), until it is removed."""
        fd = sock.fileno()
        self._opened().register(fd, select.EPOLLIN)
        self._readers[fd] = reader

    def remove(self, sock: Socket) -> None:
        """No more reads from `sock`, which is still open. Removing what is not there does nothing."""
        fd = sock.fileno()
        if self._readers.pop(fd, None) is not None and self._epoll is not None:
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
            self._readers.clear()

    def _stay(self, epoll: select.epoll, loop: _Loop) -> None:
        leave_at = monotonic() + STAY_S
        while True:
            round_ends = monotonic() + ROUND_S
            # What was not served in the last stay comes first.
            ready = self._ready = self._ready or epoll.poll(0, READY_MAX)
            asked_to_stall = False
            while ready:
                self._read(epoll, ready.pop()[0])
                late = monotonic() > round_ends
                if not (ready or late or self._one_by_one or self._turn_bytes >= TURN_BYTES):
                    # What came meanwhile belongs to the same turn: one transaction, one send per destination.
                    ready = self._ready = epoll.poll(0, READY_MAX)
                if late or not ready or self._one_by_one or self._turn_bytes >= TURN_BYTES:
                    asked_to_stall |= self._end_turn()
                if late:
                    return
            self._one_by_one = asked_to_stall
            if monotonic() > leave_at or not loop.nothing_but_reading(self._broker.due_in_s()):
                return

    def _read(self, epoll: select.epoll, fd: int) -> None:
        reader = self._readers.get(fd)
        if reader is None:
            return
        try:
            self._turn_bytes += reader.read()
            self._turn.append(reader)
        except Exception:
            log.exception("reading failed")
            self._readers.pop(fd, None)
            epoll.unregister(fd)

    def _end_turn(self) -> bool:
        """Returns whether a destination asked for a slower pace."""
        turn, self._turn, self._turn_bytes = self._turn, [], 0
        self._broker.flush()
        stall_s, gate = self._broker.take_stall_s(), self._broker.take_gate()
        if not stall_s and gate is None:
            return False
        if len(turn) == 1:
            if gate is not None:
                turn[0].hold(gate)
            else:
                turn[0].stall(stall_s)
        self._one_by_one = True
        return True


class _Loop(trio.abc.Instrument):
    """What must be known of Trio's loop to keep it waiting for a moment: whether tasks want to run, whether anything that
    it waits for has happened, and when its next timer is due.

    The first and the last are learnt through Trio's instruments; of the daemon's own timers, which turns set during a stay,
    the broker knows. For the second its epoll is looked at, which Trio shows nobody: should
    it be somewhere else in a coming version, nothing is kept waiting, and reading costs more.
    """

    def __init__(self, ours: select.epoll) -> None:
        self._runnable = 0
        self._deadline = 0.0
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

    def nothing_but_reading(self, due_in_s: float) -> bool:
        """Wait a little, but not beyond `due_in_s`; True if our sockets are readable again, and Trio has nothing to do."""
        if self._both is None or self._runnable > 0:
            return False
        patience_s = min(self._deadline - monotonic(), due_in_s, LOOK_S)
        if patience_s <= 0:
            return False
        found = self._both.poll(patience_s, 2)
        return len(found) == 1 and found[0][0] == self._ours

    def before_io_wait(self, timeout: float) -> None:
        self._deadline = monotonic() + timeout
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
