"""`eyot sync wait` and the messages that really reached the hub: with an Eyot hub and with nats-server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import nats
import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from support.links.leaf_pair import LeafPair


@pytest.mark.parametrize("hub", ["eyotd", "nats-server"])
def test_sync_wait_says_when_the_hub_has_everything(hub: str, tmp_path: Path) -> None:
    asyncio.run(_play(hub, tmp_path))


async def _play(hub: str, path: Path) -> None:
    with LeafPair(hub, "eyotd", path) as pair:
        leaf = await nats.connect(pair.leaf.client_url("acc"))
        at_hub = await nats.connect(pair.hub.client_url("acc"))
        await leaf.jetstream().add_stream(name="R", subjects=["r.>"])
        control = f"http://{pair.leaf.host}:{pair.leaf.monitor_port}"
        alone = await _wait(control, 0.2)
        assert alone.returncode == 1
        assert "no mirror or source elsewhere replicates" in alone.stderr
        external = ExternalStream(api="$JS.leaf.API", deliver="")
        source = StreamSource(name="R", external=external)
        await at_hub.jetstream().add_stream(StreamConfig(name="ALL", sources=[source]))
        for _ in range(50):
            await leaf.jetstream().publish("r.a", b"x" * 100)
        done = await _wait(control, 30)
        assert done.returncode == 0, done.stderr
        (status,) = pair.leaf.monitor("/eyot/syncz")["out"]
        assert (status["peer"], status["confirmed_seq"], status["backlog"]) == ("hub-server", 50, 0)
        assert (await at_hub.jetstream().stream_info("ALL")).state.messages == 50
        server = pair.leaf.client_url("acc")
        reads = await _eyot(control, "--server", server, "sync", "forget", "R", "hub-server")
        assert "replicates R at present" in reads.stderr
        await at_hub.close()
        pair.hub.kill()
        forgotten = await _forgotten(control, server)
        assert "Forgotten: 1 of R at hub-server" in forgotten.stdout
        assert pair.leaf.monitor("/eyot/syncz")["out"] == []
        unknown = await _eyot(control, "--server", server, "sync", "forget", "R", "hub-server")
        assert "no mirror or source of R at hub-server is known" in unknown.stderr
        await leaf.close()


async def _forgotten(control: str, server: str) -> subprocess.CompletedProcess[str]:
    """As soon as the leaf has noticed that its hub is gone."""
    while True:
        said = await _eyot(control, "--server", server, "sync", "forget", "R", "hub-server")
        if "at the moment" not in said.stderr:
            return said


async def _wait(control: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return await _eyot(control, "sync", "wait", "--timeout", str(timeout_s))


async def _eyot(control: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eyot_cli.main", "--control", control, *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
