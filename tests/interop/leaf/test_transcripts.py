"""The same raw conversations on the leaf port of eyotd and of Debian's nats-server, with a leaf that does as it likes."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.links.leaf_pair import server
from support.servers.eyotd import Eyotd
from support.servers.nats_server import debian_version
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: hub-server
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
accounts {
    ACC: { jetstream: enabled, users: [
        {user: acc, password: acc}
        {user: edge, password: edge, permissions: {publish: ["ok.>"], subscribe: ["in.>"]}}
    ] }
}
"""
TIMEOUT_S = 10.0
# INFO fields that both must agree on; the others say who the server is.
INFO_FIELDS = (
    "connect_info",
    "remote_account",
    "import",
    "export",
    "domain",
    "cluster",
    "info_on_connect",
    "auth_required",
)


@dataclass
class Heard:
    """What a leaf heard: lines without interest and PINGs, the interest, and whether the connection ended."""

    lines: list[bytes]
    interest: set[bytes]
    closed: bool


pytestmark = pytest.mark.skipif(
    debian_version() >= (2, 10), reason="the conversations are those of nats-server 2.9: later hubs say INFO first"
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Eyotd]]:
    path = tmp_path_factory.mktemp("hubs")
    with server("nats-server", CONFIG, path / "nats") as reference, Eyotd(CONFIG, path / "eyot") as eyotd:
        yield reference, eyotd


def connect(user: str = "acc", **changes: Any) -> bytes:
    fields = {
        "version": "2.9.10",
        "server_id": "NX",
        "name": "fake",
        "cluster": "fake",
        "domain": "leaf",
        "headers": True,
        "jetstream": True,
        "user": user,
        "pass": user,
    } | changes
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


def converse(hub: ServerProcess, first: bytes, *, then: bytes = b"", quiet_s: float = 0.0) -> Heard:
    """Say `first`, and once linked `then`; listen until the answer to a last PING, or until the hub closes.

    `quiet_s`: for peers that say nothing useful, how long to listen at most.
    """
    heard = b""
    closed = False
    with socket.create_connection((hub.host, hub.leaf_port)) as sock:
        sock.settimeout(TIMEOUT_S)
        while b"\r\n" not in heard:
            heard += sock.recv(65536)
        sock.sendall(first)
        asked = False
        while not closed:
            if not asked and b'"connect_info"' in heard and heard.endswith(b"\r\n"):
                # The last word: everything said before it has been dealt with when its answer comes.
                sock.sendall(then + b"PING\r\n")
                asked = True
            if asked and b"PONG\r\n" in heard.partition(b'"connect_info"')[2]:
                break
            try:
                sock.settimeout(quiet_s or TIMEOUT_S)
                data = sock.recv(65536)
            except ConnectionResetError:
                data = b""
            closed = not data
            heard += data
    return _sorted_out(heard, closed)


def _sorted_out(heard: bytes, closed: bool) -> Heard:
    lines, interest = [], set()
    for line in heard.split(b"\r\n"):
        if line.startswith(b"LS+ "):
            interest.add(re.sub(rb"\$LDS\.\w{22}$", b"$LDS.*", line[4:]))
        elif line.startswith(b"INFO "):
            info = json.loads(line[5:])
            lines.append(
                json.dumps({name: info[name] for name in INFO_FIELDS if name in info}, sort_keys=True).encode()
            )
        elif line not in (b"", b"PING"):
            lines.append(line)
    return Heard(lines, interest, closed)


LINKED = {
    "plain and queue interest": b"LS+ a\r\nLS+ q g 3\r\n",
    "interest twice, withdrawn twice": b"LS+ a\r\nLS+ a\r\nLS- a\r\nLS- a\r\n",
    "withdrawn but never there": b"LS- nothing\r\nLS- a q\r\n",
    "all of the JetStream API": b"LS+ $JS.API.>\r\n",
    "one call of the JetStream API": b"LS+ $JS.API.INFO\r\n",
    "interest with two arguments": b"LS+ a q\r\n",
    "interest with four arguments": b"LS+ a q 1 2\r\n",
    "weight that is no number": b"LS+ a q x\r\n",
    "empty token": b"LS+ a..b\r\n",
    "wildcard in the middle": b"LS+ foo.>.b\r\n",
    "unknown operation": b"FOO bar\r\n",
    "message with a bad indicator": b"LMSG a x r q 1\r\nx\r\n",
    "message longer than it says": b"LMSG a 1\r\nxyz\r\n",
    "message without size": b"LMSG a\r\n",
    "header longer than the message": b"HMSG a 10 5\r\nNATS/1.0\r\n",
    "error of the leaf": b"-ERR 'whatever'\r\n",
    "+OK": b"+OK\r\n",
    "lower case": b"ls+ a\r\nlmsg a 1\r\nx\r\nping\r\n",
    "tabs and spaces": b"LS+ \t a\r\nLMSG  a \t 1\r\nx\r\n",
}


@pytest.mark.parametrize("then", LINKED.values(), ids=LINKED.keys())
def test_linked_leaf(servers: tuple[ServerProcess, Eyotd], then: bytes) -> None:
    reference, eyotd = (converse(hub, connect(), then=then) for hub in servers)
    assert (eyotd.lines, eyotd.closed) == (reference.lines, reference.closed)
    # Servers since 2.10 answer this besides, as Eyot does.
    assert eyotd.interest - {b"$SYS.REQ.USER.INFO"} == reference.interest - {b"$SYS.REQ.USER.INFO"}


