"""Reads from very many sockets cheaply: one epoll, one task, a function call per readable socket.

A Trio task per read costs 7 us and two system calls, as much as all other work for a request in the broker. Here the
sockets stay registered (level-triggered), and one task serves them all. It waits in Trio until a socket is readable,
calls the socket's reader, and then stays for further data, without a pass of Trio's loop in between, as long as Trio has
nothing to do.

Sockets that are readable at the same time, or become so meanwhile, share a turn of the broker, up to TURN_BYTES and
TURN_S: their data is stored in one transaction and leaves in one send per destination. When a destination slows its
publishers down, the source of each turn must be known, so that no other connection waits: until that is over, every
read is a turn of its own.

The task reads for at most TURN_S before it yields. Every ROUND_S, and after each turn, it yields at once when a task is
runnable, an event that Trio waits for has occurred, or the next of Trio's deadlines is near (`_Loop`), so that Trio's
own sockets, tasks and timers are hardly delayed. Reading is synchronous and must not raise.

When very many peers hang up at once, the sockets that have nothing but their end are set aside: those with data are served
first, and ends a few at a time. The kernel reports the sockets in the order in which they became readable, so that a live one
would have to wait for all ends before it.
"""

from __future__ import annotations

import fcntl
import logging
import select
import termios
from collections import deque
from collections.abc import Iterable
from sys import byteorder
from time import monotonic
from typing import Any, Protocol

import trio

from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.busy_poll import POLL_S, BusyPoll

log = logging.getLogger("eyot.transport")

#: Longest time of reading without a look at Trio, which other tasks may have to wait.
ROUND_S = 0.0005
#: Longest time of reading while Trio has nothing to do, which the first message of a turn may have to wait. A crowd of clients
#: that publish one by one is a transaction for each turn: a longer one costs much less for each message.
TURN_S = 0.002
#: How long to wait for the next readable socket before yielding to Trio. Everything that Trio can be woken by ends the wait, too. A
#: pass of Trio's loop for each of a few messages a second costs as much as the message.
LOOK_S = 0.1
#: The longest stay without such a wait.
STAY_S = 0.005
#: A wait of at least this long says that the sockets are quiet: one that then becomes readable alone has a turn of its own.
QUIET_S = 0.00002
#: Sockets per epoll call.
READY_MAX = 64
#: From so many readable sockets on, those at their end are set aside.
CROWD = 32
#: Epoll calls in a row that may bring nothing but ends. Each takes 0.2 ms.
LOOKS_MAX = 32
#: Longest time for ends until sockets with data are looked for again.
ENDS_S = 0.002
#: A turn ends when this much was read in it: it bounds what destinations hold before they can send.
TURN_BYTES = 256 * 1024
_WATCHED = select.EPOLLIN | select.EPOLLRDHUP
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_INT = bytes(4)  # where FIONREAD puts its answer


class Socket(Protocol):
    """A socket, or anything else that can be polled."""

    def fileno(self) -> int: ...


class Reader(Protocol):
    """The user of a socket."""

    def read(self) -> int:
        """Read once from the readable (or failed) socket and process the bytes; return their number."""
        ...

    def stall(self, seconds: float) -> None:
        """Pause reading for a while: a destination lags far behind this connection's messages."""
        ...

    def hold(self, gate: Gate) -> None:
        """Pause reading until the gate is open: a destination cannot accept more of this connection's messages."""
        ...


class TurnEnd(Protocol):
    """The broker as the readers see it."""

    def flush(self) -> None:
        """End the turn: gathered messages are sent and stored."""
        ...

    def take_stall_s(self) -> float:
        """Return and reset the pause for the connection that was read in the ended turn; 0: continue."""
        ...

    def take_gate(self) -> Gate | None:
        """Return and reset the gate for the connection that was read in the ended turn; None: no gate."""
        ...

    def due_in_s(self) -> float:
        """Return the time until the next timer is due; infinity without one. A turn may have set one."""
        ...


