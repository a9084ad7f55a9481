"""50 kbit/s with 600 ms round trip: an hour without a disconnect, the link kept busy, nothing urgent behind bulk."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from offline_sync.slow_fixture import RADIO_BYTES_PER_S, SlowLinkFixture, slow_link_fixture

pytestmark = pytest.mark.slow

_BACKLOG = 2 << 20
_MESSAGE = 2048


async def _asked(fixture: SlowLinkFixture) -> float:
    """How long the leaf waits for an answer of the hub's API, seconds."""
    before = trio.current_time()
    answers: list[bytes] = []
    fixture.leaf.client.ask(b"$JS.hub.API.INFO", b"", answers.append)
    await fixture.until(lambda: bool(answers), 60)
    await trio.sleep(5)
    return trio.current_time() - before - 5


@pytest.mark.parametrize(("message", "asked_s"), [(_MESSAGE, 3.0), (16_384, 4.5)])
async def test_an_hour_on_a_radio_without_a_disconnect(
    message: int, asked_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A message of 16 KiB takes 2.6 s: an answer of the API waits for one of them at most."""
    async with slow_link_fixture() as fixture:
        await fixture.start()
        await fixture.stream("R", subjects=["r.>"])
        fixture.publish("r.a", b"x" * message, _BACKLOG // message)
        await fixture.copy("ALL", "R")
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") > 0, 60)
        begun = trio.current_time()
        waits = [await _asked(fixture) for _ in range(10)]
        assert max(waits) < asked_s, "the API waits behind bulk"
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == _BACKLOG // message, 3600)
        goodput = _BACKLOG / (trio.current_time() - begun) / RADIO_BYTES_PER_S
        # A trickle for the rest of the hour: each message is there within seconds.
        while trio.current_time() - begun < 3600:
            fixture.publish("r.a", b"y" * 200)
            wanted = fixture.last_seq(fixture.leaf, "R") + 1
            assert (
                await fixture.until(lambda wanted=wanted: fixture.last_seq(fixture.hub, "ALL") >= wanted - 1, 15) < 10
            )
            await trio.sleep(60)
        (state,) = fixture.leaf.broker.links.remotes
        assert (state.connects, state.is_up) == (1, True)
        assert goodput >= 0.9


@pytest.mark.parametrize("outward", [True, False])
@pytest.mark.parametrize("busy", [True, False])
async def test_a_black_hole_one_way_is_found_within_fifteen_seconds(
    outward: bool, busy: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Also on a slow link with bulk under way, where the peer has a reason to be silent for a while."""
    async with slow_link_fixture() as fixture:
        await fixture.start()
        await fixture.stream("R", subjects=["r.>"])
        await fixture.copy("ALL", "R")
        await fixture.until(lambda: fixture.leaf.broker.links.is_up("ACC"), 60)
        if busy:
            fixture.publish("r.a", b"x" * _MESSAGE, 200)
        await trio.sleep(20)
        (state,) = fixture.leaf.broker.links.remotes
        fixture.network.swallow_one_way("leaf", outward=outward)
        found_s = await fixture.until(lambda: not state.is_up or state.connects > 1, 60)
        assert found_s <= 15
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == fixture.last_seq(fixture.leaf, "R"), 200)
