"""MQTT 3.1.1 answer by answer: the same conversations with `eyotd` and with nats-server 2.14.

Where Eyot keeps to the specification and nats-server does not, the test is Eyot's alone and says so.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Will
from support.mqtt.raw_mqtt import Closed, RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
server_name: mqtt
jetstream {{ store_dir: "%WORKDIR%/js" }}
mqtt {{
    listen: "127.0.0.1:%LEAF_PORT%"
    {mqtt}
}}
{more}
"""
Serve = Callable[..., ServerProcess]


def server_of(kind: str, workdir: Path, mqtt: str = "", more: str = "") -> ServerProcess:
    make = Eyotd if kind == "eyotd" else NewerNatsServer
    made = make(CONFIG.format(mqtt=mqtt, more=more), workdir)
    made.start()
    return made


@pytest.fixture(params=["eyotd", "nats-server"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serve]:
    """Starts one server of either kind; the MQTT port is the one that the helper keeps for leaf nodes."""
    started: list[ServerProcess] = []

    def run(mqtt: str = "", more: str = "") -> ServerProcess:
        started.append(server_of(request.param, tmp_path, mqtt, more))
        return started[-1]

    yield run
    for each in started:
        each.kill()


@pytest.fixture
def eyot(tmp_path: Path) -> Iterator[Serve]:
    """The same for what only Eyot does."""
    started: list[ServerProcess] = []

    def run(mqtt: str = "", more: str = "") -> ServerProcess:
        started.append(server_of("eyotd", tmp_path, mqtt, more))
        return started[-1]

    yield run
    for each in started:
        each.kill()


def client(server: ServerProcess, client_id: str = "", level: int = 4, **more: object) -> RawMqtt:
    for turn in range(10):
        made = RawMqtt(server.leaf_port, level=level)
        try:
            got = made.connect(client_id, **more)  # type: ignore[arg-type]
            break
        except Closed:  # nats-server does that to a client that was here within the last second
            assert turn < 9
            assert not isinstance(server, Eyotd)
            time.sleep(0.3)
    assert got.reason == 0, got
    made.present = got.present  # type: ignore[attr-defined]
    return made


def retained_is_in(server: ServerProcess, publisher: RawMqtt) -> None:
    """Wait until nats-server has in memory what was retained before: its own consumer brings that, after PUBACK. Eyot does not wait."""
    if isinstance(server, Eyotd):
        return
    publisher.publish_acked("marker", b"last", qos=1, retain=True)
    for _ in range(200):
        with client(server) as mqtt:
            mqtt.subscribe("marker")
            if not mqtt.is_quiet():
                return
        time.sleep(0.05)
    raise AssertionError("the marker was not retained")


def drain(mqtt: RawMqtt, count: int) -> list[tuple[str, bytes, int]]:
    return [(got.topic, got.payload, got.qos) for got in (mqtt.message() for _ in range(count))]


# -- both servers ----------------------------------------------------------------------------------------------------------


def test_every_quality_both_ways(serve: Serve) -> None:
    server = serve()
    with client(server, "a") as there, client(server, "b") as here:
        assert there.subscribe("t/0", "t/1", "t/2", qos=2).codes == [2, 2, 2]
        assert there.subscribe("u/+", qos=1).codes == [1]
        for qos in (0, 1, 2):
            assert here.publish_acked(f"t/{qos}", b"p%d" % qos, qos=qos) == 0
            assert here.publish_acked(f"u/{qos}", b"u%d" % qos, qos=qos) == 0
            assert sorted(drain(there, 2)) == [(f"t/{qos}", b"p%d" % qos, qos), (f"u/{qos}", b"u%d" % qos, min(qos, 1))]
        assert there.unsubscribe("u/+", "nothing").type is PacketType.UNSUBACK
        here.publish_acked("u/1", b"x", qos=1)
        assert there.is_quiet()


def test_filters(serve: Serve) -> None:
    server = serve()
    with client(server, "a") as there, client(server, "b") as here:
        assert there.subscribe("sport/#", "+/+", "/finance", "#/bad").codes == [0, 0, 0, 0x80]
        for topic in ("sport", "sport/tennis/p1", "x/y", "/finance", "finance"):
            here.publish(topic, b"1")
        here.ping()
        got = sorted(topic for topic, _, _ in drain(there, 5))
        # Overlapping filters get a copy each: `/finance` matches `+/+`, too.
        assert got == ["/finance", "/finance", "sport", "sport/tennis/p1", "x/y"]
        assert there.is_quiet()


def test_topics_that_begin_with_a_dollar(serve: Serve) -> None:
    server = serve()
    with client(server, "a") as there, client(server, "b") as here:
        there.subscribe("#", "+/x", "$own/x")
        here.publish("$own/x", b"1")
        here.ping()
        assert drain(there, 1) == [("$own/x", b"1", 0)]
        assert there.is_quiet()


def test_between_mqtt_and_nats(serve: Serve) -> None:
    server = serve()

    async def play() -> None:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        sub = await nc.subscribe(">")
        await nc.flush()
        mqtt = await asyncio.to_thread(client, server, "a")
        with mqtt:
            mqtt.subscribe("from/nats/#", "dots/+", qos=1)
            await nc.publish("from.nats.1", b"hello", headers={"X": "1"})
            await nc.publish("dots.1//5", b"dot")
            await nc.flush()
            assert sorted(drain(mqtt, 2)) == [("dots/1.5", b"dot", 0), ("from/nats/1", b"hello", 0)]
            for topic, qos in (("to/nats", 0), ("a//b", 1), ("x.y", 2)):
                await asyncio.to_thread(mqtt.publish_acked, topic, b"p", qos=qos)
            got = []
            while len(got) < 3:
                message = await sub.next_msg(timeout=10)
                if not message.subject.startswith(("from", "dots", "$MQTT", "$JS", "_")):
                    got.append((message.subject, message.headers["Nmqtt-Pub"][:1]))
            assert got == [("to.nats", "0"), ("a./.b", "1"), ("x//y", got[2][1])]
        await nc.close()

    asyncio.run(play())


def test_retained(serve: Serve) -> None:
    server = serve()
    with client(server, "a") as here, client(server, "b") as there:
        for topic, payload in (("r/1", b"one"), ("r/2", b"two"), ("r/1", b"new"), ("r/gone", b"x"), ("r/gone", b"")):
            here.publish_acked(topic, payload, qos=1, retain=True)
        retained_is_in(server, here)
        there.subscribe("r/#", qos=1)
        got = [there.message() for _ in range(2)]
        assert sorted((each.topic, each.payload, each.retain) for each in got) == [
            ("r/1", b"new", True),
            ("r/2", b"two", True),
        ]
        assert there.is_quiet()
        here.publish_acked("r/1", b"live", qos=1, retain=True)
        live = there.message()
        assert (live.payload, live.retain) == (b"live", False)
        there.subscribe("r/1", qos=0)  # the same again: replayed [MQTT-3.8.4-3]
        assert there.message().retain
    if not isinstance(server, Eyotd):
        return  # nats-server loses what it acknowledged
    server.kill()
    server.start()
    with client(server, "c") as later:
        later.subscribe("r/+", qos=1)
        assert sorted(payload for _, payload, _ in drain(later, 2)) == [b"live", b"two"]


def test_a_session_waits_for_its_client(serve: Serve) -> None:
    server = serve()
    with client(server, "sleeper", clean=False) as mqtt:
        assert not mqtt.present  # type: ignore[attr-defined]
        mqtt.subscribe("q/#", qos=1)
        mqtt.disconnect()
    with client(server, "b") as here:
        for number in range(5):
            here.publish_acked(f"q/{number}", b"%d" % number, qos=1)
        here.publish_acked("q/zero", b"not kept", qos=0)
        here.ping()
    with client(server, "sleeper", clean=False) as mqtt:
        assert mqtt.present  # type: ignore[attr-defined]
        assert [payload for _, payload, _ in drain(mqtt, 5)] == [b"%d" % number for number in range(5)]
        assert mqtt.is_quiet()
        mqtt.disconnect()
    with client(server, "sleeper", clean=True) as mqtt:
        assert not mqtt.present  # type: ignore[attr-defined]
    with client(server, "sleeper", clean=False) as mqtt:
        assert not mqtt.present, "the clean session ended the old one"  # type: ignore[attr-defined]


def test_will(serve: Serve) -> None:
    server = serve()
    with client(server, "watcher") as watcher:
        watcher.subscribe("will/#", qos=1)
        lost = client(server, "lost", will=Will("will/lost", b"gone", 1, True))
        lost.sock.close()
        assert drain(watcher, 1) == [("will/lost", b"gone", 1)]
        polite = client(server, "polite", will=Will("will/polite", b"gone", 1))
        polite.disconnect()
        assert watcher.is_quiet()
    with client(server, "later") as later:
        later.subscribe("will/#", qos=1)
        assert later.message().retain


def test_take_over(serve: Serve) -> None:
    server = serve()
    with client(server, "same") as first, client(server, "same") as second:
        assert first.closed()
        second.ping()


def test_refusals_of_connect(serve: Serve) -> None:
    server = serve()
    for level, client_id, clean, code in ((4, "", False, 2), (2, "x", True, 1)):
        with RawMqtt(server.leaf_port) as mqtt:
            mqtt.send(encoder.connect(Connect(level, client_id, clean)))
            assert mqtt.expect(PacketType.CONNACK).reason == code
            assert mqtt.closed()
    for data in (b"GET / HTTP/1.1\r\n\r\n", encoder.PINGREQ, b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00"):
        with RawMqtt(server.leaf_port) as mqtt:
            mqtt.send(data)
            assert mqtt.closed()
    with client(server, "twice") as mqtt:
        mqtt.send(encoder.connect(Connect(4, "twice")))
        assert mqtt.closed()


def test_keep_alive(serve: Serve) -> None:
    server = serve()
    began = time.monotonic()  # before the silence begins, however slow the machine is
    with client(server, "k", keep_alive=2) as mqtt:
        assert mqtt.closed()
        assert time.monotonic() - began > 1.9


USERS = """
accounts {
    ACC { jetstream: enabled, users: [
        { user: all, password: pw, allowed_connection_types: ["MQTT"] }
        { user: some, password: pw, permissions: { publish: ["ok.>"], subscribe: { allow: ["ok", "ok.>"], deny: "ok.secret" } } }
        { user: kept, password: pw, permissions: { publish: ">", subscribe: { allow: ["ok", "ok.>", "$MQTT.sub.>"], deny: "ok.secret" } } }
        { user: nats, password: pw, allowed_connection_types: ["STANDARD"] }
    ] }
}
"""


def test_logins_and_permissions(serve: Serve) -> None:
    server = serve(more=USERS)
    for user, password, code in (("all", b"pw", 0), ("all", b"wrong", 5), ("nats", b"pw", 5), ("nobody", b"pw", 5)):
        with RawMqtt(server.leaf_port) as mqtt:
            assert mqtt.connect("x", user=user, password=password).reason == code
    with RawMqtt(server.leaf_port) as mqtt:
        assert mqtt.connect("x").reason == 5
    with (
        client(server, "s", user="some", password=b"pw") as mqtt,
        client(server, "a", user="all", password=b"pw") as all_,
    ):
        assert mqtt.subscribe("ok/#", "no/#", "ok/secret").codes == [0, 0x80, 0x80]
        all_.subscribe("#")
        all_.publish("ok/secret", b"1")
        all_.publish("ok/fine", b"2")
        all_.ping()
        assert drain(mqtt, 1) == [("ok/fine", b"2", 0)]
        # What may not be published is acknowledged, and goes nowhere.
        assert mqtt.publish_acked("no/1", b"3", qos=1) == 0
        assert mqtt.publish_acked("ok/1", b"4", qos=1) == 0
        got = drain(all_, 3)
        assert ("ok/1", b"4", 0) in got
        assert not [topic for topic, _, _ in got if topic.startswith("no")]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_denied_subject_comes_to_no_session_by_a_wildcard(serve: Serve, qos: int, *, clean: bool) -> None:
    server = serve(more=USERS)
    with client(server, "a", user="all", password=b"pw") as publisher:
        with client(server, "k", user="kept", password=b"pw", clean=clean) as mqtt:
            assert mqtt.subscribe("ok/#", qos=qos).codes == [qos]
            publisher.publish_acked("ok/secret", b"1", qos=1)
            publisher.publish_acked("ok/fine", b"2", qos=1)
            assert drain(mqtt, 1) == [("ok/fine", b"2", min(qos, 1))]
            assert mqtt.is_quiet()
            mqtt.disconnect()
        if not clean and qos:
            publisher.publish_acked("ok/secret", b"3", qos=1)
            publisher.publish_acked("ok/fine", b"4", qos=1)
            with client(server, "k", user="kept", password=b"pw", clean=False) as mqtt:
                assert [payload for _, payload, _ in drain(mqtt, 1)] == [b"4"]
                assert mqtt.is_quiet()


def test_tokens(serve: Serve) -> None:
    server = serve(mqtt="authorization { token: sesame }")
    with RawMqtt(server.leaf_port) as mqtt:
        assert mqtt.connect("x", user="any", password=b"sesame").reason == 0
    with RawMqtt(server.leaf_port) as mqtt:
        assert mqtt.connect("x", user="any", password=b"wrong").reason == 5


# -- Eyot alone --------------------------------------------------------------------------------------------------------------


def test_topics_with_what_no_subject_may_contain(eyot: Serve) -> None:
    server = eyot()
    odd = ["living room/lamp", "a/*/b", "a/>", "tab\there", " "]
    with client(server, "a") as there, client(server, "b", clean=False) as away, client(server, "c") as here:
        assert there.subscribe("living room/#", "a/+/b", "a/>", "tab\there", " ", qos=1).codes == [1] * 5
        assert away.subscribe("#", qos=1).codes == [1]
        away.disconnect()
        for topic in odd:
            assert here.publish_acked(topic, topic.encode(), qos=1, retain=True) == 0
        assert here.publish_acked("a/x", b"no wildcard", qos=1) == 0
        assert drain(there, 5) == [(topic, topic.encode(), 1) for topic in odd]
        assert there.is_quiet()
        there.subscribe("a/*/b")  # retained
        assert drain(there, 1) == [("a/*/b", b"a/*/b", 0)]
    with client(server, "b", clean=False) as back:
        assert [topic for topic, _, _ in drain(back, 6)] == [*odd, "a/x"]


def test_levels_of_no_protocol(eyot: Serve) -> None:
    """A later level than 5 is refused as MQTT 5 says; the private bit of mosquitto's bridges as 3.1.1 says."""
    server = eyot()
    for level, answer in ((1, "20020001"), (6, "2003008400"), (0x7F, "2003008400"), (0x84, "20020001")):
        with RawMqtt(server.leaf_port) as mqtt:
            mqtt.send(b"\x10\x0d\0\4MQTT" + bytes((level, 2, 0, 10, 0, 1, 120)))
            assert mqtt.sock.recv(64).hex() == answer
            assert mqtt.closed()


def test_acknowledged_means_in_the_streams(eyot: Serve) -> None:
    """PUBACK waits for every stream; a stream that refuses makes none store, and no PUBACK."""
    server = eyot(more="eyot { mqtt { packet3_refusal_pause: 0.3 } }")

    async def streams() -> None:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        js = nc.jetstream()
        await js.add_stream(name="A", subjects=["s.>"])
        await js.add_stream(name="B", subjects=["s.b"], max_msgs=2, discard="new")
        await nc.close()

    async def state() -> list[int]:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        js = nc.jetstream()
        found = [(await js.stream_info(name)).state.messages for name in ("A", "B")]
        await nc.close()
        return found

    with pytest.raises(Exception, match="overlap"):
        asyncio.run(streams())
    with client(server, "p") as mqtt:
        assert mqtt.publish_acked("s/a", b"1", qos=1) == 0
        assert mqtt.publish_acked("s/a", b"2", qos=2) == 0

    async def only() -> int:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        found = (await nc.jetstream().stream_info("A")).state.messages
        await nc.jetstream().add_stream(name="FULL", subjects=["f"], max_msgs=1, discard="new")
        await nc.close()
        return found

    assert asyncio.run(only()) == 2
    with client(server, "p") as mqtt:
        assert mqtt.publish_acked("f", b"1", qos=1) == 0
        mqtt.publish("f", b"2", qos=1)
        assert mqtt.closed(), "3.1.1 has no answer for a refusal"
    with client(server, "p5", level=5) as mqtt:
        assert mqtt.publish_acked("f", b"2", qos=1) == 0x97
        assert mqtt.publish_acked("f", b"2", qos=2) == 0x97
        assert mqtt.publish_acked("elsewhere", b"2", qos=1) == 0x10
    assert "a publish is refused: maximum messages exceeded" in server.log()


def test_the_same_identifiers_after_a_kill(eyot: Serve) -> None:
    """Unacknowledged messages come again in their order, with their identifiers and DUP [MQTT-4.4.0-1]."""
    server = eyot()
    with client(server, "d", clean=False) as mqtt, client(server, "p") as here:
        mqtt.subscribe("d/#", qos=2)
        for number in range(6):
            here.publish_acked("d/x", b"%d" % number, qos=1 + number % 2)
        before = [mqtt.next_publish() for _ in range(6)]
        assert [each.payload for each in before] == [b"%d" % number for number in range(6)]
        mqtt.puback(before[0].packet_id)
        mqtt.pubrec(before[1].packet_id)
        assert mqtt.expect(PacketType.PUBREL).packet_id == before[1].packet_id
        mqtt.ping()
        for _ in range(
            2
        ):  # an acknowledgement of QoS 1 is written soon: before the second of two commits that follow it
            here.publish_acked("d/later", b"", qos=1)
        server.kill()
    server.start()
    with client(server, "d", clean=False) as mqtt:
        assert mqtt.present  # type: ignore[attr-defined]
        assert mqtt.expect(PacketType.PUBREL).packet_id == before[1].packet_id
        mqtt.pubcomp(before[1].packet_id)
        again = [mqtt.next_publish() for _ in range(4)]
        assert [(each.payload, each.packet_id, each.dup) for each in again] == [
            (each.payload, each.packet_id, True) for each in before[2:]
        ]


def test_exactly_once_across_a_kill(eyot: Serve) -> None:
    """A PUBLISH of QoS 2 that comes again after a power cut is the same message."""
    server = eyot()
    with client(server, "p", clean=False) as mqtt:
        mqtt.publish("t", b"once", qos=2, packet_id=7)
        assert mqtt.expect(PacketType.PUBREC).packet_id == 7
    watcher = client(server, "w", clean=False)
    watcher.subscribe("t", qos=2)
    server.kill()
    server.start()
    with client(server, "p", clean=False) as mqtt, client(server, "w", clean=False) as watcher:
        assert mqtt.present  # type: ignore[attr-defined]
        mqtt.publish("t", b"once", qos=2, dup=True, packet_id=7)
        assert mqtt.expect(PacketType.PUBREC).packet_id == 7
        for _ in range(2):  # the PUBCOMP may have been lost, too
            mqtt.send(encoder.pubrel(4, 7))
            assert mqtt.expect(PacketType.PUBCOMP).packet_id == 7
        assert watcher.is_quiet()
        mqtt.publish_acked("t", b"another", qos=2, packet_id=7)
        assert watcher.message().payload == b"another"


def test_a_clean_session_forgets_identifiers(eyot: Serve) -> None:
    """(nats-server delivers the old message.)"""
    server = eyot()
    with client(server, "w") as watcher:
        watcher.subscribe("t", qos=2)
        with client(server, "p", clean=False) as mqtt:
            mqtt.publish("t", b"old", qos=2, packet_id=7)
            mqtt.expect(PacketType.PUBREC)
            assert watcher.message().payload == b"old"
        with client(server, "p", clean=True) as mqtt:
            mqtt.publish_acked("t", b"new", qos=2, packet_id=7)
            assert watcher.message().payload == b"new"


def test_a_will_after_a_kill(eyot: Serve) -> None:
    server = eyot()
    client(server, "lost", clean=False, will=Will("will/lost", b"gone", 1, True))
    server.kill()
    server.start()
    with client(server, "w") as watcher:
        watcher.subscribe("will/#", qos=1)
        assert watcher.message().payload == b"gone"


def test_the_window_keeps_the_order(eyot: Serve) -> None:
    server = eyot(mqtt="max_ack_pending: 3")
    with client(server, "w", clean=False) as watcher, client(server, "p") as here:
        watcher.subscribe("o", qos=1)
        for number in range(10):
            here.publish_acked("o", b"%d" % number, qos=1)
        first = [watcher.next_publish() for _ in range(3)]
        assert watcher.is_quiet(), "no more than the window"
        for each in first:
            watcher.puback(each.packet_id)
        assert [payload for _, payload, _ in drain(watcher, 7)] == [b"%d" % number for number in range(3, 10)]


def test_another_user_cannot_have_a_session(eyot: Serve) -> None:
    server = eyot(more=USERS.replace('allowed_connection_types: ["STANDARD"]', 'allowed_connection_types: ["MQTT"]'))
    with client(server, "mine", clean=False, user="all", password=b"pw") as mine:
        with RawMqtt(server.leaf_port) as thief:
            assert thief.connect("mine", user="nats", password=b"pw").reason == 5
        mine.ping()


def test_reserved_subjects_need_a_permission(eyot: Serve) -> None:
    server = eyot()
    with client(server, "p", level=5) as mqtt:
        assert mqtt.publish_acked("$JS/API/STREAM/DELETE/ORDERS", b"", qos=1) == 0x87
        assert mqtt.publish_acked("$MQTT/sess/x", b"", qos=1) == 0x87
        assert mqtt.subscribe("$MQTT/#").codes == [0x8F]


def test_packets_of_several_connections_at_once(eyot: Serve) -> None:
    """Many publishers with one message in flight each: every one is acknowledged."""
    server = eyot()

    async def stream() -> None:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        await nc.jetstream().add_stream(name="S", subjects=["load.>"])
        await nc.close()

    asyncio.run(stream())
    clients = [client(server, f"c{number}") for number in range(50)]
    for round_ in range(5):
        ids = [each.publish(f"load/{round_}", b"x" * 100, qos=1) for each in clients]
        assert [each.expect(PacketType.PUBACK).packet_id for each in clients] == ids
    for each in clients:
        each.sock.close()


def test_monitoring(eyot: Serve) -> None:
    server = eyot()
    with client(server, "dev ice\n") as mqtt:
        mqtt.subscribe("a/b", qos=1)
        page = server.monitor("/connz?subs=1&mqtt_client=dev%20ice%0A")
        (row,) = page["connections"]
        assert (row["type"], row["mqtt_client"], row["subscriptions_list"]) == ("mqtt", "dev ice\n", ["a.b"])
        assert server.monitor("/varz")["mqtt"]["port"] == server.leaf_port
    assert "dev ice\n" not in server.log().replace("dev ice\\n", "")


def test_half_open(eyot: Serve) -> None:
    """A peer that never sends CONNECT is closed, and one whose CONNECT is never finished."""
    server = eyot(more='authorization { timeout: 1, token: "x" }')
    for begin in (b"", b"\x10", b"\x10\xff\x7f\x00\x04MQTT"):
        with socket.create_connection(("127.0.0.1", server.leaf_port), timeout=20) as sock:
            sock.sendall(begin)
            assert sock.recv(10) == b""


def test_connections_are_served_in_the_order_of_their_data(eyot: Serve) -> None:
    """A SUBSCRIBE comes before a PUBLISH that was sent after it on another connection."""
    server = eyot()
    for _ in range(20):
        with client(server, "s", level=5) as there, client(server, "p", level=5) as here:
            there.ping()  # the server has asked the kernel again since it read from `here`, which else may come first
            there.send(encoder.subscribe(5, Subscribe(1, [SubscriptionRequest("t", 1)])))
            here.publish("t", b"x", qos=1)
            assert there.expect(PacketType.SUBACK).codes == [1]
            assert there.message().payload == b"x"
