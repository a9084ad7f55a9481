"""Readers: every readable socket is served, and Trio's own tasks continue beside them."""

from __future__ import annotations

import math
import select
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest
import trio
import trio.lowlevel
import trio.testing

import eyot_daemon.turn.readers as readers_module
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.hand_over import HandOver
from eyot_daemon.turn.readers import TURN_BYTES, Readers, _epoll_of_trio
from eyot_daemon.turn.timers import Timers
from support.manual_clock import ManualClock


@dataclass
class Turns:
    """The broker's part: what was read in each turn, and whether it asks for a slower pace."""

    ended: list[list[object]] = field(default_factory=lambda: [[]])
    stall_s: float = 0.0
    gate: Gate | None = None

    def flush(self) -> None:
        self.ended.append([])

    def take_stall_s(self) -> float:
        return self.stall_s

    def take_gate(self) -> Gate | None:
        return self.gate

    def due_in_s(self) -> float:
        return math.inf


@dataclass
class Reading:
    """A reader that does what a function says."""

    function: Callable[[], object]
    stalls: list[float] = field(default_factory=list)

    def read(self) -> int:
        size = self.function()
        return size if isinstance(size, int) else 0

    def stall(self, seconds: float) -> None:
        self.stalls.append(seconds)

    def hold(self, gate: Gate) -> None:
        raise AssertionError("nobody asked for that")


class Willing(Reading):
    """A reader that goes on whatever it is asked."""

    def hold(self, gate: Gate) -> None:
        pass


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@asynccontextmanager
async def running(turns: Turns | None = None) -> AsyncIterator[Readers]:
    readers = Readers(turns or Turns())
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.run)
            yield readers
            nursery.cancel_scope.cancel()


async def test_a_socket_is_read_until_it_is_removed() -> None:
    async with running() as readers:
        with pair() as (ours, theirs):
            got: list[bytes] = []
            readers.add(ours, Reading(lambda: got.append(ours.recv(100))))
            for number in range(3):
                theirs.send(b"%d" % number)
                while len(got) <= number:
                    await trio.lowlevel.checkpoint()
            assert got == [b"0", b"1", b"2"]
            assert len(readers) == 1
            readers.remove(ours)
            readers.remove(ours)
            theirs.send(b"unread")
            await trio.sleep(0.01)
            assert len(got) == 3
            readers.add(ours, Reading(lambda: got.append(ours.recv(100))))
            while len(got) < 4:
                await trio.lowlevel.checkpoint()
            assert got[3] == b"unread"


async def test_no_socket_starves_beside_others_that_are_always_readable() -> None:
    async with running() as readers:
        sockets = [socket.socketpair() for _ in range(150)]
        reads = dict.fromkeys(range(len(sockets)), 0)
        for number, (ours, theirs) in enumerate(sockets):
            ours.setblocking(False)
            theirs.send(b"x" * 20_000)

            def read(number: int = number, ours: socket.socket = ours) -> None:
                reads[number] += len(ours.recv(10))

            readers.add(ours, Reading(read))
        while min(reads.values()) < 500:
            await trio.lowlevel.checkpoint()
        for ours, theirs in sockets:
            readers.remove(ours)
            ours.close()
            theirs.close()


