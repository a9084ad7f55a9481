"""Auth callout with a real daemon: who is let in, as whom, and what does not convince."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_wire.trust import nkey
from eyot_wire.trust.auth_callout import CurveKey
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.trust.callout_service import CalloutService

ISSUER = nkey.Signer(nkey.encode_seed("A", b"\7" * 32))
CONFIG = f"""
accounts {{ AUTH {{ users: [ {{ user: auth, password: auth }} ] }}, APP {{ }}, OTHER {{ }}, SYS {{ users: [{{user: s, password: s}}] }} }}
system_account: SYS
authorization {{ timeout: 2, auth_callout {{
    issuer: {ISSUER.public_key}, account: AUTH, auth_users: [auth, s], allowed_accounts: [APP], %XKEY%
}} }}
"""


def decide(request: dict[str, Any]) -> dict[str, Any] | str | None:
    presented = request["connect_opts"]
    who = presented.get("user", "")
    if who == "alice" and presented.get("pass") == "secret":
        return {"aud": "APP", "name": "alice", "nats": {"pub": {"allow": ["a.>"]}, "sub": {"deny": ["a.hidden"]}}}
    if who == "short":
        return {"aud": "APP", "name": "short", "exp": time.time_ns() // 10**9 + 2}
    if who == "elsewhere":
        return {"aud": "OTHER"}
    if who == "nowhere":
        return {"aud": "NOSUCH"}
    if who == "impostor":
        return {"aud": "APP", "sub": nkey.encode_public("U", b"\1" * 32)}
    if who == "web":
        return {"aud": "APP", "nats": {"allowed_connection_types": ["WEBSOCKET"]}}
    if who == "silence":
        return None
    return "who are you"


@pytest.fixture(params=["plain", "sealed"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Eyotd]:
    curve = CurveKey(b"\5" * 32) if request.param == "sealed" else None
    config = CONFIG.replace("%XKEY%", f"xkey: {curve.public_key}" if curve is not None else "")
    with (
        Eyotd(config, tmp_path) as process,
        RawClient(process.client_port, user="auth", headers=True, **{"pass": "auth"}) as client,
    ):
        process.service = CalloutService(client, ISSUER, decide, curve)  # type: ignore[attr-defined]
        yield process


def test_the_service_lets_in(server: Eyotd) -> None:
    with RawClient(server.client_port, user="alice", name="app", jwt="x.y.z", **{"pass": "secret"}) as client:
        # what is sent right behind CONNECT waits for the decision
        assert client.ask(b"SUB a.* 1\r\nPUB a.b 2\r\nhi\r\n") == b"MSG a.b 1 2\r\nhi\r\n"
        assert b"Permissions Violation for Publish" in client.ask(b"PUB b 0\r\n\r\n")
        assert client.ask(b"PUB a.hidden 0\r\n\r\n") == b""
        row = server.monitor("/connz?auth=1&acc=APP")["connections"][0]
        assert (row["account"], row["authorized_user"]) == ("APP", "alice")
    request = server.service.requests[0]  # type: ignore[attr-defined]
    assert request["aud"] == "nats-authorization-request"
    assert request["iss"] == request["server_id"]["id"]
    assert request["client_info"]["name"] == "app"
    assert request["client_info"]["host"] == "127.0.0.1"
    assert request["connect_opts"]["user"] == "alice"
    assert "jwt" not in request["connect_opts"], "a token means nothing without an operator"


@pytest.mark.parametrize("user", ["bob", "elsewhere", "nowhere", "impostor", "web"])
def test_the_service_does_not_convince(server: Eyotd, user: str) -> None:
    with RawClient(server.client_port, user=user, **{"pass": "secret"}) as client:
        assert client.rest().endswith(b"-ERR 'Authorization Violation'\r\n")
    assert "secret" not in server.log()


def test_an_answer_that_does_not_come(server: Eyotd) -> None:
    with RawClient(server.client_port, user="silence") as client:
        assert client.rest().endswith(b"-ERR 'Authorization Violation'\r\n")


def test_a_login_that_expires(server: Eyotd) -> None:
    with RawClient(server.client_port, user="short") as client:
        client.ask()
        assert client.rest().endswith(b"-ERR 'User Authentication Expired'\r\n")


def test_without_a_service_nobody_new_gets_in(tmp_path: Path) -> None:
    with Eyotd(CONFIG.replace("%XKEY%", ""), tmp_path) as server:
        with RawClient(server.client_port, user="alice", **{"pass": "secret"}) as client:
            assert client.rest().endswith(b"-ERR 'Authorization Violation'\r\n")
        with RawClient(server.client_port, user="auth", **{"pass": "auth"}) as client:
            assert client.ask(b"SUB x 1\r\nPUB x 0\r\n\r\n") == b"MSG x 1 0\r\n\r\n"


def leaf_of(server: Eyotd, user: str, tmp_path: Path) -> Eyotd:
    """A leaf that dials with this user and the password `secret`."""
    url = f"nats://{user}:secret@127.0.0.1:{server.leaf_port}"
    return Eyotd(f'leafnodes {{ reconnect: 1, remotes = [ {{ urls: ["{url}"] }} ] }}', tmp_path / user)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_leafs_are_asked_about_too(tmp_path: Path) -> None:
    config = CONFIG.replace("%XKEY%", "") + "leafnodes { listen: 127.0.0.1:%LEAF_PORT% }\n"
    with (
        Eyotd(config, tmp_path) as server,
        RawClient(server.client_port, user="auth", headers=True, **{"pass": "auth"}) as client,
    ):
        service = CalloutService(client, ISSUER, decide)
        with leaf_of(server, "alice", tmp_path):
            until(lambda: server.monitor("/leafz")["leafnodes"] == 1)
            row = server.monitor("/connz?auth=1&acc=APP")["connections"][0]
            assert (row["kind"], row["account"], row["authorized_user"]) == ("Leafnode", "APP", "alice")
            server.signal(signal.SIGHUP)
            until(lambda: "Reloaded server configuration" in server.log())
            assert server.monitor("/leafz")["leafs"][0]["id"] == row["cid"]  # who was let in from outside stays
        assert service.requests[0]["client_info"]["kind"] == "Leafnode"
        assert service.requests[0]["connect_opts"]["user"] == "alice"
        with leaf_of(server, "bob", tmp_path) as leaf:
            until(lambda: "Authorization Violation" in leaf.log())
            assert server.monitor("/leafz")["leafnodes"] == 0
