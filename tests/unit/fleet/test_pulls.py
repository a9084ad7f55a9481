"""A pull's consumer is asked for again: a cluster may place it on a server that died, and that one never answers."""

from __future__ import annotations

from contextlib import aclosing

import pytest
import trio
import trio.testing

from eyot_fleet.connection import Subscription
from eyot_fleet.errors import NoAnswer
from eyot_fleet.jetstream import CREATE_S, TIMEOUT_S, JetStream
from eyot_wire import frames


class DeadPeers:
    """A connection to a cluster that places the first consumers on servers that died."""

    def __init__(self, dead: int) -> None:
        self.dead = dead
        self.asked: list[str] = []

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> frames.Msg:
        self.asked.append(subject)
        if len(self.asked) <= self.dead:
            await trio.sleep(timeout_s)
            raise NoAnswer(f"no answer on {subject} within {timeout_s:g} s")
        return frames.Msg(b"inbox", b"1", b"", b"", b'{"name":"c","num_pending":0}')

    async def publish(self, subject: str, payload: bytes, reply: str) -> None:
        assert subject == "$JS.API.CONSUMER.MSG.NEXT.S.c"

    def new_inbox(self) -> str:
        return "inbox"

    def subscribe(self, subject: str) -> Subscription:
        return Subscription(subject, b"2")

    def unsubscribe(self, subscription: Subscription) -> None: ...


async def first_of(connection: DeadPeers) -> list[object]:
    async with aclosing(JetStream(connection).pull("S", {})) as batches:  # type: ignore[arg-type]
        return [await anext(batches)]


@pytest.mark.parametrize("dead", range(len(CREATE_S) + 1))
async def test_a_consumer_on_a_server_that_died_is_asked_for_again(
    dead: int, autojump_clock: trio.testing.MockClock
) -> None:
    connection = DeadPeers(dead)
    assert await first_of(connection) == [[]]
    assert connection.asked == ["$JS.API.CONSUMER.CREATE.S"] * (dead + 1)
    assert trio.current_time() == sum(CREATE_S[:dead])


async def test_a_hub_that_never_answers_fails_the_pull(autojump_clock: trio.testing.MockClock) -> None:
    connection = DeadPeers(len(CREATE_S) + 1)
    with pytest.raises(NoAnswer, match="within 10 s: is JetStream enabled"):
        await first_of(connection)
    assert trio.current_time() == sum(CREATE_S) + TIMEOUT_S
