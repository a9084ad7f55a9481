"""`eyot` on what is stored: reports that compare, bars while bytes move, and the store's own check and compaction."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from support.servers.eyotd import Eyotd

WAIT_S = 60.0
EYOT = [sys.executable, "-m", "eyot_cli.main"]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Eyotd]:
    with Eyotd('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path) as running:
        yield running


def eyot(daemon: Eyotd, *arguments: str) -> str:
    done = subprocess.run(
        [*EYOT, "-s", daemon.client_url(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def on_a_terminal(daemon: Eyotd, *arguments: str) -> str:
    """What the command writes to a terminal that is its standard error."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*EYOT, "-s", daemon.client_url(), *arguments], stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = bytearray()
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # Linux's end of a terminal
            pass
        assert process.wait(60) == 0, shown
    os.close(ours)
    return shown.decode()


def test_what_is_stored(daemon: Eyotd, tmp_path: Path) -> None:
    asyncio.run(_filled(daemon))
    _reports(daemon)
    _bars(daemon, tmp_path / "backup")
    daemon.stop()
    checked = json.loads(eyot(daemon, "check", str(tmp_path / "js"), "--json"))
    assert checked["problems"] == []
    assert {(each["name"], each["messages"]) for each in checked["streams"]} == {("LARGE", 3), ("SMALL", 3)}
    assert " after" in eyot(daemon, "compact", str(tmp_path / "js"))
    done = subprocess.run([*EYOT, "check", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("eyot-check: ")


async def _filled(daemon: Eyotd) -> None:
    """Two streams, and two consumers of one of them."""
    client = await nats.connect(daemon.client_url())
    jetstream = client.jetstream(timeout=WAIT_S)
    for name, size in (("SMALL", 10), ("LARGE", 5000)):
        await jetstream.add_stream(name=name, subjects=[f"{name}.>"])
        for _ in range(3):
            await jetstream.publish(f"{name}.a", bytes(size))
    ahead = await jetstream.pull_subscribe("", "AHEAD", stream="LARGE")
    await jetstream.pull_subscribe("", "BEHIND", stream="LARGE")
    await ahead.fetch(2, timeout=WAIT_S)
    await client.close()


def _reports(daemon: Eyotd) -> None:
    streams = eyot(daemon, "stream", "report")
    assert streams.index("LARGE") < streams.index("SMALL"), "the largest first"
    assert "streams: 2, messages: 6, bytes: " in streams
    assert [each["stream"] for each in json.loads(eyot(daemon, "report", "streams", "--json"))] == ["LARGE", "SMALL"]
    consumers = json.loads(eyot(daemon, "consumer", "report", "LARGE", "--json"))
    assert [(each["name"], each["num_pending"]) for each in consumers] == [("BEHIND", 3), ("AHEAD", 1)]
    shown = eyot(daemon, "report", "consumers", "LARGE")
    assert shown.index("BEHIND") < shown.index("AHEAD"), "the furthest behind first"


def _bars(daemon: Eyotd, folder: Path) -> None:
    assert "LARGE, at most" in on_a_terminal(daemon, "backup", "LARGE", str(folder))
    eyot(daemon, "stream", "rm", "LARGE", "--force")
    assert "LARGE" in on_a_terminal(daemon, "restore", str(folder))
    assert '"messages": 3' in eyot(daemon, "stream", "info", "LARGE", "--json")
