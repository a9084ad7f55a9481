"""What MQTT 5 adds to 3.1.1 for wills, sessions and limits of the client, statement by statement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, SubscriptionRequest, Will
from eyot_wire.mqtt.properties import Properties
from support.mqtt.mqtt5 import CONFIG, LASTS, PATIENCE_S, client, connack, ended, mqtt5_server
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with mqtt5_server(tmp_path_factory.mktemp("server")) as running:
        yield running


# -- wills -------------------------------------------------------------------------------------------------------------------


PAIRS = [("z", "1"), ("a", "\r\n"), ("z", "1")]


def with_will(server: Eyotd, name: str, *, delay: int | None, expiry_s: int, retain: bool = False) -> RawMqtt:
    will = Will(f"will/{name}", name.encode(), 1, retain, Properties(will_delay_interval=delay, user_properties=PAIRS))
    return client(server, name, clean=True, will=will, props=Properties(session_expiry_interval=expiry_s))


def test_wills_are_published_when_they_are_due(server: Eyotd) -> None:
    """After the delay, at the end of the session before it, and for every DISCONNECT but the normal one."""
    with client(server) as hears:
        hears.subscribe("will/+", qos=2)
        for name, delay, expiry_s, last_packet in (
            ("plain", None, 0, b""),
            ("delayed", 1, 3600, b""),
            ("session-ends", 3600, 1, b""),
            ("asked", 0, 0, encoder.disconnect(4)),
            ("with-an-error", 0, 0, encoder.disconnect(0x81)),
            ("lasting-with-an-error", 0, 3600, encoder.disconnect(0x80)),
        ):
            with with_will(server, name, delay=delay, expiry_s=expiry_s) as dies:
                dies.send(last_packet)
            got = hears.message()
            assert (got.payload, got.retain, got.properties.user_properties) == (name.encode(), False, PAIRS)
            assert got.properties.will_delay_interval is None
        with with_will(server, "normal", delay=0, expiry_s=0) as leaves:
            leaves.send(encoder.DISCONNECT)
            assert ended(leaves) == 0
        assert hears.is_quiet()


def test_a_client_that_returns_in_time_takes_its_will_back(server: Eyotd) -> None:
    with client(server) as hears:
        hears.subscribe("will/back", qos=1)
        with_will(server, "back", delay=3600, expiry_s=3600).sock.close()
        with client(server, "back", clean=False, props=LASTS) as back:
            assert connack(back).present
            back.send(encoder.disconnect(4))  # there is no will any more
            ended(back)
        assert hears.is_quiet()


@pytest.mark.parametrize("connected", [False, True])
def test_a_clean_start_publishes_the_will_that_waits(server: Eyotd, connected: bool) -> None:
    """The session ends, and so does the delay of its will, whether its connection has ended before or is taken over."""
    name = f"begins-{connected}"
    with client(server) as hears, with_will(server, name, delay=3600, expiry_s=3600) as before:
        hears.subscribe(f"will/{name}", qos=1)
        if not connected:
            before.send(encoder.disconnect(4))
            ended(before)
        with client(server, name, clean=True) as begins:
            assert not connack(begins).present
            got = hears.message()
            assert (got.topic, got.payload) == (f"will/{name}", name.encode())
        assert hears.is_quiet()


def test_a_will_with_the_retain_flag_is_retained(server: Eyotd) -> None:
    with client(server) as hears:
        hears.subscribe("will/kept", qos=1)
        with_will(server, "kept", delay=0, expiry_s=0, retain=True).sock.close()
        assert hears.message().payload == b"kept"
    with client(server) as later:
        later.subscribe("will/kept", qos=1)
        assert later.message().retain
        later.publish_acked("will/kept", b"", retain=True)


# -- sessions ----------------------------------------------------------------------------------------------------------------


def test_a_session_lasts_as_long_as_was_asked(server: Eyotd) -> None:
    client(server, "short", clean=True).sock.close()
    assert not connack(client(server, "short", clean=False)).present
    until = time.monotonic() + PATIENCE_S
    while True:
        with client(server, "short", clean=False, props=Properties(session_expiry_interval=1)) as brief:
            if not connack(brief).present and time.monotonic() < until - PATIENCE_S + 1.5:
                continue  # the first has no session
            if not connack(brief).present:
                break
            assert time.monotonic() < until, "the session does not end"
        time.sleep(2)


def test_disconnect_changes_how_long_a_session_lasts(server: Eyotd) -> None:
    with client(server, "change", clean=True, props=LASTS) as leaves:
        leaves.send(encoder.disconnect(0, Properties(session_expiry_interval=0)))
        ended(leaves)
    with client(server, "change", clean=False) as none:
        assert not connack(none).present
        none.send(encoder.disconnect(0, Properties(session_expiry_interval=5)))
        assert ended(none) == 0x82
    with client(server, "change", clean=True, props=Properties(session_expiry_interval=5)) as leaves:
        leaves.send(encoder.disconnect(0, Properties(session_expiry_interval=3600)))
        ended(leaves)
    with client(server, "change", clean=False, props=LASTS) as back:
        assert connack(back).present
    client(server, "change", clean=True).sock.close()


def test_clean_start_begins_anew(server: Eyotd) -> None:
    with client(server, "anew", clean=True, props=LASTS) as first:
        assert not connack(first).present
        first.subscribe("anew", qos=1)
    with client(server, "anew", clean=False, props=LASTS) as second:
        assert connack(second).present
    with client(server, "anew", clean=True, props=LASTS) as third, client(server) as says:
        assert not connack(third).present
        says.publish_acked("anew", b"x")
        assert third.is_quiet()


def test_the_server_names_its_clients(server: Eyotd) -> None:
    with client(server) as one, client(server) as two, client(server, "own") as own:
        names = [connack(each).properties.assigned_client_identifier for each in (one, two, own)]
        assert names[0]
        assert names[1]
        assert names[0] != names[1]
        assert names[2] is None
    for name in ("0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ", "0"):
        client(server, name).disconnect()


def test_the_server_shortens_the_keep_alive(server: Eyotd) -> None:
    for asked, told in ((0, 300), (1000, 300), (300, None), (20, None)):
        with client(server, keep_alive=asked) as each:
            assert connack(each).properties.server_keep_alive == told


def test_a_newer_connection_takes_over(server: Eyotd) -> None:
    old = client(server, "twice", clean=True, props=LASTS)
    with client(server, "twice", clean=False, props=LASTS) as new:
        assert connack(new).present
        assert ended(old) == 0x8E
        new.ping()
    old.sock.close()
    client(server, "twice", clean=True).disconnect()


@pytest.mark.parametrize("level", [4, 5])
def test_nothing_behind_a_refused_connect_is_processed(server: Eyotd, level: int) -> None:
    with client(server) as hears:
        hears.subscribe("refused", qos=1)
        with RawMqtt(server.leaf_port, level=level) as wrong:
            wrong.send(
                encoder.connect(Connect(level, "x", True, 0, "a", b"wrong")) + encoder.publish(level, "refused", b"x")
            )
            got = wrong.packet()
            assert (got.type, got.present) == (PacketType.CONNACK, False)
            assert got.reason == (0x87 if level == 5 else 5)
            assert wrong.closed()
        assert hears.is_quiet()


# -- limits of the client ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_a_message_that_is_too_large_is_passed_over(server: Eyotd, expiry_s: int) -> None:
    props = Properties(maximum_packet_size=200, session_expiry_interval=expiry_s)
    with client(server, "small", clean=True, props=props) as small, client(server) as says:
        small.subscribe("size/a", qos=2)
        for qos in (0, 1, 2):
            says.publish_acked("size/a", bytes(300), qos=qos)
            says.publish_acked("size/a", b"small", qos=qos)
            assert small.message().payload == b"small"
        assert small.is_quiet()
    client(server, "small", clean=True).disconnect()


def test_answers_keep_to_the_maximum_packet_size(server: Eyotd) -> None:
    with client(server, user="few", props=Properties(maximum_packet_size=60)) as few:
        packet_id = few.publish("denied", b"x", qos=1)
        assert few.expect(PacketType.PUBACK).properties.reason_string
        filters = [SubscriptionRequest(f"few/{number}", 0) for number in range(100)]
        few.send(encoder.subscribe(5, encoder.Subscribe(packet_id, filters)))
        assert ended(few) == 0x95
    with client(server, "tight", user="few", props=Properties(maximum_packet_size=25)) as tight:
        tight.publish("denied", b"x", qos=1)
        got = tight.expect(PacketType.PUBACK)
        assert (got.reason, got.properties.reason_string) == (0x87, None)
    with RawMqtt(server.leaf_port, level=5) as tiny:
        tiny.send(encoder.connect(Connect(5, "tiny", True, 0, "a", b"a", None, Properties(maximum_packet_size=10))))
        assert tiny.closed()


def test_reason_strings_only_for_those_who_want_them(server: Eyotd) -> None:
    for wanted in (None, 1, 0):
        with client(server, user="few", props=Properties(request_problem_information=wanted)) as few:
            for qos, kind in ((1, PacketType.PUBACK), (2, PacketType.PUBREC)):
                few.publish("denied", b"x", qos=qos)
                got = few.expect(kind)
                assert got.reason == 0x87
                assert bool(got.properties.reason_string) is (wanted != 0)


def test_pings_and_answers_pass_a_full_window(server: Eyotd) -> None:
    with client(server, props=Properties(receive_maximum=1)) as slow, client(server) as says:
        slow.subscribe("window", qos=2)
        for number in range(3):
            says.publish_acked("window", b"%d" % number, qos=2)
        first = slow.next_publish()
        assert slow.is_quiet()
        slow.publish_acked("elsewhere", b"x", qos=2)
        slow.pubrec(first.packet_id, 0x80)  # a refusal makes room, and releases nothing
        assert [slow.message().payload for _ in range(2)] == [b"1", b"2"]
        assert slow.is_quiet()


@pytest.mark.parametrize("level", [4, 5])
def test_an_identifier_is_free_behind_its_acknowledgement(server: Eyotd, level: int) -> None:
    with client(server, level=level) as hears, client(server, level=level, user="few") as few:
        hears.subscribe("few/free", qos=2)
        if level == 5:
            few.publish("denied", b"x", qos=2, packet_id=7)
            assert few.expect(PacketType.PUBREC).reason == 0x87
        for qos in (2, 2, 1, 1, 2):
            few.publish_acked("few/free", b"x", qos=qos, packet_id=7, dup=True)
            assert hears.message().qos == qos
        assert hears.is_quiet()


@pytest.mark.parametrize("level", [4, 5])
def test_the_servers_dup_flag_is_its_own(server: Eyotd, level: int) -> None:
    with client(server, level=level) as hears, client(server, level=level) as says:
        hears.subscribe("dup/a", qos=2)
        for qos in (1, 2):
            says.publish("dup/a", b"x", qos=qos, dup=True)
            assert not hears.message().dup


def test_qos_2_that_the_server_does_not_take(tmp_path: Path) -> None:
    with Eyotd(CONFIG.replace("MORE", "reject_qos2_publish: true"), tmp_path) as limited:
        with client(limited) as one:
            assert connack(one).properties.maximum_qos == 1
            assert one.subscribe("a", qos=2).codes == [2]
            one.publish("a", b"x", qos=2)
            assert ended(one) == 0x9B
        with RawMqtt(limited.leaf_port, level=5) as two:
            will = Will("a", b"x", 2)
            assert two.connect("w", user="a", password=b"a", will=will).reason == 0x9B
            assert two.closed()
