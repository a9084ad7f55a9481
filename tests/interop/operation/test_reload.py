"""Reloading by signal: the same changes on `eyotd` and on Debian's `nats-server`, seen by connected clients."""

from __future__ import annotations

import select
import signal
import time
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.random_reloads import play
from support.servers.server_process import ServerProcess, Start


def reload(server: ServerProcess, config: str, expect: str = "Reloaded server configuration") -> str:
    """Change the file and signal; gives what was logged about it."""
    before = len(server.log())
    server.set_config(config)
    server.signal(signal.SIGHUP)
    deadline = time.monotonic() + 15
    while expect not in server.log()[before:]:
        assert time.monotonic() < deadline, server.log()[before:]
        time.sleep(0.02)
    return server.log()[before:]


def users(a: str = "", b: str = "", more: str = "") -> str:
    return f"""
    accounts {{
        A {{ users: [ {{ user: a, password: a {a} }} ] }}
        B {{ users: [ {{ user: b, password: b {b} }} ] }}
        {more}
    }}
    """


def test_permissions_are_judged_anew(start: Start) -> None:
    server = start(users())
    with RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        assert client.ask(b"SUB foo 1\r\nSUB bar 2\r\nSUB q.* workers 3\r\n") == b""
        reload(server, users(a=", permissions: { subscribe: [foo, 'q.* others'], publish: foo }"))
        told = sorted(client.ask().splitlines())
        queue = b' using queue "workers"' if isinstance(server, Eyotd) else b""  # Debian's is too old to name it
        assert told == [
            b'-ERR \'Permissions Violation for Subscription to "bar" (sid "2")\'',
            b'-ERR \'Permissions Violation for Subscription to "q.*"%b (sid "3")\'' % queue,
        ]
        assert client.ask(b"PUB foo 1\r\nx\r\n") == b"MSG foo 1 1\r\nx\r\n"
        assert client.ask(b"PUB bar 1\r\nx\r\n") == b"-ERR 'Permissions Violation for Publish to \"bar\"'\r\n"
        reload(server, users())
        assert client.ask(b"SUB bar 4\r\nPUB bar 1\r\nx\r\n") == b"MSG bar 4 1\r\nx\r\n"


def test_a_denied_part_is_filtered_from_then_on(start: Start) -> None:
    server = start(users())
    with RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        assert client.ask(b"SUB a.* 1\r\nPUB a.x 1\r\n1\r\n") == b"MSG a.x 1 1\r\n1\r\n"
        reload(server, users(a=", permissions: { subscribe: { deny: a.x } }"))
        assert client.ask(b"PUB a.x 1\r\n2\r\nPUB a.y 1\r\n3\r\n") == b"MSG a.y 1 1\r\n3\r\n"


@pytest.mark.parametrize(
    "config",
    [
        "accounts { A { users: [ { user: b, password: b } ] } }",
        "accounts { A { users: [ { user: a, password: changed } ] } }",
    ],
    ids=["user gone", "password changed"],
)
def test_who_may_not_be_here_any_more_goes(start: Start, config: str) -> None:
    server = start(users())
    with RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        client.ask()
        reload(server, config)
        told = client.rest()
        if isinstance(server, Eyotd) or "changed" in config:  # nats-server does not tell a user that is gone
            assert told.endswith(b"-ERR 'Authorization Violation'\r\n")


def test_another_kind_of_authorization(tmp_path: Path) -> None:
    with Eyotd(users(), tmp_path) as server, RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        client.ask()
        reload(server, "authorization { token: t }")
        assert client.rest().endswith(b"-ERR 'Authorization Violation'\r\n")


def test_a_user_in_another_account_has_to_come_back(start: Start) -> None:
    server = start("accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }")
    with RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        client.ask()
        reload(server, "accounts { A { users: [{user: b, password: b}] }, B { users: [{user: a, password: a}] } }")
        assert b"-ERR" not in client.rest()


def test_authorization_where_there_was_none(tmp_path: Path) -> None:
    """Who presented what is asked for now may stay (nats-server closes such connections; they come back)."""
    with (
        Eyotd("", tmp_path) as server,
        RawClient(server.client_port) as nobody,
        RawClient(server.client_port, user="a", **{"pass": "a"}) as somebody,
    ):
        nobody.ask()
        somebody.ask()
        reload(server, "authorization { user: a, password: a }")
        assert nobody.rest().endswith(b"-ERR 'Authorization Violation'\r\n")
        assert somebody.ask(b"SUB x 1\r\nPUB x 0\r\n\r\n") == b"MSG x 1 0\r\n\r\n"
        assert RawClient(server.client_port, connect=None).info["auth_required"]


