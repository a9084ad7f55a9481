"""The truth about what has arrived, while links are cut and both ends are killed: `synced` is never claimed falsely."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from random import Random

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from support.links.leaf_pair import LeafPair, eventually
from support.links.link import Link

_ROUNDS = 4
_BURST = 40


@pytest.mark.parametrize("hub", ["eyotd", "nats-server"])
def test_synced_is_never_claimed_falsely(hub: str, tmp_path: Path) -> None:
    with LeafPair(hub, "eyotd", tmp_path) as pair, Link(pair.hub.leaf_port) as link:
        text = pair.leaf.config_path.read_text().replace(f":{pair.hub.leaf_port}", f":{link.port}")
        text = text.replace("account: ACC }", "account: ACC, ignore_discovered_servers: true }")
        pair.leaf.stop()
        pair.leaf.config_path.write_text(text)
        pair.leaf.start()
        asyncio.run(_play(pair, link))


async def _play(pair: LeafPair, link: Link) -> None:
    rng = Random(5)
    leaf = await _client(pair, "leaf")
    await leaf.jetstream().add_stream(name="R", subjects=["r.>"])
    hub = await _client(pair, "hub")
    source = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
    await hub.jetstream().add_stream(StreamConfig(name="ALL", sources=[source]))
    sent = await _publish(leaf, 0)
    await eventually(lambda: _synced(pair), 40)
    for what in ("cut", "kill the leaf", "kill the hub", "cut")[:_ROUNDS]:
        # What is published from here on has not arrived, whatever happens meanwhile.
        sent = await _publish(leaf, sent)
        await asyncio.sleep(rng.uniform(0, 0.05))
        link.cut()
        sent = await _publish(leaf, sent)
        report = pair.leaf.monitor("/eyot/syncz")
        (status,) = report["out"]
        assert not report["synced"], what
        assert status["backlog"] == sent - status["confirmed_seq"] >= _BURST
        assert status["oldest_s"] is not None
        before = status["confirmed_seq"]
        if what == "kill the leaf":
            await leaf.close()
            pair.leaf.kill()
            pair.leaf.start()
            leaf = await _client(pair, "leaf")
            (status,) = pair.leaf.monitor("/eyot/syncz")["out"]
            assert (status["confirmed_seq"], status["backlog"]) == (before, sent - before), "known after a restart"
        elif what == "kill the hub":
            await hub.close()
            pair.hub.kill()
            pair.hub.start()
            hub = await _client(pair, "hub")
        link.restore()
        await eventually(lambda: _synced(pair), 60)
        (status,) = pair.leaf.monitor("/eyot/syncz")["out"]
        state = (await hub.jetstream().stream_info("ALL")).state
        assert (status["confirmed_seq"], status["backlog"], state.messages) == (sent, 0, sent), what
    metrics = await asyncio.to_thread(_metrics, pair)
    assert "eyot_sync_backlog{" in metrics
    assert "eyot_synced 1.0" in metrics
    await leaf.close()
    await hub.close()


def _metrics(pair: LeafPair) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{pair.leaf.monitor_port}/metrics", timeout=15) as page:
        return str(page.read().decode())


async def _client(pair: LeafPair, end: str) -> Client:
    return await nats.connect((pair.leaf if end == "leaf" else pair.hub).client_url("acc"), allow_reconnect=False)


async def _publish(client: Client, sent: int) -> int:
    """A burst; returns how many there are now."""
    js = client.jetstream()
    await asyncio.gather(*(js.publish("r.a", b"x" * 100) for _ in range(_BURST)))
    return sent + _BURST


def _synced(pair: LeafPair) -> bool:
    return bool(pair.leaf.monitor("/eyot/syncz")["synced"])