@pytest.mark.parametrize("known", [True, False])
async def test_trio_goes_on_beside_endless_reading(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr("eyot_daemon.turn.readers._epoll_of_trio", lambda: None)
    async with running() as readers:
        with pair() as (ours, theirs), pair() as (plain, other):
            rounds = 0

            def again() -> None:
                nonlocal rounds
                rounds += 1
                ours.recv(1)
                theirs.send(b"x")  # readable again at once

            readers.add(ours, Reading(again))
            theirs.send(b"x")
            steps = 0
            async with trio.open_nursery() as nursery:

                async def steps_of_trio() -> None:
                    nonlocal steps
                    for _ in range(50):
                        await trio.lowlevel.checkpoint()
                        steps += 1

                async def socket_of_trio() -> None:
                    other.setblocking(False)
                    for _ in range(20):
                        plain.send(b"y")
                        await trio.lowlevel.wait_readable(other)
                        assert other.recv(10) == b"y"
                        await trio.sleep(0.001)

                nursery.start_soon(steps_of_trio)
                nursery.start_soon(socket_of_trio)
            assert steps == 50
            assert rounds > 0


async def test_a_function_that_fails_is_not_called_again_and_harms_nobody() -> None:
    async with running() as readers:
        with pair() as (bad, to_bad), pair() as (good, to_good):
            calls: list[str] = []

            def fail() -> None:
                calls.append("bad")
                raise RuntimeError("as expected")

            readers.add(bad, Reading(fail))
            readers.add(good, Reading(lambda: calls.append(good.recv(100).decode())))
            to_bad.send(b"x")
            to_good.send(b"good")
            while "good" not in calls:
                await trio.lowlevel.checkpoint()
            to_good.send(b"still")
            while "still" not in calls:
                await trio.lowlevel.checkpoint()
            assert calls.count("bad") == 1


async def test_trios_epoll_is_where_it_is_looked_for() -> None:
    fd = _epoll_of_trio()
    assert fd is not None
    with pair() as (ours, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.wait_readable, ours)
            await trio.testing.wait_all_tasks_blocked()
            with open(f"/proc/self/fdinfo/{fd}") as watched:
                assert any(line.split()[:2] == ["tfd:", str(ours.fileno())] for line in watched)
            nursery.cancel_scope.cancel()


async def test_sockets_may_be_removed_after_the_end() -> None:
    async with running() as readers:
        ours, theirs = socket.socketpair()
        readers.add(ours, Reading(lambda: None))
    readers.remove(ours)
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("size", "stall_s", "together"), [(1, 0.0, True), (TURN_BYTES, 0.0, False), (TURN_BYTES // 10, 0.25, False)]
)
async def test_what_is_readable_together_shares_a_turn(
    size: int, stall_s: float, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless that would be too much for one, or somebody must know whose turn it is. On a clock by which no turn takes long."""
    monkeypatch.setattr(readers_module, "monotonic", map((1e-6).__mul__, count()).__next__)
    turns = Turns(stall_s=stall_s)
    async with running(turns) as readers:
        sockets = [socket.socketpair() for _ in range(10)]
        left = dict.fromkeys(range(len(sockets)), 5)

        def read(number: int) -> int:
            turns.ended[-1].append(number)
            left[number] -= 1
            if not left[number]:
                sockets[number][0].recv(1)
            return size

        readings = [Reading(lambda number=number: read(number)) for number in range(len(sockets))]  # type: ignore[misc]
        for (ours, theirs), reading in zip(sockets, readings, strict=True):
            theirs.send(b"x")
            readers.add(ours, reading)
        while any(left.values()):
            await trio.lowlevel.checkpoint()
        for ours, theirs in sockets:
            readers.remove(ours)
            ours.close()
            theirs.close()
    sizes = [len(turn) for turn in turns.ended if turn]
    assert sum(sizes) == 50
    assert (max(sizes) > 1) == (together or bool(stall_s))  # the first turn tells that somebody is behind
    if stall_s:
        assert sizes.count(1) >= 30
        assert sum(len(reading.stalls) for reading in readings) == sizes.count(1)


@pytest.mark.parametrize(("wanted", "longest"), [(False, readers_module.TURN_S), (True, readers_module.ROUND_S)])
def test_a_crowd_shares_a_turn_until_trio_has_something_to_do(
    wanted: bool, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only reading moves."""
    now, step = 100.0, readers_module.ROUND_S / 5
    monkeypatch.setattr(readers_module, "monotonic", lambda: now)

    class Trio:
        def is_wanted(self, due_in_s: float) -> bool:
            return wanted

        def look(self) -> list[tuple[int, int]]:
            return [(ours.fileno(), select.EPOLLIN)]

        def wait(self, due_in_s: float, read_bytes: int) -> list[tuple[int, int]]:
            return self.look()

    def read() -> None:
        nonlocal now
        now += step
        turns.ended[-1].append(now)

    turns = Turns()
    readers = Readers(turns)
    with pair() as (ours, _):
        readers._readers[ours.fileno()] = Reading(read)
        readers._stay(Trio())  # type: ignore[arg-type]
    (turn, after) = turns.ended
    assert not after
    assert longest < turn[-1] - 100.0 <= longest + 2 * step


@pytest.mark.parametrize(("waited_s", "looks"), [(0.0, 2), (2 * readers_module.QUIET_S, 1), (0.05, 1)])
def test_a_socket_that_was_waited_for_and_is_alone_ends_its_turn_without_another_look(
    waited_s: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only waiting moves."""
    now = 100.0
    monkeypatch.setattr(readers_module, "monotonic", lambda: now)

    class Trio:
        looks = 0
        readable: tuple[list[tuple[int, int]] | None, ...] = ([(7, select.EPOLLIN)], None)

        def is_wanted(self, due_in_s: float) -> bool:
            return False

        def look(self) -> list[tuple[int, int]]:
            self.looks += 1
            return []

        def wait(self, due_in_s: float, read_bytes: int) -> list[tuple[int, int]] | None:
            nonlocal now
            now += waited_s
            found, *rest = self.readable
            self.readable = (*rest, None)
            return found

    turns, loop = Turns(), Trio()
    readers = Readers(turns)
    readers._readers[7] = Reading(lambda: turns.ended[-1].append("read"))
    readers._stay(loop)  # type: ignore[arg-type]
    assert turns.ended == [["read"], []]
    assert loop.looks == looks


async def test_a_task_that_trio_is_asked_to_run_does_not_wait_for_sockets_that_are_quiet() -> None:
    """Of another thread's call, and of a deadline."""
    async with running() as readers:
        with pair() as (ours, theirs):
            stays = 0

            def read() -> None:
                nonlocal stays
                ours.recv(100)
                stays += 1

            readers.add(ours, Reading(read))
            for number in range(5):
                theirs.send(b"x")
                while stays <= number:
                    await trio.lowlevel.checkpoint()
                # The task of the readers waits for more in its own call by now, or begins to.
                assert await trio.to_thread.run_sync(lambda: "done") == "done"
                await trio.sleep(0.001)
            assert stays == 5


async def test_calls_of_other_threads_are_made_in_order_and_end_a_turn() -> None:
    turns = Turns()
    hand_over = HandOver()
    made: list[int] = []

    def hand_in(first: int) -> None:
        for number in range(first, first + 100):
            hand_over.soon(lambda number=number: made.append(number))  # type: ignore[misc]

    def fail() -> None:
        raise RuntimeError("as expected")

    async with running(turns) as readers:
        readers.add(hand_over, hand_over)
        hand_over.soon(fail)
        for first in range(0, 1000, 100):
            await trio.to_thread.run_sync(hand_in, first)
        while len(made) < 1000:
            await trio.sleep(0.001)
        readers.remove(hand_over)
    assert made == list(range(1000))
    assert len(turns.ended) > 1
    hand_over.close()
    with pytest.raises(OSError, match="no more calls"):
        hand_over.soon(fail)


async def test_a_timer_that_a_turn_sets_does_not_wait_for_the_traffic_to_end() -> None:
    broker = Broker()
    fired = trio.Event()
    told = threading.Event()
    ran_dry = False
    with trio.fail_after(20), pair() as (ours, theirs):

        def fire() -> None:
            fired.set()
            told.set()

        def read() -> int:
            if not len(broker.timers) and not fired.is_set():
                broker.timers.call_later(0.05, fire)
            return len(ours.recv(100))

        def write() -> None:
            """Traffic without a pause, from outside the loop, until the timer has fired, for five seconds at most."""
            nonlocal ran_dry
            for _ in range(5000):
                theirs.send(b"x")
                if told.wait(0.001):
                    return
            ran_dry = True

        async with trio.open_nursery() as nursery:
            broker.readers.add(ours, Reading(read))
            nursery.start_soon(broker.timers.run, broker.flush)
            nursery.start_soon(broker.readers.run)
            await trio.testing.wait_all_tasks_blocked()
            thread = threading.Thread(target=write)
            thread.start()
            await fired.wait()
            thread.join()
            nursery.cancel_scope.cancel()
    assert not ran_dry, "the timer fired while there was traffic"


async def test_a_read_may_be_large_first_in_a_turn_and_while_nothing_is_full() -> None:
    """A full destination has yet to take the turn, and a read of each of its publishers until they are held."""
    full = [False]
    turns = Turns()
    async with running(turns) as readers:
        turns.gate = Gate(Timers(ManualClock()), lambda: full[0])
        with pair() as (first, into_first), pair() as (second, into_second):
            sizes: list[tuple[bool, bytes]] = []

            def read(ours: socket.socket) -> int:
                sizes.append((readers.may_be_large, ours.recv(100)))
                return 1

            async def brought(*data: bytes) -> list[bool]:
                sizes.clear()
                for theirs, each in zip((into_first, into_second), data, strict=False):
                    theirs.send(each)
                while len(sizes) < len(data):
                    await trio.lowlevel.checkpoint()
                assert [each for _, each in sizes] == list(data)
                return [large for large, _ in sizes]

            for ours in (first, second):
                readers.add(ours, Willing(partial(read, ours)))
            assert await brought(b"1", b"2") == [True, False], "two in a turn"
            full[0] = True
            await brought(b"1", b"2")
            assert await brought(b"3") == [False]
            assert await brought(b"1", b"2") == [False, False]
            full[0] = False
            assert await brought(b"4") == [True]


@asynccontextmanager
async def crowd(
    count_: int, read: Callable[[Readers, int, socket.socket], object]
) -> AsyncIterator[tuple[Readers, list[socket.socket]]]:
    """So many watched sockets, each of which `read` is called for with its number; and the peers' ends. Nobody reads yet."""
    readers, theirs = Readers(Turns()), []
    with ExitStack() as stack, trio.fail_after(20):
        for number in range(count_):
            ours, peer = stack.enter_context(pair())
            readers.add(ours, Reading(partial(read, readers, number, ours)))
            theirs.append(peer)
        async with trio.open_nursery() as nursery:
            yield readers, theirs
            nursery.start_soon(readers.run)
            while len(readers):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_a_crowd_that_hangs_up_does_not_hold_up_who_came_after_it() -> None:
    order: list[int] = []

    def read(readers: Readers, number: int, ours: socket.socket) -> None:
        order.append(number)
        if number == last or not ours.recv(100):
            readers.remove(ours)

    last = 400
    async with crowd(last + 1, read) as (_, theirs):
        for peer in theirs[:last]:
            peer.close()
        theirs[last].send(b"alive")
    assert order == [last, *range(last)]


async def test_what_a_crowd_sent_before_it_hung_up_is_read_in_order() -> None:
    got: list[int] = []

    def read(readers: Readers, number: int, ours: socket.socket) -> None:
        if ours.recv(100):
            got.append(number)
        else:
            readers.remove(ours)

    async with crowd(100, read) as (_, theirs):
        for peer in theirs:
            peer.send(b"last words")
            peer.close()
    assert got == list(range(100))


async def test_an_end_that_was_not_read_is_read_again() -> None:
    calls: Counter[int] = Counter()

    def read(readers: Readers, number: int, ours: socket.socket) -> None:
        calls[number] += 1
        if number % 2 or calls[number] == 3:
            readers.remove(ours)

    async with crowd(100, read) as (_, theirs):
        for peer in theirs:
            peer.close()
    assert calls == {number: 1 if number % 2 else 3 for number in range(100)}


async def test_who_is_removed_while_it_is_set_aside_is_not_read() -> None:
    read_: set[int] = set()
    sockets: dict[int, socket.socket] = {}

    def read(readers: Readers, number: int, ours: socket.socket) -> None:
        read_.add(number)
        readers.remove(ours)
        for other in [each for each in sockets if each % 2]:
            readers.remove(sockets.pop(other))

    async with crowd(400, read) as (readers, theirs):
        sockets.update(enumerate(ours_of(readers)))
        for peer in theirs:
            peer.close()
    assert len([number for number in read_ if number % 2]) <= 1
    assert {number for number in range(400) if number % 2 == 0} <= read_


def ours_of(readers: Readers) -> list[socket.socket]:
    """The sockets that are watched, as they were added."""
    return [reader.function.args[2] for reader in readers._readers.values()]  # type: ignore[attr-defined]