def test_imports_come_and_go(start: Start) -> None:
    joined = """
    accounts {
        A { users: [{user: a, password: a}], exports: [{stream: news}, {service: svc}], mappings { old: new } }
        B { users: [{user: b, password: b}], imports: [{stream: {account: A, subject: news}}, {service: {account: A, subject: svc}}] }
    }
    """
    server = start(users())
    with (
        RawClient(server.client_port, user="a", **{"pass": "a"}) as a,
        RawClient(server.client_port, user="b", **{"pass": "b"}) as b,
    ):
        a.ask(b"SUB svc 1\r\nSUB new 2\r\n")
        b.ask(b"SUB news 1\r\n")
        for config, shared in ((joined, True), (users(), False), (joined, True)):
            reload(server, config)
            assert a.ask(b"PUB news 1\r\nn\r\n") == b""
            assert b.ask(b"PUB svc 1\r\ns\r\n") == (b"MSG news 1 1\r\nn\r\n" if shared else b"")
            heard = a.ask(b"PUB old 1\r\no\r\n")
            assert heard == (b"MSG svc 1 1\r\ns\r\nMSG new 2 1\r\no\r\n" if shared else b"")


@pytest.mark.parametrize("seed", [100, 112, 120, 132, 143])
def test_random_reloads_beside_nats_server(seed: int, tmp_path: Path) -> None:
    """Any number of them: `tests/fuzz/reloads.py`."""
    assert play(seed, 3, tmp_path) == []


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_an_account_hears_of_its_client_whose_password_changed(
    kind: type[Eyotd | NewerNatsServer], tmp_path: Path
) -> None:
    both = "accounts {{ A {{ users: [{{user: a, password: a}}, {{user: c, password: {}}}] }} }}"
    with (
        kind(both.format("c"), tmp_path) as server,
        RawClient(server.client_port, user="a", **{"pass": "a"}) as listener,
        RawClient(server.client_port, user="c", **{"pass": "c"}) as client,
    ):
        listener.ask(b"SUB $SYS.ACCOUNT.CLIENT.AUTH.ERR 1\r\n")
        client.ask()
        reload(server, both.format("changed"))
        told = listener.until(b"Authentication Failure")
        assert told.startswith(b"MSG $SYS.ACCOUNT.CLIENT.AUTH.ERR 1 ")
        assert b'"acc":"A","user":"c"' in told


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_one_subject_for_the_services_of_several_accounts(kind: type[Eyotd | NewerNatsServer], tmp_path: Path) -> None:
    """Each of them is asked."""
    config = """
    accounts {
        A { users: [{user: a, password: a}], exports: [{service: q}] }
        B { users: [{user: b, password: b}], exports: [{service: q}] }
        C { users: [{user: c, password: c}], imports: [{service: {account: A, subject: q}}, {service: {account: B, subject: q}}] }
    }
    """
    with (
        kind(config, tmp_path) as server,
        RawClient(server.client_port, user="a", **{"pass": "a"}) as a,
        RawClient(server.client_port, user="b", **{"pass": "b"}) as b,
        RawClient(server.client_port, user="c", **{"pass": "c"}) as c,
    ):
        for each in (a, b):
            each.ask(b"SUB q 1\r\n")
        c.ask(b"SUB r 1\r\nPUB q 1\r\nx\r\n")
        assert [each.ask().endswith(b"x\r\n") for each in (a, b)] == [True, True]


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_the_user_of_those_who_do_not_log_in_goes(kind: type[Eyotd | NewerNatsServer], tmp_path: Path) -> None:
    with kind("no_auth_user: a\n" + users(), tmp_path) as server, RawClient(server.client_port) as anonymous:
        anonymous.ask()
        reload(server, users(), "config reload not supported for NoAuthUser: old=a, new=")
        assert anonymous.ask() == b""
        reload(server, "accounts { B { users: [ { user: b, password: b } ] } }")
        anonymous.rest()


