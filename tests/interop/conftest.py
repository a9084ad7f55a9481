"""Two servers with JetStream, one of each kind, for modules that play the same scenarios on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.eyotd import Eyotd
from support.nats_server import NatsServer
from support.server_process import ServerProcess

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"


@pytest.fixture(scope="module")
def eyotd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as server:
        yield server


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("nats-server")) as server:
        yield server
