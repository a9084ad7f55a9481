"""Requests that nobody answers: the error tells a server without JetStream from a wrong domain, and both from permissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_hub.errors import HubError, NoResponders, Refused
from eyot_hub.options import source_options
from eyot_hub.planning import Planner
from support.servers.nats_server import NatsServer

CONFIG = """
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
accounts {
    A { jetstream: enabled, users: [
        { user: all, password: all }
        { user: some, password: some, permissions: { publish: { deny: ["$JS.there.API.>", "$JS.hub.API.>"] } } }
        { user: hidden, password: hidden, permissions: { publish: { deny: ["$JS.API.INFO"] } } }
    ] }
    B { users: [ { user: other, password: other } ] }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("unanswered")) as running:
        yield running


def failure(kind: type[HubError], server: NatsServer, user: str | None = "all", **options: str) -> str:
    login = {"user": user, "password": user} if user else {}
    at = {"servers": f"127.0.0.1:{server.client_port}", "stream": "S", "timeout": "10s", "retryFor": "100ms"}
    planner = Planner(source_options({**at, **login, **options}))
    try:
        with pytest.raises(kind) as failed:
            planner.streams()
    finally:
        planner.close()
    return str(failed.value)


def test_an_unknown_domain(server: NatsServer) -> None:
    peer = f"127.0.0.1:{server.client_port}"
    assert failure(NoResponders, server, domain="there") == (
        f"no responders on $JS.there.API.STREAM.INFO.S: option 'domain' is 'there', and {peer} knows no such domain; "
        "its own JetStream has the domain 'hub'"
    )
    assert failure(NoResponders, server, apiPrefix="JS.acc@there.API") == (
        "no responders on JS.acc@there.API.STREAM.INFO.S: option 'apiPrefix' is 'JS.acc@there.API', and "
        f"{peer} knows no such prefix; its own JetStream has the domain 'hub'"
    )
    hidden = failure(NoResponders, server, "hidden", domain="there")
    assert hidden == (
        "no responders on $JS.there.API.STREAM.INFO.S: it is unknown what answers there; check option 'domain' ('there')"
    )


def test_no_permission(server: NatsServer) -> None:
    refused = failure(Refused, server, "some", domain="there")
    assert 'Permissions Violation for Publish to "$JS.there.API.STREAM.INFO.S"' in refused


def test_an_account_without_jetstream(server: NatsServer) -> None:
    assert "JetStream not enabled for account" in failure(HubError, server, "other")
    assert "JetStream not enabled for account" in failure(NoResponders, server, "other", domain="there")


def test_a_server_without_jetstream(tmp_path: Path) -> None:
    with NatsServer("", tmp_path) as server:
        peer = f"127.0.0.1:{server.client_port}"
        assert failure(NoResponders, server, None) == (
            f"no responders on $JS.API.STREAM.INFO.S: {peer} has no JetStream; where another server has it, "
            "give its domain in option 'domain'"
        )
        assert failure(NoResponders, server, None, domain="there") == (
            f"no responders on $JS.there.API.STREAM.INFO.S: option 'domain' is 'there', and {peer} knows no such domain, "
            "nor JetStream of its own"
        )
