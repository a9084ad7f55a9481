"""Busy polling: begins where data keeps coming soon, and ends by itself where it costs others something."""

from __future__ import annotations

import math
import socket
from collections import Counter
from random import Random

import pytest
import trio

import eyot_daemon.turn.readers as readers_module
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.busy_poll import LIGHT_BYTES, POLL_S, QUICK_MAX, QUICK_MIN, BusyPoll
from eyot_daemon.turn.readers import Readers

SHORT_S, LONG_S = POLL_S / 2, POLL_S * 2


def due_after(poll: BusyPoll) -> int:
    """How many short waits come before busy polling."""
    for count in range(QUICK_MAX + 1):
        if poll.is_due(0):
            return count
        poll.waited(SHORT_S)
    return -1


def test_it_begins_after_short_waits() -> None:
    poll = BusyPoll(2)
    assert due_after(poll) == QUICK_MIN
    assert poll.is_due(LIGHT_BYTES)
    assert not poll.is_due(LIGHT_BYTES + 1)
    poll.waited(LONG_S)
    assert due_after(poll) == QUICK_MIN


@pytest.mark.parametrize("processors", [0.1, 1.0, 1.5])
def test_it_needs_a_processor_for_the_peer(processors: float) -> None:
    assert due_after(BusyPoll(processors)) == -1


def test_what_finds_nothing_is_tried_less_and_less() -> None:
    poll, asked = BusyPoll(2), []
    for _ in range(8):
        asked.append(due_after(poll))
        poll.polled(found=False)
        poll.waited(LONG_S)
    assert asked == [8, 32, 128, 512, *[QUICK_MAX] * 4]
    for _ in range(QUICK_MAX):
        poll.waited(SHORT_S)
    for _ in range(8):
        assert poll.is_due(0)
        poll.polled(found=True)
        poll.waited(SHORT_S)
    poll.waited(LONG_S)
    assert due_after(poll) == QUICK_MIN


def test_a_few_messages_a_second_never_have_it() -> None:
    """Each is a read, the end of its flush, and what the link says of it; then nothing comes for long."""
    poll = BusyPoll(2)
    for _ in range(1000):
        for wait_s in (SHORT_S, SHORT_S, SHORT_S, SHORT_S, 0.01):
            assert not poll.is_due(200)
            poll.waited(wait_s)


@pytest.mark.parametrize(("a_second", "share_max"), [(100, 0.0), (1_000, 0.001), (3_000, 0.01), (6_000, 0.1)])
def test_messages_that_come_by_chance_hardly_have_it(a_second: int, share_max: float) -> None:
    """Sensors that do not wait for each other: a gap, and 0.15 ms for the flush."""
    poll, random, polled, waits = BusyPoll(2), Random(a_second), 0, 100_000
    for _ in range(waits):
        for wait_s in (random.expovariate(a_second), 0.00015):
            if poll.is_due(200):
                polled += 1
                poll.polled(wait_s < POLL_S)
            poll.waited(wait_s)
    assert polled <= share_max * 2 * waits


class Turns:
    """The broker's part."""

    def flush(self) -> None: ...

    def take_stall_s(self) -> float:
        return 0.0

    def take_gate(self) -> Gate | None:
        return None

    def due_in_s(self) -> float:
        return math.inf


class Echo:
    """Sends back what it reads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self) -> int:
        return self._sock.send(self._sock.recv(100))

    def stall(self, seconds: float) -> None: ...

    def hold(self, gate: Gate) -> None: ...


@pytest.mark.parametrize("known", [True, False])
async def test_readers_serve_everybody_with_it(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two who ask at once, one after the other, and a timer of Trio beside them."""
    asked: Counter[bool] = Counter()

    class Always(BusyPoll):
        """As if all waits had been short."""

        def is_due(self, read_bytes: int) -> bool:
            return True

        def polled(self, found: bool) -> None:
            asked[found] += 1

    monkeypatch.setattr(readers_module, "BusyPoll", Always)
    if not known:
        monkeypatch.setattr(readers_module, "_epoll_of_trio", lambda: None)
    readers, ticks = Readers(Turns()), 0

    def ask(theirs: socket.socket) -> None:
        for number in range(500):
            theirs.sendall(b"%d" % number)
            assert theirs.recv(100) == b"%d" % number

    async def tick() -> None:
        nonlocal ticks
        for _ in range(20):
            await trio.sleep(0.001)
            ticks += 1

    pairs = [socket.socketpair() for _ in range(2)]
    with trio.fail_after(60):
        async with trio.open_nursery() as serving:
            serving.start_soon(readers.run)
            for ours, theirs in pairs:
                ours.setblocking(False)
                theirs.settimeout(30)
                readers.add(ours, Echo(ours))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                for _, theirs in pairs:
                    nursery.start_soon(trio.to_thread.run_sync, ask, theirs)
            serving.cancel_scope.cancel()
    for pair in pairs:
        for each in pair:
            each.close()
    assert ticks == 20
    assert known == bool(asked), asked