def test_limits_reach_connected_clients(start: Start) -> None:
    server = start("max_payload: 100")
    with RawClient(server.client_port, protocol=1) as client:
        client.ask()
        log = reload(server, "max_payload: 10\nmax_control_line: 512\nping_max: 5\ndebug: true")
        assert "Reloaded: max_payload = 10" in log
        assert "Reloaded: max_control_line = 512" in log
        assert "Reloaded: ping_max = 5" in log
        assert "Reloaded: debug = true" in log
        client.send(b"PUB x 11\r\n")
        assert client.rest().endswith(b"-ERR 'Maximum Payload Violation'\r\n")


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_fewer_connections_of_an_account(kind: type[Eyotd | NewerNatsServer], tmp_path: Path) -> None:
    account = "accounts {{ A {{ users: [ {{ user: a, password: a }} ], limits: {{ max_connections: {} }} }} }}"
    with kind(account.format(10), tmp_path) as server:
        first, second = (RawClient(server.client_port, user="a", **{"pass": "a"}) for _ in range(2))
        assert first.ask() + second.ask() == b""
        reload(server, account.format(1))
        told, _, _ = select.select([first.sock, second.sock], [], [], 10)
        # nats-server means the newest, and takes another where they came within a second.
        closed, kept = (first, second) if told == [first.sock] and kind is NewerNatsServer else (second, first)
        closed.until(b"-ERR 'maximum account active connections exceeded'\r\n")
        assert not closed.buffer
        assert kept.ask() == b""
        first.sock.close()
        second.sock.close()


def test_fewer_connections(start: Start) -> None:
    server = start("")
    clients = [RawClient(server.client_port) for _ in range(4)]
    for client in clients:
        client.ask()
    log = reload(server, "max_connections: 3")
    assert "Closed 1 connections to fall within max_connections" in log
    ends = []
    for client in clients:
        client.send(b"PING\r\n")
        ends.append(client.until(b"PONG\r\n").endswith(b"-ERR 'maximum connections exceeded'\r\n"))
        client.sock.close()
    assert ends.count(True) == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("bad_key: 1", 'unknown field "bad_key"'),
        ("max_pending: 1mb", "config reload not supported for MaxPending: old=67108864, new=1048576"),
        ("max_subscriptions: 10", "config reload not supported for MaxSubs: old=0, new=10"),
        ("lame_duck_duration: '40s'", "config reload not supported for LameDuckDuration: old=2m0s, new=40s"),
        ("server_name: x", "config reload not supported for ServerName: old=, new=x"),
        ("no_header_support: true", "config reload not supported for NoHeaderSupport: old=false, new=true"),
        ("listen: 127.0.0.1:1", "config reload not supported for Port: old="),
        ("leafnodes { listen: 127.0.0.1:-1 }", "config reload not supported for LeafNode"),
        ("accounts { S {} }\nsystem_account: S", "config reload not supported for SystemAccount: old="),
    ],
)
def test_what_cannot_change_refuses_all(start: Start, config: str, words: str) -> None:
    server = start("")
    if isinstance(server, NatsServer) and "no_header_support" in config:
        config, words = "max_sub_tokens: 3", "config reload not supported for MaxSubTokens: old=0, new=3"
    log = reload(server, f"max_payload: 10\n{config}", "Failed to reload server configuration: ")
    assert words in log
    assert RawClient(server.client_port).info["max_payload"] == 1024 * 1024


