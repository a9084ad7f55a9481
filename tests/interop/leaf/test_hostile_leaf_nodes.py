"""Hostile and broken peers on the leaf port: nats-server's words, that link closed where nats-server closes it, others unharmed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.links.leaf_pair import server
from support.links.raw_leaf import Peer
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess

REFERENCE = "2.14.6"
CONFIG = """
server_name: hub-server
max_payload: 65536
max_subscriptions: 100000
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
accounts { ACC: { users: [
    {user: good, password: good}
    {user: bad, password: bad, permissions: { publish: { deny: "secret.>" }, subscribe: { deny: "hidden.>" } }}
    {user: queues, password: queues, permissions: { subscribe: { allow: ["work", "work v1.*", "in.a q1"] }}}
    REVOKED
] } }
"""
GOOD = b'{"verbose":false,"user":"good","pass":"good"}'
_REVOKED = "{user: gone, password: gone}"


def linked(data: bytes, user: str = "bad") -> Callable[[int], Peer]:
    """A peer that is linked properly and then sends this."""

    def play(port: int) -> Peer:
        peer = Peer(port, user=user).linked()
        peer.send(data)
        return peer

    return play


def first(data: bytes) -> Callable[[int], Peer]:
    """A peer that sends this instead of CONNECT."""

    def play(port: int) -> Peer:
        peer = Peer(port, connect=False)
        peer.send(data)
        return peer

    return play


CASES: dict[str, Callable[[int], Peer]] = {
    "garbage first": first(b"\x00\xffGET / HTTP/1.1\r\n\r\n"),
    "interest before connect": first(b"LS+ a\r\n"),
    "compression that nobody knows": first(b'INFO {"compression":"zstd"}\r\n'),
    "S2 that is none": first(b'INFO {"client_id":1,"compression":"s2_fast"}\r\n' + b"\xff\x06\x00\x00S2sTwX" * 20),
    "a client on the leaf port": lambda port: Peer(port, lang="go"),
    "wrong password": lambda port: Peer(port, **{"pass": "wrong"}),
    "unknown user": lambda port: Peer(port, user="nobody"),
    "garbage on the link": linked(b"\x01\x02\x03\r\n"),
    "a verb that is none": linked(b"LMSX a 1\r\nx\r\n"),
    "queue without weight": linked(b"LS+ a q\r\n"),
    "negative size": linked(b"LMSG a -1\r\n"),
    "size that is no number": linked(b"LMSG a 1x\r\nx\r\n"),
    "more than it said": linked(b"LMSG a 3\r\nabcdef\r\n"),
    "header larger than the message": linked(b"HMSG a 20 10\r\n0123456789\r\n"),
    "too large": linked(b"LMSG a 65537\r\n" + b"x" * 65537 + b"\r\n"),
    "forbidden message": linked(b"LMSG secret.a 1\r\nx\r\n"),
    "forbidden interest": linked(b"LS+ hidden.a\r\n"),
    "interest allowed to a queue group": linked(b"LS+ work v2 1\r\nLS+ in.> q1 1\r\nLS+ in.a q1 1\r\n", "queues"),
}


@pytest.fixture(scope="module", params=["eyotd", REFERENCE])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    found = server(request.param, CONFIG.replace("REVOKED", _REVOKED), tmp_path_factory.mktemp("hub"))
    found.start()
    yield found
    found.kill()


#: What is said to each case (None: in S2, if anything); the link is closed in all of them. Both servers have to agree.
SAID = {
    "garbage first": "Authorization Violation",
    "interest before connect": "Authorization Violation",
    "compression that nobody knows": 'unsupported route compression mode "zstd"',
    "S2 that is none": None,
    "a client on the leaf port": "attempted to connect to leaf node port",
    "wrong password": "Authorization Violation",
    "unknown user": "Authorization Violation",
    "garbage on the link": "Unknown Protocol Operation",
    "a verb that is none": "Unknown Protocol Operation",
    "queue without weight": "",
    "negative size": "",
    "size that is no number": "",
    "more than it said": "Unknown Protocol Operation",
    "header larger than the message": "",
    "too large": "Maximum Payload Violation",
    "forbidden message": 'Permissions Violation for Publish to "secret.a"',
    "forbidden interest": 'Permissions Violation for Subscription to "hidden.a"',
    "interest allowed to a queue group": 'Permissions Violation for Subscription to "in.a"',
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_peer_harms_nobody_else(case: str, hub: ServerProcess) -> None:
    others = Peer(hub.leaf_port, user="good", name="other").linked()
    with RawClient(hub.client_port, GOOD) as client:
        client.ask(b"SUB works 1\r\n")
        hostile = CASES[case](hub.leaf_port)
        said, closed = hostile.outcome()
        assert closed
        assert SAID[case] in (said, None)
        others.send(b"LMSG works 2\r\nok\r\n")
        assert b"ok\r\n" in client.until(b"ok\r\n")
    others.close()
    hostile.close()


def test_answers_that_come_twice_or_late_reach_nobody(hub: ServerProcess) -> None:
    service = Peer(hub.leaf_port, user="good", name="service").linked()
    service.send(b"LS+ ask\r\nPING\r\n")
    service.until(rb"PONG\r\n.*PONG\r\n|PONG\r\nPONG\r\n")
    with RawClient(hub.client_port, GOOD) as client:
        client.ask(b"SUB inbox 7\r\nUNSUB 7 1\r\n")
        client.send(b"PUB ask inbox 1\r\n?\r\n")
        service.until(rb"LMSG ask inbox 1\r\n\?\r\n")
        service.send(b"LMSG inbox 3\r\none\r\nLMSG inbox 3\r\ntwo\r\n")
        assert b"one\r\n" in client.until(b"one\r\n")
        service.send(b"LMSG inbox 4\r\nlate\r\nPING\r\n")
        client.send(b"SUB end 9\r\nPUB end 0\r\n\r\n")
        rest = client.until(b"MSG end 9 0\r\n\r\n")
        assert b"two" not in rest
        assert b"late" not in rest
    assert service.outcome() == ("", False)
    service.close()


def test_a_peer_that_says_nothing_is_sent_away(hub: ServerProcess) -> None:
    assert Peer(hub.leaf_port, connect=False).until(rb"-ERR 'Authentication Timeout'\r\n")


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    with Eyotd(CONFIG.replace("REVOKED", ""), tmp_path) as hub:
        before = hub.monitor("/varz")["mem"]
        for peer in (Peer(hub.leaf_port).linked(), Peer(hub.leaf_port, connect=False)):
            peer.send(b"LS+ ")
            for _ in range(64):
                peer.send(b"x" * 65536)
                if peer.closed:
                    break
            assert peer.outcome()[1], "closed long before 4 MiB of it were kept"
            peer.close()
        assert hub.monitor("/varz")["mem"] - before < 16 << 20


def test_a_flood_of_interest_is_bounded_and_gone_with_its_link(tmp_path: Path) -> None:
    config = CONFIG.replace("REVOKED", "").replace("max_subscriptions: 100000", "max_subscriptions: 5000")
    with Eyotd(config, tmp_path) as hub, RawClient(hub.client_port, GOOD) as client:
        client.ask(b"SUB works 1\r\n")
        settled = hub.monitor("/varz")
        flood = Peer(hub.leaf_port).linked()
        for start in range(0, 12_000, 1000):
            flood.send(b"".join(b"LS+ flood.%d.%d\r\n" % (number, number % 7) for number in range(start, start + 1000)))
        flood.send(b"PING\r\n")
        flood.until(rb"PONG\r\n.*?PONG\r\n|(PONG\r\n){2}|-ERR", 60)
        during = hub.monitor("/varz")
        assert during["mem"] - settled["mem"] < 100 << 20
        others = Peer(hub.leaf_port, user="good", name="other").linked()
        others.send(b"LMSG works 2\r\nok\r\n")
        assert b"ok\r\n" in client.until(b"ok\r\n")
        flood.close()
        deadline = time.monotonic() + 30
        while hub.monitor("/varz")["subscriptions"] > settled["subscriptions"] + 100:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        others.close()


def test_who_is_revoked_is_sent_away_and_not_let_in_again(tmp_path: Path) -> None:
    with Eyotd(CONFIG.replace("REVOKED", _REVOKED), tmp_path) as hub:
        peer = Peer(hub.leaf_port, user="gone").linked()
        other = Peer(hub.leaf_port, user="good", name="other").linked()
        hub.set_config(CONFIG.replace("REVOKED", ""))
        hub.signal(signal.SIGHUP)
        peer.until(rb"-ERR 'Authorization Violation'\r\n")
        assert peer.outcome() == ("Authorization Violation", True)
        assert Peer(hub.leaf_port, user="gone").outcome() == ("Authorization Violation", True)
        assert other.outcome() == ("", False)
        other.close()
