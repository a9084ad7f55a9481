"""Compressed leaf links with real nats-servers, in both roles and each direction in the mode of its sender."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from support.links.leaf_pair import ACCOUNTS, HUB, LEAF, Clients, Inbox, LeafPair, linked
from support.servers.server_process import ServerProcess

_READINGS = 2_000
#: Hub, its mode, leaf, its mode; then what the hub does, and what the leaf does. Where RTT counts, every RTT of a busy machine
#: is in the same range.
PAIRS = [
    ("eyotd", "s2_best", "2.10.26", "s2_fast", "s2_best", "s2_fast"),
    ("2.10.26", "s2_better", "eyotd", "accept", "s2_better", "s2_better"),
    ("2.12.8", "accept", "eyotd", '{ mode: s2_auto, rtt_thresholds: ["0", "0", "1h"] }', "s2_fast", "s2_better"),
    ("eyotd", "accept", "2.14.6", "s2_best", "s2_best", "s2_best"),
    (
        "2.14.6",
        "s2_best",
        "eyotd",
        '{ mode: s2_auto, rtt_thresholds: ["1h", "2h", "3h"] }',
        "s2_best",
        "s2_uncompressed",
    ),
    ("eyotd", "s2_fast", "eyotd", "s2_fast", "s2_fast", "s2_fast"),
    ("2.14.6", "s2_auto", "eyotd", "off", "off", "off"),
    ("eyotd", "off", "2.14.6", "s2_fast", "off", "off"),
]


def _reading(number: int) -> bytes:
    rng = random.Random(number)
    return b'{"device":"pump-%03d","temperature":%.2f,"status":"ok","seq":%d}' % (
        rng.randint(1, 40),
        rng.gauss(71, 2),
        number,
    )


def _leafz(process: ServerProcess) -> dict[str, Any]:
    return next(leaf for leaf in process.monitor("/leafz")["leafs"] if leaf["account"] == "ACC")


def _wire(process: ServerProcess) -> tuple[int, int]:
    """Bytes that an Eyot has read and written on its link of ACC."""
    link = next(each for each in process.monitor("/eyot/status")["links"] if each["account"] == "ACC")
    return link["wire_in_bytes"], link["wire_out_bytes"]


async def _all_arrives(hub: Client, leaf: Client) -> None:
    rng = random.Random(7)
    odd = [b"", rng.randbytes(1_000_000), bytes(1_000_000), rng.randbytes(65_536), b"x" * 65_537]
    for source, target, subject in ((leaf, hub, "up"), (hub, leaf, "down")):
        inbox = await Inbox.on(target, f"{subject}.>")
        await linked(hub, leaf)
        expected = [_reading(number) for number in range(_READINGS)]
        for payload in expected:
            await source.publish(f"{subject}.a", payload, headers={"Site": "north"})
        await inbox.wait(_READINGS)
        for payload in odd:
            await source.publish(f"{subject}.b", payload)
        assert await inbox.wait(_READINGS + len(odd)) == expected + odd
        assert all(message.headers == {"Site": "north"} for message in inbox.got[:_READINGS])


@pytest.mark.parametrize(("hub", "hub_mode", "leaf", "leaf_mode", "down", "up"), PAIRS)
def test_everything_arrives_as_it_was(
    hub: str, hub_mode: str, leaf: str, leaf_mode: str, down: str, up: str, tmp_path: Path
) -> None:
    pair = LeafPair(
        hub,
        leaf,
        tmp_path,
        hub_config=HUB.replace("no_advertise: true", f"no_advertise: true, compression: {hub_mode}"),
        leaf_config=LEAF.replace("account: ACC", f"account: ACC, compression: {leaf_mode}"),
        accounts=ACCOUNTS,
    )
    with pair:
        pair.play(_all_arrives)
        assert (_leafz(pair.hub)["compression"], _leafz(pair.leaf)["compression"]) == (down, up)
        pair.hub.kill()
        pair.hub.start()

        async def again() -> None:
            async with Clients(pair.hub, pair.leaf) as (at_hub, at_leaf):
                await linked(at_hub, at_leaf)
                eyot = pair.leaf if leaf == "eyotd" else pair.hub
                before, sent = _wire(eyot), 0
                inbox = await Inbox.on(at_hub, "up.a")
                await linked(at_leaf, at_hub)
                for number in range(_READINGS):
                    await at_leaf.publish("up.a", _reading(number))
                    sent += len(_reading(number))
                await inbox.wait(_READINGS)
                after = _wire(eyot)
                crossed = after[1] - before[1] if eyot is pair.leaf else after[0] - before[0]
                assert (crossed < 0.8 * sent) is (up in ("s2_fast", "s2_better", "s2_best"))

        asyncio.run(again())
