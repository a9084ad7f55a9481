"""Servers of both kinds, for modules that play the same on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess, Start

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"


@pytest.fixture(scope="module")
def eyotd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as server:
        yield server


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("nats-server")) as server:
        yield server


@pytest.fixture(params=["eyotd", "nats-server"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts one server of either kind, with a configuration of the test's own."""
    started: list[ServerProcess] = []

    def run(config: str) -> ServerProcess:
        kind = Eyotd if request.param == "eyotd" else NatsServer
        started.append(kind(config, tmp_path))
        started[0].start()
        return started[0]

    yield run
    for server in started:
        server.kill()
