"""Tokens on the leaf port in operator mode, beside nats-server: who is let in, and what becomes of a link whose token ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from support.links.leaf_pair import reaches, server
from support.links.raw_leaf import Peer
from support.servers.server_process import ServerProcess
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SIGNING, SYSTEM, USER, Key, creds, operator_conf

KINDS = ["eyotd", "2.14.6"]
# nats-server asks other servers for an account that it does not know, for 1.9 s. A login may take 2 s unless more is configured.
LEAFNODES = """
    server_name: hub-server
    leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true, authorization { timeout: 60 } }
"""


def started(kind: str, folder: Path, *accounts: str) -> ServerProcess:
    resolver = f'{{ type: full, dir: "{folder / "jwt"}", allow_delete: true }}'
    process = server(kind, LEAFNODES + operator_conf(*accounts, resolver=resolver), folder)
    process.start()
    return process


@pytest.fixture(scope="module", params=KINDS)
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """ALPHA has revoked OTHER; BETA has expired."""
    now = int(time.time())
    alpha = OPERATOR.account(ALPHA, revocations={OTHER.public: now})
    found = started(request.param, tmp_path_factory.mktemp("hub"), alpha, OPERATOR.account(BETA, exp=now - 5))
    yield found
    found.kill()


def _changed(kind: str, folder: Path, process: ServerProcess, claims: str, *, delete: bool = False) -> None:
    """What `nsc push` does."""
    path = folder / "system.creds"
    path.write_text(creds(SYSTEM.user(OTHER), OTHER))

    async def run() -> None:
        client = await nats.connect(process.client_url(), user_credentials=str(path), allow_reconnect=False)
        subject = "$SYS.REQ.CLAIMS.DELETE" if delete else "$SYS.REQ.CLAIMS.UPDATE"
        answer = json.loads((await client.request(subject, claims.encode(), timeout=10)).data)
        assert answer["data"]["code"] == 200, answer
        await client.close()

    asyncio.run(run())


def _token(case: str) -> tuple[str, Key, bytes | None]:
    now = int(time.time())
    return {
        "expired": (ALPHA.user(USER, claims={"exp": now - 1}), USER, None),
        "not valid yet": (ALPHA.user(USER, claims={"nbf": now + 3600}), USER, None),
        "revoked": (ALPHA.user(OTHER, claims={"iat": now - 10}), OTHER, None),
        "of an account that has expired": (BETA.user(USER), USER, None),
        "of an account that nobody knows": (SIGNING.user(USER), USER, None),
        "with another's signature": (ALPHA.user(USER), OTHER, None),
        "with the signature of another nonce": (ALPHA.user(USER), USER, b"another"),
        "from elsewhere": (ALPHA.user(USER, src=["10.0.0.0/8"]), USER, None),
        "for other connections": (ALPHA.user(USER, allowed_connection_types=["WEBSOCKET"]), USER, None),
        "cut off": (ALPHA.user(USER)[:-8], USER, None),
        "that is none": ("x.y.z", USER, None),
    }[case]


@pytest.mark.parametrize(
    "case",
    [
        "expired",
        "not valid yet",
        "revoked",
        "of an account that has expired",
        "of an account that nobody knows",
        "with another's signature",
        "with the signature of another nonce",
        "from elsewhere",
        "for other connections",
        "cut off",
        "that is none",
    ],
)
def test_a_token_that_opens_nothing(case: str, hub: ServerProcess) -> None:
    token, key, signed = _token(case)
    other = Peer.with_token(hub.leaf_port, ALPHA.user(USER), USER, name="other").linked()
    peer = Peer.with_token(hub.leaf_port, token, key, signed=signed)
    assert peer.outcome(30) == ("Authorization Violation", True)
    other.send(b"PING\r\n")
    other.until(rb"(?s)PONG\r\n.*PONG\r\n")
    assert other.outcome(0.1) == ("", False)
    peer.close()
    other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_end_under_their_links(kind: str, tmp_path: Path) -> None:
    """A user's token expires, a user is revoked, an account expires, an account is deleted; a fifth link lives through it all."""
    hub = started(kind, tmp_path, *map(OPERATOR.account, (ALPHA, BETA, SIGNING)))
    try:
        port, now = hub.leaf_port, int(time.time())
        lasting = Peer.with_token(port, ALPHA.user(USER), USER, name="lasting").linked()
        short = Peer.with_token(port, ALPHA.user(USER, claims={"exp": now + 8}), USER, name="short").linked()
        revoked = Peer.with_token(port, ALPHA.user(OTHER, claims={"iat": now - 10}), OTHER, name="revoked").linked()
        deleted = Peer.with_token(port, BETA.user(USER), USER, name="deleted").linked()
        expiring = Peer.with_token(port, SIGNING.user(USER), USER, name="expiring").linked()
        _changed(kind, tmp_path, hub, OPERATOR.account(ALPHA, revocations={OTHER.public: now}))
        assert revoked.outcome(10) == ("User Authentication Revoked", True)
        delete = OPERATOR.sign(OPERATOR.public, {"type": "generic", "accounts": [BETA.public]})
        _changed(kind, tmp_path, hub, delete, delete=True)
        assert deleted.outcome(10) == ("Account Authentication Expired", True)
        _changed(kind, tmp_path, hub, OPERATOR.account(SIGNING, exp=int(time.time()) + 2))
        assert short.outcome(20) == ("User Authentication Expired", True)
        assert expiring.outcome(20) == ("Account Authentication Expired", True)
        for token, key in ((ALPHA.user(OTHER, claims={"iat": now - 10}), OTHER), (BETA.user(USER), USER)):
            assert Peer.with_token(port, token, key).outcome(30) == ("Authorization Violation", True)
        assert lasting.outcome(0.5) == ("", False)
    finally:
        hub.kill()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whose", ["account", "user"])
