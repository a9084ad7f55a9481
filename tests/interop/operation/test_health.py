"""`/healthz` reports a server that does not serve its configuration, in nats-server's words."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

JETSTREAM = "jetstream {{ store_dir: '{}' }}\nlame_duck_duration: 30s, lame_duck_grace_period: 20s\n"


def health(server: ServerProcess, query: str = "") -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/healthz{query}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_a_lame_duck_is_not_ready(kind: type[ServerProcess], tmp_path: Path) -> None:
    server = kind(JETSTREAM.format(tmp_path / "js"), tmp_path)
    with server, RawClient(server.client_port, protocol=1) as client:
        assert health(server) == (200, {"status": "ok"})
        client.ask()
        server.signal(signal.SIGUSR2)
        client.until(b'"ldm":true')
        told = "failed to be ready for connections after 1ms: server"
        assert health(server) == (500, {"status": "error", "error": told})
        assert health(server, "?js-server-only=1")[0] == 500
        errors = [{"type": "CONNECTION", "error": told}]
        assert health(server, "?details=1") == (500, {"status": "error", "errors": errors})


@pytest.fixture
def without_store(tmp_path: Path) -> Eyotd:
    """JetStream is configured, and both commits of its store are unreadable."""
    config = JETSTREAM.format(tmp_path / "js")
    server = Eyotd(config, tmp_path)
    with server:
        pass
    data = tmp_path / "js" / "eyot" / "data.mdb"
    with data.open("r+b") as file:
        file.write(b"\xff" * 8192)
    return Eyotd(config, tmp_path)


@pytest.mark.parametrize(
    ("query", "code"),
    [("", 503), ("?js-enabled-only=1", 503), ("?js-enabled=1", 503), ("?account=$G", 503), ("?js-server-only=1", 200)],
)
def test_configured_jetstream_that_does_not_run(without_store: Eyotd, query: str, code: int) -> None:
    with without_store as server:
        answer, page = health(server, query)
        assert answer == code
        if code == 503:
            assert page["status"] == "unavailable"
            assert page["error"].startswith("JetStream not enabled (10076): ")
            mark = "&" if query else "?"
            (told,) = health(server, f"{query}{mark}details=1")[1]["errors"]
            assert told == {"type": "JETSTREAM", "error": page["error"]}
        # Remains so, whatever is reloaded.
        server.signal(signal.SIGHUP)
        server.wait_log("eload")
        assert health(server, query)[0] == code