FIRST = {
    "client": connect(lang="go"),
    "wrong password": connect(**{"pass": "x"}),
    "unknown user": connect("nobody"),
    "gateway": connect(gateway="g"),
    "unreadable CONNECT": b"CONNECT {x\r\n",
    "interest first": b"LS+ a\r\n",
    "PING first": b"PING\r\n",
    "SUB first": b"SUB a 1\r\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "nothing": b"",
    "an empty line": b"\r\n",
    "isolated": connect(isolate=True),
    "hub": connect(is_hub=True),
    "without cluster": connect(cluster=""),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST.keys())
def test_first_words(servers: tuple[ServerProcess, Eyotd], first: bytes) -> None:
    reference, eyotd = (converse(hub, first) for hub in servers)
    assert (eyotd.lines, eyotd.closed) == (reference.lines, reference.closed)


RESTRICTED = {
    "allowed interest": b"LS+ in.a\r\nLS+ *.a\r\n",
    "forbidden interest": b"LS+ zz.top\r\n",
    "interest in what it may publish": b"LS+ ok.a\r\n",
    "allowed message": b"LMSG ok.a 1\r\nx\r\n",
    "reply to a service": b"LMSG _R_.abcdef.g 1\r\nx\r\n",
}


@pytest.mark.parametrize("then", RESTRICTED.values(), ids=RESTRICTED.keys())
def test_restricted_leaf(servers: tuple[ServerProcess, Eyotd], then: bytes) -> None:
    reference, eyotd = (converse(hub, connect("edge"), then=then) for hub in servers)
    assert (eyotd.lines, eyotd.closed) == (reference.lines, reference.closed)


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (connect("edge"), b"LMSG nope 1\r\nx\r\n", b"-ERR 'Permissions Violation for Publish to \"nope\"'"),
        (connect(), b"LMSG a 2000000\r\n", b"-ERR 'Maximum Payload Violation'"),
        (connect(cluster="a b"), b"", b"-ERR 'cluster name cannot contain spaces'"),
    ],
)
def test_where_newer_servers_are_stricter_than_2_9(
    servers: tuple[ServerProcess, Eyotd], first: bytes, then: bytes, words: bytes
) -> None:
    heard = converse(servers[1], first, then=then)
    assert heard.closed
    assert heard.lines[-1] == words


def test_two_links_of_one_leaf_from_one_account(servers: tuple[ServerProcess, Eyotd]) -> None:
    """The newer link stays. (2.9 also takes links from two accounts of a leaf for the same.)"""
    hub = servers[1]
    with socket.create_connection((hub.host, hub.leaf_port)) as first:
        first.settimeout(TIMEOUT_S)
        first.sendall(connect(remote_account="L"))
        assert not converse(hub, connect(remote_account="M")).closed
        assert not converse(hub, connect(remote_account="L", name="other")).closed
        assert not converse(hub, connect(remote_account="L")).closed
        heard = b""
        while data := first.recv(65536):
            heard += data
        assert heard.endswith(b"-ERR 'Duplicate Remote LeafNode Connection'\r\n")


def test_messages_to_a_leaf_have_the_reference_form(servers: tuple[ServerProcess, Eyotd]) -> None:
    """Plain, with reply, with queues and with headers, byte for byte."""
    assert _received(servers[0]) == _received(servers[1])


def _received(hub: ServerProcess) -> bytes:
    with (
        socket.create_connection((hub.host, hub.leaf_port)) as leaf,
        socket.create_connection((hub.host, hub.client_port)) as client,
    ):
        leaf.settimeout(TIMEOUT_S)
        client.settimeout(TIMEOUT_S)
        leaf.sendall(connect())
        _until(leaf, b'"connect_info"')
        leaf.sendall(b"LS+ form.*\r\nLS+ form.q g 1\r\nLS+ form.q h 2\r\nLS+ form.only g 1\r\nPING\r\n")
        _until(leaf, b"PONG\r\n")
        client.sendall(
            b'CONNECT {"verbose":false,"headers":true,"user":"acc","pass":"acc"}\r\n'
            b"PUB form.a 1\r\n1\r\n"
            b"PUB form.a back 1\r\n2\r\n"
            b"HPUB form.a 12 13\r\nNATS/1.0\r\n\r\n3\r\n"
            b"HPUB form.a back 12 13\r\nNATS/1.0\r\n\r\n4\r\n"
            b"PUB form.q 1\r\n5\r\n"
            b"PUB form.q back 1\r\n6\r\n"
            b"HPUB form.q back 12 13\r\nNATS/1.0\r\n\r\n7\r\n"
            b"PUB end 0\r\n\r\nPING\r\n"
        )
        _until(client, b"PONG\r\n")
        heard = _until(leaf, b"7\r\n")
    frames = re.findall(rb"(?:LMSG|HMSG) [^\r]*\r\n(?:NATS/1\.0\r\n\r\n)?\d\r\n", heard)
    assert len(frames) == 7
    # Which of a message's groups comes first is chance.
    return b"".join(re.sub(rb" (g h|h g) ", b" g h ", frame) for frame in frames)


def _until(sock: socket.socket, mark: bytes) -> bytes:
    heard = b""
    while mark not in heard:
        data = sock.recv(65536)
        assert data, heard
        heard += data
    return heard


def test_everybody_else_is_unharmed_by_a_flood_of_bad_leafs(servers: tuple[ServerProcess, Eyotd]) -> None:
    hub = servers[1]
    for first in (*FIRST.values(), b"LMSG a 999999999\r\n", b"\x00" * 5000, b"LS+ " + b"a" * 100_000 + b"\r\n"):
        if first:
            with socket.create_connection((hub.host, hub.leaf_port)) as sock:
                sock.sendall(first)
    assert not converse(hub, connect(), then=b"LS+ a\r\n").closed