def test_limits_of_a_token_hold_on_its_link(whose: str, kind: str, tmp_path: Path) -> None:
    """A larger message ends the link, and no more than the allowed subjects are subscribed to."""
    limits = {"payload": 100, "subs": 3}
    hub = started(kind, tmp_path, OPERATOR.account(ALPHA, limits=limits if whose == "account" else {}))
    try:
        token = ALPHA.user(USER, **(limits if whose == "user" else {}))
        peer = Peer.with_token(hub.leaf_port, token, USER).linked()
        peer.send(b"".join(b"LS+ s.%d\r\n" % number for number in range(5)) + b"LMSG x 100\r\n" + b"x" * 100 + b"\r\n")
        assert peer.outcome(1) == ("maximum subscriptions exceeded", False)
        (told,) = hub.monitor("/leafz?subs=1")["leafs"]
        assert len(told["subscriptions_list"]) == 3
        peer.send(b"LMSG x 101\r\n" + b"x" * 101 + b"\r\n")
        assert peer.outcome(10) == ("Maximum Payload Violation", True)
    finally:
        hub.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_is_lowered_holds_on_links_that_are_there(kind: str, tmp_path: Path) -> None:
    hub = started(kind, tmp_path, OPERATOR.account(ALPHA))
    try:
        peer = Peer.with_token(hub.leaf_port, ALPHA.user(USER), USER).linked()
        peer.send(b"LMSG x 101\r\n" + b"x" * 101 + b"\r\n")
        assert peer.outcome(0.5) == ("", False)
        _changed(kind, tmp_path, hub, OPERATOR.account(ALPHA, limits={"payload": 100}))
        peer.send(b"LMSG x 101\r\n" + b"x" * 101 + b"\r\n")
        assert peer.outcome(10) == ("Maximum Payload Violation", True)
    finally:
        hub.kill()


def test_a_leaf_node_keeps_to_the_limit_that_its_hub_tells(tmp_path: Path) -> None:
    """Eyot to Eyot: what is too large is dropped and counted, and the link stays."""
    hub = started("eyotd", tmp_path, OPERATOR.account(ALPHA, limits={"payload": 100}))
    (tmp_path / "leaf").mkdir()
    path = tmp_path / "leaf" / "user.creds"
    path.write_text(creds(ALPHA.user(USER), USER))
    remote = f'{{ url: "nats://127.0.0.1:{hub.leaf_port}", credentials: "{path}" }}'
    leaf = server("eyotd", f"server_name: gateway\nleafnodes {{ remotes [ {remote} ] }}\n", tmp_path / "leaf")

    async def run() -> None:
        at_hub = await nats.connect(hub.client_url(), user_credentials=str(path))
        at_leaf = await nats.connect(leaf.client_url())
        await reaches(at_leaf, at_hub)
        heard = await at_hub.subscribe("x")
        await at_hub.flush()
        await reaches(at_leaf, at_hub)
        for size in (100, 101, 99):
            await at_leaf.publish("x", b"x" * size)
        assert [len((await heard.next_msg(timeout=30)).data) for _ in range(2)] == [100, 99]
        await at_hub.close()
        await at_leaf.close()

    try:
        leaf.start()
        asyncio.run(run())
        assert hub.monitor("/leafz")["leafnodes"] == 1
        assert "Maximum Payload Violation" not in leaf.log()
    finally:
        leaf.kill()
        hub.kill()
