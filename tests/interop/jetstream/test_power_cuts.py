"""SIGKILL at random moments while a client publishes with acknowledgements: nothing acknowledged is missing afterwards."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from nats.js.api import StreamConfig
from nodes import Node
from observe import connect
from truth import Truth, ledger_ids, stream_ids

KILLS = 25
# More than the client can have published when the last kill is over; it is stopped then.
MESSAGES = 1_000_000


async def make_stream(node: Node) -> None:
    client = await connect(node.url, "setup")
    await client.jetstream().add_stream(StreamConfig(name="READINGS", subjects=["readings.>"]))
    await client.close()


async def read_back(node: Node) -> list[str]:
    client = await connect(node.url, "reader")
    state = (await client.jetstream().stream_info("READINGS")).state
    ids = await stream_ids(client, "READINGS", state.messages)
    await client.close()
    return ids


async def kill_at_random(node: Node, chance: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        node.kill()
        node.start()
    await asyncio.sleep(1.0)


@pytest.mark.parametrize("seed", [20261121])
def test_power_cuts(tmp_path: Path, seed: int) -> None:
    node = Node("eyotd", "leaf", tmp_path)
    ledger = tmp_path / "acknowledged.tsv"
    ledger.touch()
    node.start()
    try:
        asyncio.run(make_stream(node))
        script = Path(__file__).parents[2] / "story" / "publisher.py"
        publisher = subprocess.Popen([sys.executable, str(script), node.url, str(ledger), str(MESSAGES), "64"])
        try:
            asyncio.run(kill_at_random(node, random.Random(seed)))
        finally:
            publisher.terminate()
            publisher.wait(30)
        truth = Truth(ledger_ids(ledger))
        truth.places["on leaf"] = asyncio.run(read_back(node))
        assert len(truth.acked) > KILLS, "the client hardly got to publish between the cuts"
        assert truth.lost("on leaf") == set()
        assert truth.duplicated("on leaf") == []
    finally:
        node.stop()
