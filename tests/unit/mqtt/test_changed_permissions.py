"""Changed permissions of MQTT clients: nobody waits for very many filters, and from that moment none gets what it may not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.mqtt.connection import MqttConnection
from eyot_daemon.mqtt.retained_store import SLICE_MESSAGES
from eyot_daemon.mqtt.sessions import AccountSessions
from eyot_daemon.mqtt.subscribing import REVIEWED_MAX
from eyot_daemon.router.access import Access
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe
from support.mqtt.cuts import Connection, Server

T = PacketType
COUNT = 5 * REVIEWED_MAX


def denying(*subjects: bytes) -> Access:
    return Access(Permissions(subscribe=SubjectPermission(deny=subjects)))


def allowing(*subjects: bytes) -> Access:
    return Access(Permissions(subscribe=SubjectPermission(allow=subjects)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


class Client:
    """A client on a connection within the process, and the daemon's side of it."""

    def __init__(self, server: Server, client_id: str, *, level: int = 4, clean: bool = True) -> None:
        self.server = server
        self.level = level
        self.raw = Connection(server, level)
        made = self.raw._wire.session
        assert isinstance(made, MqttConnection)
        self.connection = made
        self.raw.send(encoder.connect(Connect(level, client_id, clean)))
        server.settle()
        assert T.CONNACK in [got.type for got in self.raw.got()]

    def subscribe(self, *filters: str, qos: int = 0) -> None:
        wanted = [SubscriptionRequest(each, qos) for each in filters]
        self.raw.send(encoder.subscribe(self.level, Subscribe(1, wanted)))
        self.server.settle()
        assert [got.codes for got in self.raw.got()] == [[qos] * len(filters)]

    def publish(self, topic: str, payload: bytes, qos: int = 0) -> None:
        self.raw.send(encoder.publish(self.level, topic, payload, qos=qos, packet_id=1 if qos else 0))
        self.server.fixture.broker.flush()
        while self.server.fixture.store.commit_now():
            self.server.fixture.broker.flush()

    def payloads(self) -> list[bytes]:
        """Read what came, and acknowledge it."""
        found = []
        for got in self.raw.got():
            if got.type is T.PUBLISH:
                found.append(got.payload)
                if got.qos:
                    self.raw.puback(got.packet_id)
        self.server.fixture.broker.flush()
        return found

    def reauthorized(self, access: Access | None) -> None:
        """A reload changes the permissions, and the turn ends."""
        self.connection.reauthorized(access)
        self.server.fixture.broker.flush()

    @property
    def sessions(self) -> AccountSessions:
        return self.connection.sessions

    @property
    def filters(self) -> int:
        return len(self.connection.session.record.subs)


def later_turn(server: Server) -> bool:
    """One turn that nobody's bytes begin; False: nothing is due."""
    fixture = server.fixture
    ran = bool(fixture.broker.timers.run_due(fixture.clock.monotonic(), 1))
    fixture.broker.flush()
    return ran


def numbered(client: Client, *, qos: int = 0) -> None:
    for first in range(0, COUNT, REVIEWED_MAX):
        client.subscribe(*(f"t/{number}" for number in range(first, first + REVIEWED_MAX)), qos=qos)


@pytest.mark.parametrize("clean", [True, False])
def test_filters_are_reviewed_in_slices_and_stored_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, *, clean: bool
) -> None:
    client = Client(server, "c", clean=clean)
    numbered(client, qos=1)
    stored: list[int] = []
    changed = AccountSessions.filters_changed
    monkeypatch.setattr(
        AccountSessions, "filters_changed", lambda *given: (stored.append(client.filters), changed(*given))[1]
    )
    client.reauthorized(denying(b"t.>"))
    left = client.filters
    assert left == COUNT - REVIEWED_MAX
    while later_turn(server):
        assert left - REVIEWED_MAX <= client.filters <= left
        left = client.filters
    assert left == 0
    assert client.connection.subs == {}
    assert stored == [0]
    server.settle()


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1])
def test_filters_that_are_not_reviewed_get_nothing(server: Server, level: int, qos: int, *, clean: bool) -> None:
    """The last filter is reviewed last: it is denied, and the one beside it is not."""
    client = Client(server, "c", level=level, clean=clean)
    publisher = Client(server, "p", level=level)
    numbered(client, qos=qos)
    denied, allowed = f"t/{COUNT - 1}", f"t/{COUNT - 2}"
    for _ in range(3):  # the routes are known
        publisher.publish(denied, b"before", qos)
        publisher.publish(allowed, b"before", qos)
    assert client.payloads() == [b"before"] * 6
    client.reauthorized(denying(b"t.%d" % (COUNT - 1)))
    assert client.connection.subscriber.unreviewed
    for _ in range(3):
        publisher.publish(denied, b"denied", qos)
        publisher.publish(allowed, b"allowed", qos)
    assert client.payloads() == [b"allowed"] * 3
    server.settle()
    assert not client.connection.subscriber.unreviewed
    publisher.publish(denied, b"denied", qos)
    publisher.publish(allowed, b"allowed", qos)
    assert client.payloads() == [b"allowed"]
    assert client.filters == COUNT - 1


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_wildcards_match_are_denied_before_the_review(server: Server, level: int, qos: int) -> None:
    client = Client(server, "c", level=level, clean=False)
    publisher = Client(server, "p", level=level)
    numbered(client, qos=qos)
    client.subscribe("w/#", qos=qos)
    client.reauthorized(denying(b"w.secret"))
    publisher.publish("w/secret", b"denied", qos)
    publisher.publish("w/open", b"allowed", qos)
    assert client.payloads() == [b"allowed"]
    server.settle()
    publisher.publish("w/secret", b"denied", qos)
    publisher.publish("w/open", b"allowed", qos)
    assert client.payloads() == [b"allowed"]


