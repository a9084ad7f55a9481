"""Hostile and broken hubs at the other end of a leaf's remote: nats-server's words and ends of links, clients of the leaf unharmed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.links.leaf_pair import server
from support.links.raw_hub import Hub, Link
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess

REFERENCE = "2.14.6"
CONFIG = """
server_name: leaf-server
max_payload: 65536
leafnodes { reconnect: "100ms", remotes = [
    { url: "nats-leaf://acc:acc@127.0.0.1:HUB_PORT", account: ACC, deny_imports: "hidden.>" }
] }
accounts { ACC: { users: [ {user: good, password: good} ] } }
"""
GOOD = b'{"verbose":false,"user":"good","pass":"good"}'


def first(data: bytes) -> Callable[[Link], None]:
    """A hub that says this instead of INFO."""
    return lambda link: link.send(data)


def linked(data: bytes) -> Callable[[Link], None]:
    """A hub that takes the leaf in and then says this."""

    def play(link: Link) -> None:
        link.linked().send(data)

    return play


CASES: dict[str, Callable[[Link], None]] = {
    "a client port": lambda link: link.greet(client_id=0) and None,
    "INFO that is none": first(b"INFO {nonsense\r\n"),
    "garbage": linked(b"\x01\x02\x03\r\n"),
    "a verb that is none": linked(b"LMSX a 1\r\nx\r\n"),
    "queue without weight": linked(b"LS+ a q\r\n"),
    "negative size": linked(b"LMSG a -1\r\n"),
    "size that is no number": linked(b"LMSG a 1x\r\nx\r\n"),
    "more than it said": linked(b"LMSG a 3\r\nabcdef\r\n"),
    "a size beyond all bounds": linked(b"LMSG a 999999999999\r\n" + b"x" * 100_000),
    "header larger than the message": linked(b"HMSG a 20 10\r\n0123456789\r\n"),
    "too large": linked(b"LMSG a 65537\r\n" + b"x" * 65537 + b"\r\n"),
    "CONNECT": linked(b'CONNECT {"verbose":false}\r\n'),
    "INFO that is none, later": linked(b"INFO {nonsense\r\n"),
    "a message that was not asked for": linked(b"LMSG hidden.a 1\r\nx\r\n"),
    "interest that is gone": linked(b"LS- never\r\n"),
    "interest that cannot be": linked(b"LS+ a..b\r\n"),
    "an error that is none": linked(b"-ERR 'Something'\r\n"),
}
#: What the leaf says to it, and whether it closes. Both servers have to agree.
SAID = {
    "a client port": ("", True),
    "INFO that is none": ("", True),
    "garbage": ("Unknown Protocol Operation", True),
    "a verb that is none": ("Unknown Protocol Operation", True),
    "queue without weight": ("", True),
    "negative size": ("", True),
    "size that is no number": ("", True),
    "more than it said": ("Unknown Protocol Operation", True),
    "a size beyond all bounds": ("", True),
    "header larger than the message": ("", True),
    "too large": ("Maximum Payload Violation", True),
    "CONNECT": ("Authorization Violation", True),
    "INFO that is none, later": ("", True),
    "a message that was not asked for": ("", False),
    "interest that is gone": ("", False),
    "interest that cannot be": ("Invalid Subscription", False),
    "an error that is none": ("", False),
}


class Meeting:
    """A leaf and the hub that it dials; `kind` is which leaf it is."""

    def __init__(self, kind: str, path: Path) -> None:
        self.hub = Hub()
        self.leaf: ServerProcess = server(kind, CONFIG.replace("HUB_PORT", str(self.hub.port)), path)
        self.leaf.start()

    def end(self) -> None:
        self.leaf.kill()
        self.hub.sock.close()


@pytest.fixture(scope="module", params=["eyotd", REFERENCE])
def meeting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    found = Meeting(request.param, tmp_path_factory.mktemp("leaf"))
    yield found
    found.end()


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_hub_harms_no_client(case: str, meeting: Meeting) -> None:
    with RawClient(meeting.leaf.client_port, GOOD) as client:
        client.send(b"SUB > 1\r\nPING\r\n")
        client.until(b"PONG\r\n")
        link = meeting.hub.accept(60)
        CASES[case](link)
        assert link.outcome(3.0 if SAID[case][1] else 0.5) == SAID[case]
        client.send(b"PUB works 2\r\nok\r\n")
        assert b"MSG works 1 2\r\nok\r\n" in client.until(b"ok\r\n")
        link.close()


def test_permissions_of_queue_groups_have_no_effect(meeting: Meeting) -> None:
    rules = {"allow": ["work", "work v1.*", "in.a q1", "other", "end"], "deny": ["other q1"]}
    with RawClient(meeting.leaf.client_port, GOOD) as client:
        client.send(b"SUB work v1.a 1\r\nSUB work v2 2\r\nSUB in.a q1 3\r\nSUB in.* q1 4\r\nSUB other q1 5\r\nPING\r\n")
        client.until(b"PONG\r\n")
        link = meeting.hub.accept(60)
        link.greet(info_on_connect=True).until(rb"CONNECT [^\n]*\n")
        link.greet(connect_info=True, **{"import": rules})
        link.send(b"LS+ $LDS.hostile\r\nPING\r\n")
        link.until(rb"PONG\r\n")
        client.send(b"SUB end 6\r\n")  # announced after everything else
        found = re.findall(rb"LS\+ ((?:work|in|other)\b[^\r]*)\r\n", link.until(rb"LS\+ end\r\n"))
        assert set(found) == {b"work v1.a 1", b"work v2 1", b"other q1 1"}
        link.send(b"LMSG in.a q1 1\r\nx\r\nLMSG end 1\r\ny\r\n")
        assert b"MSG in.a" not in client.until(b"MSG end 6 1\r\ny\r\n")
        link.close()


def test_a_hub_that_floods_interest_is_bounded(tmp_path: Path) -> None:
    with Hub() as hub, Eyotd(CONFIG.replace("HUB_PORT", str(hub.port)), tmp_path) as leaf:
        link = hub.accept(60).linked()
        before = leaf.monitor("/varz")["mem"]
        for start in range(0, 40_000, 1000):
            link.send(b"".join(b"LS+ flood.%d.%d\r\n" % (number, number % 7) for number in range(start, start + 1000)))
        link.send(b"PING\r\n")
        link.until(rb"PONG\r\n.*PONG\r\n|(PONG\r\n){2}", 60)
        assert leaf.monitor("/varz")["mem"] - before < 200 << 20
        link.close()
        with RawClient(leaf.client_port, GOOD) as client:
            client.send(b"SUB works 1\r\nPUB works 2\r\nok\r\n")
            assert b"MSG works 1 2\r\nok\r\n" in client.until(b"ok\r\n")
