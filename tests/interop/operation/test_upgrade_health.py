"""What the root part of upgrades sees of a daemon: the real one, linked to a hub, with clients."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest

from eyot_cli.upgrade.install.health import Comparison, Sample, SystemClock, is_reachable, measure, read_sample
from support.links.leaf_pair import LEAF, LeafPair

WAIT_S = 60


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LeafPair]:
    config = f'{LEAF}eyot {{ control_socket: "%WORKDIR%/control.sock" }}\n'
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=config) as made:
        yield made


def awaited(control: Path, is_there: Callable[[Sample | None], bool]) -> Sample | None:
    deadline = time.monotonic() + WAIT_S
    while not is_there(sample := read_sample(control)):
        assert time.monotonic() < deadline, sample
        time.sleep(0.05)
    return sample


class Publishing:
    """A clock whose pauses are filled with one published message each; `client` stays connected."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self._url, self._loop = url, loop
        self._client = loop.run_until_complete(nats.connect(url, allow_reconnect=False))
        self._jetstream = self._client.jetstream(timeout=WAIT_S)
        loop.run_until_complete(self._jetstream.add_stream(name="READINGS", subjects=["readings.>"]))

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self._loop.run_until_complete(self._jetstream.publish("readings.a", b"21.5"))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())


def test_the_daemon_is_compared_with_what_it_was(pair: LeafPair) -> None:
    control = pair.leaf.workdir / "control.sock"
    awaited(control, lambda sample: sample is not None and {each[1] for each in sample.links.values()} == {"up"})
    with asyncio.Runner() as runner:
        publishing = Publishing(pair.leaf.client_url("acc"), runner.get_loop())
        before = measure(control, publishing)
        assert before is not None
        assert (before.store, before.offline, before.clients, before.publishing) == (True, [], True, True)
        assert before.last_seqs == {"ACC > READINGS": 3}
        assert len(before.links) == 2
        assert all(is_reachable(address) for address in before.links.values())
        found = read_sample(control)
        assert found is not None
        assert Comparison(before).compare(found, 0.0).worse == []
        publishing.close()
    left = awaited(control, lambda sample: sample is not None and sample.clients == 0)
    assert Comparison(before).compare(left, 0.0).worse == ["no client is connected"]
    leaf_port = pair.hub.leaf_port
    pair.hub.kill()
    down = awaited(
        control, lambda sample: sample is not None and "up" not in {each[1] for each in sample.links.values()}
    )
    verdict = Comparison(before).compare(down, 0.0)
    assert (len(verdict.unknown), verdict.worse) == (2, ["no client is connected"])
    with socket.create_server(("127.0.0.1", leaf_port)):
        worse = Comparison(before).compare(down, 0.0).worse
    assert len([each for each in worse if "its address can be reached" in each]) == 2
    assert pair.leaf.stop() == 0
    assert read_sample(control) is None
    assert measure(control, SystemClock()) is None
