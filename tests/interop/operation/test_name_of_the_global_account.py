"""What pages call the global account, of eyotd and of a real nats-server: exporters make labels of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer


@pytest.mark.parametrize("kind", [NewerNatsServer, Eyotd])
def test_its_name_is_its_tag(kind: type[NewerNatsServer | Eyotd], tmp_path: Path) -> None:
    with kind('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path) as server, RawClient(server.client_port) as client:
        client.ask()
        assert server.monitor("/accountz?acc=$G")["account_detail"]["name_tag"] == "$G"
        assert server.monitor("/accstatz")["account_statz"][0]["name"] == "$G"
        assert server.monitor("/jsz?accounts=1")["account_details"][0]["name"] == "$G"
        row = server.monitor("/connz?auth=1")["connections"][0]
        assert ("account" in row, row["name_tag"]) == (False, "$G")
