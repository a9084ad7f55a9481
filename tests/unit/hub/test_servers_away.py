"""Servers that cannot be reached: logged once while the job waits for them, and named in its final error."""

from __future__ import annotations

import logging

import msgspec
import pytest

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ConnectionFailed, NoAnswer
from eyot_hub.jetstream import JetStream
from eyot_wire import frames
from support.servers.server_process import free_port


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    streams = JetStream(ConnectOptions((f"127.0.0.1:{port}",), timeout_s=1.0, retry_s=1.5))
    why = f"no server could be reached: 127.0.0.1:{port}: Connection refused"
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectionFailed) as failed:
        streams.stream("S")
    assert str(failed.value) == why
    assert [record.getMessage() for record in caplog.records] == [f"{why}; trying again for 1.5 s"]


class DeadPeer:
    """A connection to a cluster that placed the consumers of some names on a server that died."""

    def __init__(self, dead: set[str], count: int) -> None:
        self.dead, self.count = dead, count

    def request(self, subject: str, payload: bytes) -> frames.Msg:
        name = subject.rpartition(".")[2]
        if subject.startswith("$JS.API.CONSUMER.DELETE."):
            return frames.Msg(b"inbox", b"1", b"", b"", b'{"success":true}')
        if len(self.dead) < self.count:
            self.dead.add(name)
        if name in self.dead:
            raise NoAnswer("no answer")
        answer = {"name": name, "delivered": {"consumer_seq": 0, "stream_seq": 6}}
        return frames.Msg(b"inbox", b"1", b"", b"", msgspec.json.encode(answer))

    def close(self) -> None: ...


def test_a_consumer_on_a_server_that_died_is_made_with_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    dead: set[str] = set()
    monkeypatch.setattr(Connection, "open", lambda options: DeadPeer(dead, 2))
    monkeypatch.setattr("eyot_hub.jetstream.RETRY_PAUSE_S", 0.0)
    streams = JetStream(ConnectOptions(("127.0.0.1:1",), retry_s=60.0))
    assert streams.sequence_at("S", "2026-01-01T00:00:00Z") == 7
    assert len(dead) == 2
