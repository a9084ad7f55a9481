"""Servers that cannot be reached: logged once while the job waits for them, and named in its final error."""

from __future__ import annotations

import logging

import pytest

from eyot_hub.connection import ConnectOptions
from eyot_hub.errors import ConnectionFailed
from eyot_hub.jetstream import JetStream
from support.server_process import free_port


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    streams = JetStream(ConnectOptions((f"127.0.0.1:{port}",), timeout_s=1.0, retry_s=1.5))
    why = f"no server could be reached: 127.0.0.1:{port}: Connection refused"
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectionFailed) as failed:
        streams.stream("S")
    assert str(failed.value) == why
    assert [record.getMessage() for record in caplog.records] == [f"{why}; trying again for 1.5 s"]
