"""What a failing disk refuses is not half done: afterwards sessions and retained messages in memory are what flash is."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.jetstream.full_disk import Disk
from support.mqtt.cuts import Server
from support.mqtt.failing_disk import Client, run


@pytest.mark.parametrize("seed", [1, 2, 3, 202])
def test_a_failing_disk_leaves_nothing_half_done(seed: int) -> None:
    run(seed)


def test_a_session_whose_first_subscription_was_refused_gets_what_its_next_one_takes(tmp_path: Path) -> None:
    server, client = Server(tmp_path), Client("x")
    disk = Disk(server.fixture).stand_before()

    def receive() -> None:
        server.settle()
        assert client.connection is not None
        for got in client.connection.got():
            client.handle(got, acknowledges=True)

    client.connect(server, clean=False)
    receive()
    disk.trouble = "full"
    client.subscribe("s/#", 1)
    receive()
    assert client.filters == set()
    disk.trouble = ""
    client.subscribe("s/a", 1)
    receive()
    assert client.filters == {"s/a"}
    server.fixture.publish(b"s.a", b"come")
    receive()
    receive()
    assert client.got == [b"come"]
    server.stop()