def test_permissions_that_change_again_during_the_review(server: Server) -> None:
    client = Client(server, "c")
    publisher = Client(server, "p")
    numbered(client)
    client.reauthorized(denying(b"t.0"))
    assert later_turn(server)
    client.reauthorized(allowing(b"t.1", b"t.2"))
    publisher.publish(f"t/{COUNT - 1}", b"denied")
    publisher.publish("t/2", b"allowed")
    server.settle()
    assert client.payloads() == [b"allowed"]
    assert client.filters == 2
    client.reauthorized(None)
    server.settle()
    publisher.publish("t/2", b"allowed")
    assert client.payloads() == [b"allowed"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_connection_that_ends_during_the_review(server: Server, *, clean: bool) -> None:
    """Filters that were reviewed are not stored again; the others are reviewed when the client comes back."""
    client = Client(server, "c", clean=clean)
    numbered(client, qos=1)
    client.reauthorized(denying(b"t.>"))
    client.raw.lose()
    server.settle()
    session = server.sessions.session("c")
    if clean:
        assert session is None
        return
    assert session is not None
    assert len(session.record.subs) == COUNT - REVIEWED_MAX
    again = server.power_cut().sessions.session("c")
    assert again is not None
    assert len(again.record.subs) == COUNT - REVIEWED_MAX


def test_a_group_gives_what_one_member_may_not_have_to_another(server: Server) -> None:
    some, all_, publisher = (Client(server, name) for name in ("some", "all", "p"))
    for client in (some, all_):
        client.subscribe("$share/g/w/#", qos=1)
    some.reauthorized(denying(b"w.secret"))
    for _ in range(10):
        publisher.publish("w/secret", b"secret", qos=1)
        publisher.publish("w/open", b"open", qos=1)
    server.settle()
    ours, theirs = some.payloads(), all_.payloads()
    assert b"secret" not in ours
    assert b"open" in ours
    assert sorted(ours + theirs) == [b"open"] * 10 + [b"secret"] * 10


def test_what_no_member_of_a_group_may_have_is_counted(server: Server) -> None:
    some, publisher = Client(server, "some"), Client(server, "p")
    some.subscribe("$share/g/w/#", qos=1)
    some.reauthorized(denying(b"w.secret"))
    publisher.publish("w/secret", b"secret", qos=1)
    publisher.publish("w/open", b"open", qos=1)
    server.settle()
    assert some.payloads() == [b"open"]
    assert server.sessions.drops.by_reason["denied"] == 1


def test_a_group_that_may_not_be_joined_any_more_is_left_at_once(server: Server) -> None:
    some, all_, publisher = (Client(server, name) for name in ("some", "all", "p"))
    numbered(some)
    for client in (some, all_):
        client.subscribe("$share/g/w/#", qos=1)
    some.reauthorized(allowing(b"t.>"))
    assert some.connection.subscriber.unreviewed
    for _ in range(10):
        publisher.publish("w/x", b"x", qos=1)
    assert all_.payloads() == [b"x"] * 10
    assert some.payloads() == []
    server.settle()


def test_messages_that_wait_for_room_are_dropped_and_counted(server: Server) -> None:
    client, publisher = Client(server, "c"), Client(server, "p")
    client.subscribe("w/#", qos=1)
    window = client.sessions.limits.window
    for number in range(window + 10):
        publisher.publish("w/a" if number % 2 else "w/b", b"%d" % number, qos=1)
    sent = [got for got in client.raw.got() if got.type is T.PUBLISH]
    assert len(sent) == window
    client.reauthorized(denying(b"w.a"))
    for got in sent:
        client.raw.puback(got.packet_id)
    server.settle()
    assert client.payloads() == [b"%d" % number for number in range(window, window + 10) if not number % 2]
    assert server.sessions.drops.by_reason["denied"] == 5


@pytest.mark.parametrize("way", ["permissions", "UNSUBSCRIBE"])
def test_retained_messages_of_a_filter_that_ended_are_not_sent_any_more(server: Server, way: str) -> None:
    """MQTT-3.10.4-2: the server adds no message behind an UNSUBSCRIBE."""
    publisher = Client(server, "p")
    for number in range(2 * SLICE_MESSAGES):
        publisher.raw.send(encoder.publish(4, f"r/{number}", b"x", qos=1, retain=True, packet_id=1))
        server.turn()
    server.settle()
    client = Client(server, "c")
    client.raw.send(encoder.subscribe(4, Subscribe(1, [SubscriptionRequest("r/#", 0)])))
    while not (begun := client.payloads()):
        assert later_turn(server)
    assert len(begun) <= SLICE_MESSAGES
    if way == "permissions":
        client.reauthorized(denying(b"r.>"))
    else:
        client.raw.send(encoder.unsubscribe(4, Unsubscribe(2, ["r/#"])))
    server.settle()
    assert client.payloads() == []
