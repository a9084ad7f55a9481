"""The servers that tests of the `eyot` tool play on: `eyotd` and nats-server, by turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js" }
"""
#: A system account, and one with JetStream, which is everybody's who does not log in.
ACCOUNTS = """
    accounts {
        SYS { users: [ { user: sys, password: sys } ] }
        APP { jetstream: enabled, users: [ { user: app, password: app } ] }
    }
    system_account: SYS
    no_auth_user: app
"""
SYSTEM = ("--user", "sys", "--password", "sys")


def servers(config: str = CONFIG) -> Any:
    """Return a fixture of a module: a server of each kind with this configuration."""

    @pytest.fixture(scope="module", params=[Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
    def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
        with request.param(config, tmp_path_factory.mktemp("server")) as server:
            yield server

    return running
