"""A client that publishes faster than the server ingests is not read for a while; other clients are not affected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.timers import Timers
from support.manual_clock import ManualClock
from support.servers.broker import Raw, Running, running


@dataclass
class Full:
    """A destination that asks its publishers to wait, as long as it is `full`."""

    place: Running
    full: bool = True
    got: list[bytes] = field(default_factory=list)
    kind: Kind = Kind.JETSTREAM

    def __post_init__(self) -> None:
        self.gate = Gate(self.place.broker.timers, lambda: self.full)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        self.got.append(payload)
        self.place.broker.mark_dirty(self)
        return True

    def flush(self) -> None:
        if self.full:
            self.place.broker.hold_back(self.gate)

    async def has(self, count: int) -> None:
        with trio.fail_after(20):
            while len(self.got) < count:
                await trio.sleep(0.002)


@asynccontextmanager
async def full_place() -> AsyncIterator[tuple[Running, Full]]:
    async with running() as place:
        full = Full(place)
        place.broker.global_account.subscribe(b"into.>", full)
        yield place, full


BOTH = pytest.mark.parametrize("connect", [Running.raw, Running.in_memory], ids=["socket", "stream"])
Connect = Callable[[Running], "trio.abc.AsyncResource"]


async def held(full: Full, connect: Connect) -> Raw:
    """A client that has published and is not read any more. (Its first turn may have been shared, so it publishes until it waits.)"""
    client: Raw = await connect(full.place)  # type: ignore[misc, assignment]
    with trio.fail_after(20):
        while not len(full.gate):
            await client.send(b"PUB into.a 1\r\nx\r\n")
            await trio.sleep(0.01)
    return client


@BOTH
async def test_a_publisher_waits_until_the_gate_opens(connect: Connect) -> None:
    async with full_place() as (place, full):
        place.clients.limits.hold_s = 1000.0
        publisher = await held(full, connect)
        other = await place.raw()
        assert await other.ask() == b""
        taken = len(full.got)
        await publisher.send(b"PUB into.a 4\r\nmore\r\nPING\r\n")
        for _ in range(5):
            assert await other.ask(b"PUB elsewhere 1\r\nx\r\n") == b""
        assert len(full.got) == taken
        full.full = False
        full.gate.open()
        await full.has(taken + 1)
        assert await publisher.until(b"PONG\r\n") == b"PONG\r\n"
        assert not len(full.gate)


@BOTH
async def test_who_waits_long_is_read_once_and_waits_again(connect: Connect) -> None:
    async with full_place() as (place, full):
        place.clients.limits.hold_s = 0.05
        publisher = await held(full, connect)
        for _ in range(3):
            assert await publisher.ask(b"PUB into.a 1\r\nx\r\n") == b""
            with trio.fail_after(20):
                while not len(full.gate):
                    await trio.sleep(0.002)


@BOTH
async def test_a_peer_that_is_not_read_is_not_judged_by_its_silence(connect: Connect) -> None:
    async with full_place() as (place, full):
        place.clients.limits.hold_s = 1000.0
        publisher = await held(full, connect)
        (client,) = place.clients.connections.values()
        await publisher.send(b"PONG\r\n")
        with trio.fail_after(20):
            while not client.transport.input_waits():
                await trio.sleep(0.002)
        client.pings_out = 100
        client._ping_timer()
        assert not client.closed


@BOTH
async def test_a_peer_that_hung_up_while_it_waited_is_let_go(connect: Connect) -> None:
    async with full_place() as (place, full):
        place.clients.limits.hold_s = 0.05
        publisher = await held(full, connect)
        await publisher.stream.aclose()
        with trio.fail_after(20):
            while place.clients.connections:
                await trio.sleep(0.002)


@BOTH
async def test_those_who_are_let_in_look_again_before_they_read(connect: Connect) -> None:
    """Else a thousand that waited would all bring a read's worth before the first of them is held again."""
    async with full_place() as (place, full):
        place.clients.limits.hold_s = 1000.0
        publisher = await held(full, connect)
        taken = len(full.got)
        await publisher.send(b"PUB into.a 1\r\nx\r\n")
        full.full = False
        full.gate.open()
        full.full = True  # somebody else was quicker
        other = await place.raw()
        for _ in range(5):
            assert await other.ask() == b""
        assert len(full.got) == taken
        assert len(full.gate) == 1


def test_a_gate_calls_each_once() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    called: list[str] = []
    gate = Gate(timers, lambda: True)
    early, late = lambda: called.append("early"), lambda: called.append("late")
    gate.wait(early, 1.0)
    gate.wait(late, 5.0)
    clock.advance(2)
    timers.run_due(clock.monotonic())
    assert called == ["early"]
    gate.open()
    assert called == ["early", "late"]
    clock.advance(10)
    timers.run_due(clock.monotonic())
    assert called == ["early", "late"]
    assert len(gate) == len(timers) == 0