class Readers:
    """The sockets of one broker. `run` is a task of the daemon that outlives all connections."""

    def __init__(self, broker: TurnEnd) -> None:
        self._broker = broker
        self._epoll: select.epoll | None = None
        self._loop: _Loop | None = None
        self._readers: dict[int, Reader] = {}
        self._ready: Ready = []
        #: set aside: at their end and not watched; `_ends` has them in order, and numbers that were removed since
        self._set_aside: set[int] = set()
        self._ends: deque[int] = deque()
        self._turn: list[Reader] = []  # read in the turn that is under way
        self._turn_bytes = 0
        self._read_bytes = 0  # since the last wait
        self._one_by_one = False
        self._full: Gate | None = None  # the last that was asked for
        #: those that wait at a gate
        self.held: set[Reader] = set()

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def may_be_large(self) -> bool:
        """Return whether the next read may be a large one: only the first of a turn, and while no destination is full.

        What a full destination has yet to take is that turn, and then a read of each of its publishers until they are held.
        """
        if self.held or self._turn_bytes:
            return False
        return self._full is None or not self._full.is_shut

    def add(self, sock: Socket, reader: Reader) -> None:
        """Have `reader` read whenever `sock` is readable (or has failed), until it is removed. What is read already stays so."""
        fd = sock.fileno()
        if self._readers.get(fd) is reader:
            return
        self._watch(fd)
        self._readers[fd] = reader

    def remove(self, sock: Socket) -> None:
        """Stop reading from `sock`, which is still open. An unknown socket is ignored."""
        fd = sock.fileno()
        if self._readers.pop(fd, None) is not None:
            self._unregister(fd)

    def _watch(self, fd: int) -> None:
        self._opened().register(fd, _WATCHED)
        if self._loop is not None:
            self._loop.add(fd)

    def _unregister(self, fd: int) -> None:
        if fd in self._set_aside:
            self._set_aside.remove(fd)
            return
        self._unwatch(fd)

    def _unwatch(self, fd: int) -> None:
        if self._epoll is not None:
            self._epoll.unregister(fd)
        if self._loop is not None:
            self._loop.remove(fd)

    def _opened(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
        return self._epoll

    async def run(self) -> None:
        """Serve until cancelled."""
        epoll = self._opened()
        loop = self._loop = _Loop(epoll, self._readers)
        trio.lowlevel.add_instrument(loop)
        try:
            while True:
                if self._set_aside:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(epoll.fileno())
                self._stay(loop)
                self._serve_ends()
        finally:
            trio.lowlevel.remove_instrument(loop)
            loop.close()
            epoll.close()
            self._epoll = self._loop = None
            self._readers.clear()
            self._set_aside.clear()
            self._ends.clear()

    def _stay(self, loop: _Loop) -> None:
        begun = monotonic()
        leave_at = begun + STAY_S
        alone = False
        while True:
            round_ends, turn_ends = begun + ROUND_S, begun + TURN_S
            # Sockets that were not served in the last pass are served first.
            ready = self._ready = self._ready or self._live(loop, loop.look())
            asked_to_stall = False
            while ready:
                self._read(ready.pop()[0])
                now = monotonic()
                late = now > round_ends and (now > turn_ends or loop.is_wanted(self._broker.due_in_s()))
                if now > round_ends:
                    round_ends = now + ROUND_S
                if not (ready or late or alone or self._one_by_one or self._turn_bytes >= TURN_BYTES):
                    # Data that arrived meanwhile belongs to the same turn: one transaction, one send per destination.
                    ready = self._ready = self._live(loop, loop.look())
                if late or not ready or self._one_by_one or self._turn_bytes >= TURN_BYTES:
                    asked_to_stall |= self._end_turn()
                if late:
                    return
            self._one_by_one = asked_to_stall
            ended = monotonic()
            if ended > leave_at or self._set_aside:
                return
            read_bytes, self._read_bytes = self._read_bytes, 0
            found = loop.wait(self._broker.due_in_s(), read_bytes)
            if found is None:
                return
            self._ready = self._live(loop, found)
            begun = monotonic()
            alone = len(found) == 1 and begun > ended + QUIET_S
            if begun > ended + ROUND_S:
                leave_at = begun + STAY_S  # Trio had nothing to do for longer than a round

    def _live(self, loop: _Loop, ready: Ready) -> Ready:
        """Return the sockets of a crowd that have data, or the whole of what is no crowd; set those at their end aside."""
        for _ in range(LOOKS_MAX):
            if len(ready) < CROWD and not self._set_aside:
                return ready
            live = [each for each in reversed(ready) if not (each[1] & _ENDED and self._put_aside(each[0]))]
            if live or not ready:
                return live[::-1]
            ready = loop.look()
        return []

    def _put_aside(self, fd: int) -> bool:
        """Set a socket at its end aside, unless it has data, which is served in its order; return whether."""
        try:
            unread = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, _INT), byteorder)
        except OSError:
            return False  # its reader finds out why
        if unread or fd not in self._readers:
            return False
        self._unwatch(fd)
        self._set_aside.add(fd)
        self._ends.append(fd)
        return True

    def _serve_ends(self) -> None:
        """Let some of those that were set aside end."""
        if not self._set_aside:
            return
        until = monotonic() + ENDS_S
        while self._set_aside and monotonic() < until:
            fd = self._ends.popleft()
            if fd in self._set_aside:
                self._read(fd)
            if fd in self._set_aside:  # the reader has not had enough
                self._set_aside.remove(fd)
                self._watch(fd)
        self._turn.clear()  # none of them brought anything that could be slowed down
        self._end_turn()

    def _read(self, fd: int) -> None:
        reader = self._readers.get(fd)
        if reader is None:
            return
        try:
            size = reader.read()
            self._turn_bytes += size
            self._read_bytes += size
            self._turn.append(reader)
        except Exception:
            log.exception("reading failed")
            if self._readers.pop(fd, None) is not None:
                self._unregister(fd)

    def _end_turn(self) -> bool:
        """Return whether a destination asked for a slower pace."""
        turn, self._turn, self._turn_bytes = self._turn, [], 0
        self._broker.flush()
        stall_s, gate = self._broker.take_stall_s(), self._broker.take_gate()
        if not stall_s and gate is None:
            return False
        if gate is not None:
            self._full = gate
        if len(turn) == 1:
            if gate is not None:
                turn[0].hold(gate)
            else:
                turn[0].stall(stall_s)
        self._one_by_one = True
        return True


