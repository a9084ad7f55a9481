"""Events of the system account: the same ones, with the same members, from `eyotd` and from Debian's `nats-server`."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess
from support.trust.claims import USER

CONFIG = """
accounts { A { users: [ {user: a, password: a} ] }, SYS { users: [ {user: s, password: s} ] } }
system_account: SYS
"""


def wait_for(client: RawClient, ending: bytes) -> dict[str, Any]:
    """The next event whose subject ends so."""
    while True:
        words = client.until(b"\r\n").split()
        assert words, "the connection ended"
        if words[0] != b"MSG":
            continue
        body = client.until(b"\r\n")
        if words[1].endswith(ending):
            event: dict[str, Any] = json.loads(body)
            return event


def request(client: RawClient, subject: str, body: str) -> Any:
    """The answer without its `server`."""
    client.send(f"SUB _I.1 9\r\nUNSUB 9 1\r\nPUB {subject} _I.1 {len(body)}\r\n{body}\r\n".encode())
    while not (line := client.until(b"\r\n")).startswith(b"MSG _I.1 9 "):
        assert line, "the connection ended"
    answer = json.loads(client.until(b"\r\n"))
    del answer["server"]
    return answer


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_one_client_is_let_go(kind: Callable[[str, Path], ServerProcess], tmp_path: Path) -> None:
    server = kind(CONFIG, tmp_path)
    server.start()
    try:
        with (
            RawClient(server.client_port, user="s", **{"pass": "s"}) as system,
            RawClient(server.client_port, user="a", protocol=1, **{"pass": "a"}) as client,
        ):
            client.ask()
            cid = client.info["client_id"]
            own = f"$SYS.REQ.SERVER.{system.info['server_id']}."
            assert request(system, own + "LDM", '{"cid":99}')["error"] == {
                "code": 500,
                "description": "no such client id",
            }
            assert request(system, own + "LDM", f'{{"cid":{cid}}}') == {}
            while b'"ldm":true' not in (line := client.until(b"\r\n")):
                assert line.startswith(b"INFO "), line
            assert request(system, own + "KICK", '{"cid":99}')["error"] == {
                "code": 500,
                "description": "no such client or leafnode id",
            }
            assert request(system, own + "KICK", f'{{"cid":{cid}}}') == {}
            client.rest()
    finally:
        server.kill()


FULL = """
authorization { timeout: 1 }
accounts {
  A { users: [ {user: a, password: a}, {nkey: NKEY} ], limits { max_connections: 1 } }
  B { users: [ {user: b, password: b} ] }
  SYS { users: [ {user: s, password: s} ] }
}
system_account: SYS
""".replace("NKEY", USER.public)


def told_of(system: RawClient, last: str) -> list[tuple[str, str, str, int]]:
    """Events of accounts up to the end of client `last`: where, whose, why, and how many connections there are."""
    told = []
    while True:
        words = system.until(b"\r\n").split()
        assert words, "the connection ended"
        if words[0] != b"MSG":
            continue
        event = json.loads(system.until(b"\r\n"))
        where = ".".join(words[1].decode().replace(system.info["server_id"], "ID").split(".")[1:])
        client = event.get("client", {})
        if event.get("reason") == "Read Error":  # of the look whether the server listens, which may be told late
            continue
        whose = f"{client.get('acc')} {client.get('user')} {client.get('name')}"
        told.append((where, whose if client else "", event.get("reason", ""), event.get("conns", -1)))
        if client.get("name") == last and "reason" in event:
            return told


def refuse_for_an_account(port: int) -> None:
    """A full account refuses clients of all kinds; one that logged in twice; one that came too late."""

    def client(name: str, user: str, password: str = "") -> RawClient:
        made = RawClient(port, user=user, name=name, **{"pass": password or user})
        return made

    def again(made: RawClient, name: str, user: str, password: str) -> None:
        words = {"user": user, "pass": password, "name": name}
        made.send(b"CONNECT %b\r\n" % json.dumps(words).encode())

    with client("first", "a") as first, client("moves", "b") as moves:
        first.ask()
        client("full", "a").rest()
        with RawClient(port, connect=None) as signs:
            signature = base64.urlsafe_b64encode(USER.signer.sign(signs.info["nonce"].encode())).rstrip(b"=").decode()
            words = {"nkey": USER.public, "sig": signature, "name": "signs"}
            signs.send(b"CONNECT %b\r\n" % json.dumps(words).encode())
            signs.rest()
        moves.ask()
        again(moves, "moved", "a", "a")
        moves.rest()
    with client("once", "b") as twice:
        twice.ask()
        again(twice, "twice", "b", "b")
        twice.ask()
        again(twice, "thrice", "a", "wrong")
        twice.rest()
    with RawClient(port, connect=None) as late:
        late.rest()
    with client("last", "b") as last:
        last.ask()


def test_an_account_is_told_of_those_it_refuses(tmp_path: Path) -> None:
    """By name where the user has a password, and of no count; who comes too late is no failed login."""
    told = []
    for kind in (Eyotd, NewerNatsServer):
        server = kind(FULL, tmp_path / kind.__name__)
        server.start()
        try:
            with RawClient(server.client_port, user="s", **{"pass": "s"}) as system:
                subjects = ("ACCOUNT.A.>", "ACCOUNT.B.>", "ACCOUNT.$G.>", "SERVER.*.CLIENT.AUTH.ERR")
                system.ask(b"".join(b"SUB $SYS.%b %d\r\n" % (each.encode(), at) for at, each in enumerate(subjects)))
                refuse_for_an_account(server.client_port)
                told.append(sorted(told_of(system, "last")))
        finally:
            server.kill()
    assert told[0] == told[1]
    assert ("ACCOUNT.A.CONNECT", "A a full", "", -1) in told[0]


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_users_of_the_global_account_hear_of_refusals(
    kind: Callable[[str, Path], ServerProcess], tmp_path: Path
) -> None:
    server = kind("authorization { users: [ {user: a, password: a} ] }\n", tmp_path)
    server.start()
    try:
        with RawClient(server.client_port, user="a", **{"pass": "a"}) as listener:
            listener.ask(b"SUB $SYS.ACCOUNT.CLIENT.AUTH.ERR 1\r\n")
            with RawClient(server.client_port, user="b", **{"pass": "wrong"}) as client:
                client.rest()
            refused = wait_for(listener, b".CLIENT.AUTH.ERR")
            assert (refused["client"]["acc"], refused["client"]["user"]) == ("$G", "b")
            assert refused["reason"] == "Authentication Failure"
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_who_never_logs_in_leaves_the_global_account(
    kind: Callable[[str, Path], ServerProcess], tmp_path: Path
) -> None:
    users = "accounts { A { users: [ {user: a, password: a} ] }, SYS { users: [ {user: s, password: s} ] } }\n"
    server = kind(users + "system_account: SYS\n", tmp_path)
    server.start()
    try:
        with RawClient(server.client_port, user="s", **{"pass": "s"}) as system:
            system.ask(b"SUB $SYS.ACCOUNT.$G.DISCONNECT 1\r\nSUB $SYS.SERVER.*.CLIENT.AUTH.ERR 2\r\n")
            for sent, user in ((b'CONNECT {"user":"a","pass":"b"}\r\n', "a"), (b"PUB a 0\r\n\r\n", "")):
                with RawClient(server.client_port, connect=None) as client:
                    client.send(sent)
                    client.rest()
                events = dict(next_event(system, "Authentication Failure") for _ in range(2))
                refused = f"$SYS.SERVER.{system.info['server_id']}.CLIENT.AUTH.ERR"
                assert events.keys() == {refused, "$SYS.ACCOUNT.$G.DISCONNECT"}
                assert {(event["acc"], event.get("user", "")) for event in events.values()} == {("$G", user)}
            RawClient(server.client_port, connect=None).sock.close()
            subject, event = next_event(system, "Client Closed")
            assert (subject, event["acc"]) == ("$SYS.ACCOUNT.$G.DISCONNECT", "$G")
    finally:
        server.kill()


def next_event(listener: RawClient, reason: str) -> tuple[str, dict[str, Any]]:
    """Return the next event with this reason (the test's own first connections end, too): its subject, and the client."""
    while True:
        line = listener.until(b"\r\n")
        assert line, "the connection ended"
        if line == b"PING\r\n":
            listener.send(b"PONG\r\n")
        if line.startswith(b"MSG "):
            words = line.split()
            event: dict[str, Any] = json.loads(listener.exactly(int(words[-1]) + 2))
            if event["reason"] == reason:
                return words[1].decode(), event["client"]


LEAF_CONFIG = """
server_name: pump
accounts { B { users: [ {user: b, password: b} ] }, SYS { users: [ {user: s, password: s} ] } }
system_account: SYS
leafnodes { remotes [ { url: "nats-leaf://a:a@127.0.0.1:HUB_PORT", account: B } ], reconnect: 1 }
"""


def message_to(listener: RawClient, publisher: RawClient) -> int:
    """Publish three bytes on `x` until the listener, which subscribed to it, hears one; return how many were published."""
    listener.sock.settimeout(0.1)
    for count in range(1, 600):
        publisher.ask(b"PUB x 3\r\nabc\r\n")
        try:
            while (line := listener.until(b"\r\n")) == b"PING\r\n":
                pass
            assert line.startswith(b"MSG x "), line
        except TimeoutError:
            continue
        return count
    raise AssertionError("no message crosses the link")


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
@pytest.mark.parametrize("leaf_kind", [Eyotd, NewerNatsServer])
def test_a_leaf_node_comes_and_goes(
    kind: Callable[[str, Path], ServerProcess], leaf_kind: Callable[[str, Path], ServerProcess], tmp_path: Path
) -> None:
    hub = kind(CONFIG + 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }\n', tmp_path / "hub")
    hub.start()
    leaf = leaf_kind(LEAF_CONFIG.replace("HUB_PORT", str(hub.leaf_port)), tmp_path / "leaf")
    members = {"start", "host", "id", "acc", "name_tag", "kind"}
    try:
        with (
            RawClient(hub.client_port, user="s", **{"pass": "s"}) as system,
            RawClient(hub.client_port, user="a", **{"pass": "a"}) as listener,
        ):
            system.ask(b"SUB $SYS.ACCOUNT.A.> 1\r\n")
            listener.ask(b"SUB x 1\r\n")
            leaf.start()
            while wait_for(system, b".A.SERVER.CONNS")["leafnodes"] != 1:
                pass  # that of the listener
            came = wait_for(system, b".A.CONNECT")
            assert came["type"] == "io.nats.server.advisory.v1.client_connect"
            who = came["client"]
            assert set(who) == members | {"user", "name", "ver"}
            assert (who["acc"], who["user"], who["name"], who["kind"]) == ("A", "a", "pump", "Leafnode")
            with RawClient(leaf.client_port, user="b", **{"pass": "b"}) as publisher:
                published = message_to(listener, publisher)
            leaf.kill()
            gone = wait_for(system, b".A.DISCONNECT")
            assert gone["type"] == "io.nats.server.advisory.v1.client_disconnect"
            assert set(gone["client"]) - {"rtt"} == set(who) | {"stop"}
            assert gone["client"]["id"] == who["id"]
            assert 1 <= gone["sent"]["msgs"] <= published
            assert gone["sent"]["bytes"] == 3 * gone["sent"]["msgs"]
            assert gone["received"] == {"msgs": 0, "bytes": 0}
            assert gone["reason"]
        leaf.start()
        with RawClient(leaf.client_port, user="s", **{"pass": "s"}) as system:
            while request(system, "$SYS.REQ.SERVER.PING.LEAFZ", "{}")["data"]["leafnodes"] != 1:
                time.sleep(0.05)
            system.ask(b"SUB $SYS.ACCOUNT.B.> 1\r\n")
            hub.kill()
            gone = wait_for(system, b".B.DISCONNECT")
            assert set(gone["client"]) - {"rtt"} == members | {"stop"}
            assert (gone["client"]["acc"], gone["client"]["kind"]) == ("B", "Leafnode")
            hub.start()
            assert set(wait_for(system, b".B.CONNECT")["client"]) == members
    finally:
        leaf.kill()
        hub.kill()


@pytest.mark.parametrize("kind", [Eyotd, NatsServer])
def test_a_client_comes_and_goes(kind: type[ServerProcess], tmp_path: Path) -> None:
    server = kind(CONFIG, tmp_path)
    server.start()
    try:
        with RawClient(server.client_port, user="s", **{"pass": "s"}) as system:
            system.ask(b"SUB $SYS.ACCOUNT.> 1\r\nSUB $SYS.SERVER.> 2\r\n")
            fields = {"user": "a", "pass": "a", "name": "n", "lang": "l", "version": "1", "protocol": 1}
            with RawClient(server.client_port, **fields) as client:
                came = wait_for(system, b".A.CONNECT")
                assert came["type"] == "io.nats.server.advisory.v1.client_connect"
                assert came["server"]["id"] == system.info["server_id"]
                who = came["client"]
                assert (who["acc"], who["user"], who["name"], who["lang"], who["ver"]) == ("A", "a", "n", "l", "1")
                client.ask(b"SUB x 1\r\nPUB x 3\r\nabc\r\n")
            gone = wait_for(system, b".A.DISCONNECT")
            assert gone["type"] == "io.nats.server.advisory.v1.client_disconnect"
            assert gone["client"]["id"] == who["id"]
            assert gone["client"]["stop"] > gone["client"]["start"]
            assert gone["sent"] == gone["received"] == {"msgs": 1, "bytes": 3}
            assert gone["reason"] == "Client Closed"
            with RawClient(server.client_port, user="a", **{"pass": "wrong"}) as client:
                client.rest()
            refused = wait_for(system, b".CLIENT.AUTH.ERR")
            assert (refused["client"]["user"], refused["reason"]) == ("a", "Authentication Failure")
            assert "statsz" in wait_for(system, b".STATSZ")
            server.signal(signal.SIGTERM)
            wait_for(system, b".SHUTDOWN")
    finally:
        server.kill()
