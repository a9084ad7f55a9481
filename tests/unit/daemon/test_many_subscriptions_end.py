"""Very many subscriptions that end, or whose permissions change: nobody waits, and from that moment none gets what it may not have."""

from __future__ import annotations

import pytest

from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.client.interest import REVIEWED_MAX
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.jetstream.deliver_subject import has_interest
from eyot_daemon.router.access import Access
from eyot_daemon.router.retired import REMOVED_MAX
from support.clients.client_turns import ClientTurns
from support.clients.plain_transport import Wire

COUNT = 5 * REMOVED_MAX


class Fixture(ClientTurns):
    def subscribed(self, prefix: bytes = b"s", queue: bytes = b"") -> tuple[ClientConnection, Wire]:
        client, wire = self.client()
        subs = (b"SUB %b.%d %b %d\r\n" % (prefix, number, queue, number) for number in range(COUNT))
        self.send(client, b"".join(subs))
        self.rest()
        wire.sent.clear()
        assert len(client.subs) == COUNT
        return client, wire


def test_they_are_removed_in_slices() -> None:
    fixture = Fixture()
    before = len(fixture.account.sublist)
    client, _ = fixture.subscribed()
    client.close("Kicked", linger=False)
    left = len(fixture.account.sublist) - before
    assert left == COUNT - REMOVED_MAX
    while fixture.later_turn():
        now = len(fixture.account.sublist) - before
        assert left - REMOVED_MAX <= now <= left
        left = now
    assert left == 0
    assert client.subs == {}


def test_those_that_are_not_removed_yet_reach_nobody() -> None:
    """A request finds no responder, and a queue group's message another member."""
    fixture = Fixture()
    last = b"%d" % (COUNT - 1)
    client, wire = fixture.subscribed()
    members, _ = fixture.subscribed(b"q", b"workers")
    (other, heard), (asking, answered) = fixture.client(), fixture.client()
    fixture.send(other, b"SUB q.* workers 1\r\n")
    for _ in range(20):  # the routes are known
        fixture.send(asking, b"PUB s.%b 1\r\nx\r\nPUB q.%b 1\r\nx\r\n" % (last, last))
    assert has_interest(fixture.account, b"s." + last, b"", copied=False)
    assert has_interest(fixture.account, b"q." + last, b"workers", copied=True)
    fixture.send(asking, b"SUB inbox.* 1\r\n")
    wire.sent.clear()
    heard.sent.clear()
    client.close("Kicked", linger=False)
    members.close("Kicked", linger=False)
    assert not has_interest(fixture.account, b"s." + last, b"", copied=False)
    assert not has_interest(fixture.account, b"s." + last, b"", copied=True)
    fixture.send(asking, b"PUB s.%b inbox.1 1\r\nx\r\n" % last)
    fixture.send(asking, b"PUB q.%b 1\r\nx\r\n" % last * 20)
    assert b"NATS/1.0 503" in answered.sent
    assert heard.sent.count(b"MSG q.") == 20
    assert wire.sent == b""
    fixture.rest()


def test_a_client_that_leaves_its_account_hears_nothing_of_it() -> None:
    fixture = Fixture()
    client, wire = fixture.subscribed()
    publisher, _ = fixture.client()
    elsewhere = fixture.broker.add_account("B")
    client.enter(elsewhere, None, "", 1 << 20)
    fixture.send(publisher, b"PUB s.%d 1\r\nx\r\n" % (COUNT - 1))
    assert b"MSG" not in wire.sent
    fixture.send(client, b"SUB s.1 1\r\n")
    fixture.rest()
    assert [sub.subject for sub in elsewhere.subscriptions()] == [b"s.1"]
    elsewhere.publish(b"s.1", payload=b"x")
    fixture.broker.flush()
    assert wire.sent.count(b"MSG s.1") == 1


def test_those_of_services_go_first() -> None:
    fixture = Fixture()
    client, _ = fixture.subscribed()
    fixture.send(client, b"SUB $JS.hub.API.> api\r\n")
    client.close("Kicked", linger=False)
    assert not fixture.account.has_interest(b"$JS.hub.API.INFO")
    fixture.rest()


def denied(*subjects: bytes) -> Access:
    return Access(Permissions(subscribe=SubjectPermission(deny=subjects)))


@pytest.mark.parametrize("what", ["all", "none"])
def test_changed_permissions_are_applied_in_slices(what: str) -> None:
    fixture = Fixture()
    client, wire = fixture.subscribed()
    client.reauthorized(denied(b"s.*" if what == "all" else b"other.*"))
    fixture.broker.flush()
    left = len(client.unreviewed)
    assert left == COUNT - REVIEWED_MAX
    while fixture.later_turn():
        assert left - REVIEWED_MAX <= len(client.unreviewed) <= left
        left = len(client.unreviewed)
    assert left == 0
    assert len(client.subs) == (0 if what == "all" else COUNT)
    told = [int(line.rsplit(b'"', 2)[1]) for line in wire.sent.splitlines() if b"Permissions Violation" in line]
    assert told == (list(range(COUNT)) if what == "all" else [])
    assert not any(sub.slow for sub in client.subs.values())


def test_none_gets_a_message_that_it_may_not_have_any_more() -> None:
    fixture = Fixture()
    client, wire = fixture.subscribed()
    publisher, _ = fixture.client()
    fixture.send(publisher, b"PUB s.%d 1\r\nx\r\n" % (COUNT - 1))
    assert wire.sent.count(b"MSG ") == 1
    wire.sent.clear()
    client.reauthorized(denied(b"s.%d" % (COUNT - 1)))
    fixture.send(publisher, b"PUB s.%d 1\r\nx\r\nPUB s.%d 1\r\ny\r\n" % (COUNT - 1, COUNT - 2))
    assert wire.sent.count(b"MSG ") == wire.sent.count(b"MSG s.%d " % (COUNT - 2)) == 1
    fixture.rest()
    assert wire.sent.count(b"Permissions Violation") == 1
    assert len(client.subs) == COUNT - 1


def test_permissions_that_change_again_meanwhile() -> None:
    fixture = Fixture()
    client, _ = fixture.subscribed()
    client.reauthorized(denied(b"s.*"))
    client.reauthorized(denied(b"s.%d" % (COUNT - 1)))
    fixture.send(client, b"UNSUB %d\r\n" % (COUNT - 2))
    fixture.rest()
    assert len(client.subs) == COUNT - REVIEWED_MAX - 2
    client.reauthorized(denied(b"s.*"))
    client.close("Kicked", linger=False)
    fixture.rest()
    assert not client.unreviewed