Ready = list[tuple[int, int]]


class _Loop(trio.abc.Instrument):
    """The readable sockets, and the state of Trio's loop that decides whether it can wait a moment longer.

    Whether tasks are runnable and when the next timer is due come from Trio's instruments; the broker knows the
    daemon's own timers, which turns set during a stay. Whether an awaited event has occurred shows in Trio's epoll,
    which is not public: if a later version moves it, the loop never waits, and reading costs more.

    Trio's epoll holds that of the sockets while the task waits in Trio. An epoll of its own therefore holds Trio's and all
    sockets: one call waits for both, and says which sockets are readable.
    """

    def __init__(self, ours: select.epoll, sockets: Iterable[int]) -> None:
        self._runnable = 0
        self._deadline = 0.0
        self._busy_poll = BusyPoll()
        self._ours = ours
        self._both: select.epoll | None = None
        self._theirs = _epoll_of_trio()
        self._trio = select.poll()
        if self._theirs is not None:
            self._both = select.epoll()
            for fd in (self._theirs, *sockets):
                self._both.register(fd, _WATCHED)
            self._trio.register(self._theirs, select.POLLIN)

    def close(self) -> None:
        if self._both is not None:
            self._both.close()
            self._both = None

    def add(self, fd: int) -> None:
        """Note a socket that the epoll of the sockets has."""
        if self._both is not None:
            self._both.register(fd, _WATCHED)

    def remove(self, fd: int) -> None:
        """Forget a socket, which is still open."""
        if self._both is not None:
            self._both.unregister(fd)

    def look(self) -> Ready:
        """Return the readable sockets, the first one last: taken from the end they are served in the order of their data.

        A client that is answered and asks another to act must not be overtaken: the kernel's list has that order.
        """
        if self._both is None:
            ready = self._ours.poll(0, READY_MAX)
        else:
            ready = [each for each in self._both.poll(0, READY_MAX) if each[0] != self._theirs]
        ready.reverse()
        return ready

    def wait(self, due_in_s: float, read_bytes: int) -> Ready | None:
        """Wait a little, but not beyond `due_in_s`, for readable sockets, as `look` returns them; None: Trio has something to do.

        `read_bytes`: how many were read since the last wait.
        """
        if self._both is None or self._runnable > 0:
            return None
        begun = monotonic()
        patience_s = min(self._deadline - begun, due_in_s, LOOK_S)
        if patience_s <= 0:
            return None
        ready: Ready = []
        if self._busy_poll.is_due(read_bytes):
            ready = _poll_until(self._both, begun + min(patience_s, POLL_S))
            self._busy_poll.polled(bool(ready))
        ready = ready or self._both.poll(patience_s, READY_MAX)
        self._busy_poll.waited(monotonic() - begun)
        if not ready:
            return None
        for fd, _ in ready:
            if fd == self._theirs:
                return None
        ready.reverse()
        return ready

    def is_wanted(self, due_in_s: float) -> bool:
        """Return whether Trio has something to do now, or the daemon's timers have; does not wait."""
        if self._both is None or self._runnable > 0 or min(self._deadline - monotonic(), due_in_s) <= 0:
            return True
        return bool(self._trio.poll(0))

    def before_io_wait(self, timeout: float) -> None:
        self._deadline = monotonic() + timeout
        if timeout > 0:
            self._runnable = 0

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._runnable += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._runnable -= 1


def _poll_until(epoll: select.epoll, moment: float) -> Ready:
    ready: Ready = []
    while not ready and monotonic() < moment:
        ready = epoll.poll(0, READY_MAX)
    return ready


def _epoll_of_trio() -> int | None:
    try:
        from trio._core import _run

        manager: Any = _run.GLOBAL_RUN_CONTEXT.runner.io_manager
        fd = manager._epoll.fileno()
    except (ImportError, AttributeError):
        log.debug("Trio's epoll was not found: every read goes through Trio's loop")
        return None
    return fd if isinstance(fd, int) else None