def test_jetstream_of_an_account_comes_and_goes(tmp_path: Path) -> None:
    config = """
    jetstream { store_dir: "%WORKDIR%/js" }
    accounts { A { JETSTREAM users: [ { user: a, password: a } ] } }
    """

    def api(client: RawClient, subject: str, body: bytes = b"") -> bytes:
        client.send(b"PUB $JS.API.%b _I.1 %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        return client.until(b"}\r\n")

    on, off = config.replace("JETSTREAM", "jetstream: enabled,"), config.replace("JETSTREAM", "")
    with Eyotd(off, tmp_path) as server, RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        client.ask(b"SUB _I.* 1\r\n")
        assert b'"err_code":10039' in api(client, "STREAM.INFO.S")
        reload(server, on)
        assert b'"did_create":true' in api(client, "STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
        client.send(b"PUB s _I.2 1\r\nx\r\n")
        assert b'"seq":1' in client.until(b"}\r\n")
        reload(server, off)
        assert b'"err_code":10039' in api(client, "STREAM.INFO.S")
        reload(server, on)
        assert b'"messages":1' in api(client, "STREAM.INFO.S")
        # the whole of JetStream off and on again
        reload(server, "accounts { A { users: [ { user: a, password: a } ] } }")
        assert server.monitor("/jsz")["disabled"]
        reload(server, on)
        assert b'"messages":1' in api(client, "STREAM.INFO.S")
        words = "config reload not supported for StreamMaxBufferedMsgs: old=0, new=5"
        ingest_limiter = on.replace('js"', 'js", max_buffered_msgs: 5')
        assert words in reload(server, ingest_limiter, "Failed to reload server configuration: ")
        words = "config reload not supported for jetstream storage directory"
        assert words in reload(server, on.replace("/js", "/other"), "Failed to reload server configuration: ")


def test_reload_by_request(tmp_path: Path) -> None:
    config = "accounts { SYS { users: [ { user: s, password: s } ] } }\nsystem_account: SYS\n"
    with Eyotd(config, tmp_path) as server, RawClient(server.client_port, user="s", **{"pass": "s"}) as client:
        client.ask(b"SUB _I.* 1\r\n")
        request = b"PUB $SYS.REQ.SERVER.%b.RELOAD _I.1 0\r\n\r\n" % client.info["server_id"].encode()
        server.set_config(config + "max_payload: 10\n")
        client.send(request)
        assert b'"error"' not in client.until(b"}\r\n")
        assert RawClient(server.client_port).info["max_payload"] == 10
        server.set_config(config + "max_payload: x\n")
        client.send(request)
        answer = client.until(b"}\r\n")
        assert b'"code":500' in answer
        assert b"max_payload" in answer


@pytest.mark.parametrize(
    "more",
    [
        "authorization { users: [ {user: a, password: b} ] }",
        "authorization { user: a, password: b }",
        "authorization { token: t }",
        "accounts { A { users: [ {user: a, password: b} ] } }",
    ],
)
def test_leaf_nodes_without_credentials_end_when_credentials_are_needed(more: str, tmp_path: Path) -> None:
    open_to_all = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }'
    with Eyotd(open_to_all, tmp_path / "hub") as hub:
        remote = f'leafnodes {{ remotes: [ {{ url: "{hub.leaf_url()}" }} ], reconnect: "100ms" }}'
        with Eyotd(remote, tmp_path / "leaf") as leaf:
            while hub.monitor("/leafz")["leafnodes"] != 1:
                time.sleep(0.02)
            reload(hub, f"{open_to_all}\n{more}")
            leaf.wait_log("Authorization Violation")
            assert hub.monitor("/leafz")["leafnodes"] == 0
            reload(hub, open_to_all)
            while hub.monitor("/leafz")["leafnodes"] != 1:
                time.sleep(0.02)


def test_leaf_remotes_come_and_go(tmp_path: Path) -> None:
    hub = "leafnodes { listen: 127.0.0.1:%LEAF_PORT% }"
    with NatsServer(hub, tmp_path / "hub") as upstream, Eyotd("leafnodes {}", tmp_path / "leaf") as server:
        remote = f"leafnodes {{ remotes: [ {{ url: '{upstream.leaf_url()}' }} ] }}"
        log = reload(server, remote)
        assert f'LeafNode Remote urls=["{upstream.leaf_url()}"], account="$G" added' in log
        server.wait_log("Leafnode connection created for account")
        reload(server, "leafnodes {}")
        server.wait_log("Leafnode connection closed")
        assert server.monitor("/leafz")["leafnodes"] == 0
        for changed in (remote, remote.replace("url", "hub: true, url")):  # pages and metrics know it by its name
            reload(server, changed)
            assert [link["name"][-2:] for link in server.monitor("/eyot/status")["links"]] == ["#0"]


def test_an_accounts_payload_limit_holds_for_who_is_connected(tmp_path: Path) -> None:
    def limited(most: int) -> str:
        return f"accounts {{ A {{ users: [ {{ user: a, password: a }} ], limits {{ max_payload: {most} }} }} }}\n"

    with Eyotd(limited(1000), tmp_path) as server, RawClient(server.client_port, user="a", **{"pass": "a"}) as client:
        assert client.ask(b"PUB x 101\r\n" + b"x" * 101 + b"\r\n") == b""
        reload(server, limited(100))
        assert client.ask(b"PUB x 100\r\n" + b"x" * 100 + b"\r\n") == b""
        client.send(b"PUB x 101\r\n" + b"x" * 101 + b"\r\n")
        assert b"Maximum Payload Violation" in client.rest()
