"""What operators see of MQTT: metrics, the log of a reload, `$SYS/broker` topics."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from support.clients.raw_client import RawClient
from support.mqtt.raw_mqtt import Closed, Got, RawMqtt
from support.servers.eyotd import Eyotd

PATIENCE_S = 30.0
CONFIG = """
    server_name: gateway
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
    eyot { mqtt { session_queue_msgs: 3, %SYS% } }
    accounts {
        A { jetstream: enabled, users: [
            {user: a, password: a}
            {user: few, password: few, permissions: { subscribe: ["$SYS.broker.clients.>", "x.>"], publish: "x.>" }}
        ] }
        B { jetstream: enabled, users: [ {user: b, password: b} ] }
    }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Eyotd]:
    with Eyotd(CONFIG.replace("%SYS%", "sys_interval: 1h"), tmp_path) as made:
        yield made


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Eyotd]:
    """With `$SYS/broker` topics five times a second."""
    with Eyotd(CONFIG.replace("%SYS%", "sys_interval: 200ms"), tmp_path) as made:
        yield made


def client(server: Eyotd, user: str, client_id: str = "", *, level: int = 5, **more: object) -> RawMqtt:
    made = RawMqtt(server.leaf_port, level=level)
    got = made.connect(client_id, user=user, password=user.encode(), **more)  # type: ignore[arg-type]
    assert got.reason == 0
    return made


def scrape(server: Eyotd) -> dict[str, float]:
    """Samples of MQTT by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=30) as response:
        text = response.read().decode()
    return {
        f"{sample.name}{{{','.join(f'{key}={value}' for key, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("eyot_mqtt_")
    }


def reload_with(server: Eyotd, options: str, mqtt: str = "") -> None:
    """Set options of `eyot { mqtt { } }`, the first one instead of the bound of 3 messages, and more of `mqtt { }`."""
    text = server.config_path.read_text().replace("session_queue_msgs: 3", options)
    text = text.replace("session_queue_msgs: 4", options).replace(
        f'{server.leaf_port}"', f'{server.leaf_port}", {mqtt}'
    )
    server.config_path.write_text(text)
    server.signal(signal.SIGHUP)


def wait_expired(server: Eyotd, count: int) -> None:
    """Wait until so many messages have expired, and none waits any more."""
    until = time.monotonic() + PATIENCE_S
    while (found := scrape(server))["eyot_mqtt_dropped_total{account=A,reason=expired}"] != count:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    assert found["eyot_mqtt_queued_messages{account=A}"] == 0


def test_metrics(server: Eyotd) -> None:
    away = client(server, "a", "away", clean=False, props=Properties(session_expiry_interval=60))
    with away:
        away.subscribe("q/#", qos=1)
        away.disconnect()
    with client(server, "a", "one") as one, client(server, "b") as other:
        one.subscribe("t", qos=2)
        one.publish_acked("t", b"12", qos=2)
        assert one.message().payload == b"12"
        one.publish("t", b"3", qos=0)
        assert one.message().payload == b"3"
        for number in range(3):
            assert one.publish_acked("q/x", b"%d" % number, qos=1, retain=True) == 0
        assert one.publish_acked("q/x", b"no room", qos=1) == 0x97
        one.publish("$JS/API/INFO", b"", qos=0)
        one.ping()
        other.ping()
        with RawMqtt(server.leaf_port) as refused:
            assert refused.connect("x", user="a", password=b"wrong").reason == 5
        with RawMqtt(server.leaf_port) as refused:
            refused.send(b"\x30\x05\x00\x01ab?")
            with pytest.raises(Closed):
                refused.packet()
        found = scrape(server)
        assert found["eyot_mqtt_clients{account=A}"] == 1
        assert found["eyot_mqtt_clients{account=B}"] == 1
        assert found["eyot_mqtt_sessions{account=A}"] == 2
        assert found["eyot_mqtt_queued_messages{account=A}"] == 3
        assert found["eyot_mqtt_queued_bytes{account=A}"] > 0
        assert found["eyot_mqtt_retained_messages{account=A}"] == 1
        assert found["eyot_mqtt_retained_bytes{account=A}"] > 0
        assert found["eyot_mqtt_retained_messages{account=B}"] == 0
        assert [found[f"eyot_mqtt_received_total{{account=A,qos={qos}}}"] for qos in range(3)] == [2, 4, 1]
        assert [found[f"eyot_mqtt_sent_total{{account=A,qos={qos}}}"] for qos in range(3)] == [1, 0, 1]
        assert found["eyot_mqtt_dropped_total{account=A,reason=refused}"] == 1
        assert found["eyot_mqtt_dropped_total{account=A,reason=denied}"] == 1
        assert found["eyot_mqtt_dropped_total{account=B,reason=denied}"] == 0
        assert found["eyot_mqtt_connects_refused_total{reason=not_authorized}"] == 1
        assert found["eyot_mqtt_connects_refused_total{reason=protocol_error}"] == 1
        assert found["eyot_mqtt_in_bytes_total{account=A}"] > 0
        assert found["eyot_mqtt_out_bytes_total{account=A}"] > 0


def test_a_reload_of_limits_says_so_and_applies(server: Eyotd) -> None:
    with client(server, "a", "away", clean=False, props=Properties(session_expiry_interval=60)) as away:
        away.subscribe("q/#", qos=1)
        away.disconnect()
    with client(server, "a") as one:
        for number in range(3):
            assert one.publish_acked("q/x", b"%d" % number, qos=1) == 0
        assert one.publish_acked("q/x", b"no room", qos=1) == 0x97
        reload_with(server, "session_queue_msgs: 4, max_inflight: 9")
        server.wait_log("Reloaded: eyot mqtt limits")
        server.wait_log("Reloaded server configuration")
        assert "sync policies" not in server.log()
        assert one.publish_acked("q/x", b"room", qos=1) == 0
        assert one.publish_acked("q/x", b"no room", qos=1) == 0x97
    with RawMqtt(server.leaf_port, level=5) as late:
        assert late.connect("", user="a", password=b"a").properties.receive_maximum == 9
        late.publish_acked("q/x", b"kept", qos=0, retain=True)
        late.subscribe("w/#", qos=1)
        reload_with(server, "session_queue_age: 1, retained_age: 1", "max_ack_pending: 2")
        wait_expired(server, 5)
        assert "Reloaded: MQTT max_ack_pending = 2" in server.log()
        for number in range(3):
            late.publish_acked("w/x", b"%d" % number, qos=1)
        sent = [late.next_publish() for _ in range(2)]
        assert late.is_quiet(), "the window of a session that is there is smaller now"
        late.puback(sent[0].packet_id)
        assert late.next_publish().payload == b"2"
        assert scrape(server)["eyot_mqtt_retained_messages{account=A}"] == 0


def test_what_expires_for_a_client_that_is_away_makes_room(server: Eyotd) -> None:
    with client(server, "a", "away", clean=False, props=Properties(session_expiry_interval=60)) as away:
        away.subscribe("q/#", qos=1)
        away.disconnect()
    with client(server, "a") as one:
        for _ in range(3):
            assert one.publish_acked("q/x", b"brief", qos=1, props=Properties(message_expiry_interval=1)) == 0
        wait_expired(server, 3)
        assert [one.publish_acked("q/x", b"%d" % number, qos=1) for number in range(4)] == [0, 0, 0, 0x97]
    with client(server, "a", "away", clean=False, props=Properties(session_expiry_interval=60)) as away:
        assert [away.message().payload for _ in range(3)] == [b"0", b"1", b"2"]


# -- $SYS/broker -----------------------------------------------------------------------------------------------------------

#: mosquitto 2.0's topics that dashboards read, without those of bridges and of its heap.
TOPICS = ["bytes/received", "bytes/sent", "clients/active", "clients/connected", "clients/disconnected", "clients/expired", "clients/inactive", "clients/maximum", "clients/total", "load/bytes/received/1min", "load/bytes/received/5min", "load/bytes/received/15min", "load/bytes/sent/1min", "load/bytes/sent/5min", "load/bytes/sent/15min", "load/connections/1min", "load/connections/5min", "load/connections/15min", "load/messages/received/1min", "load/messages/received/5min", "load/messages/received/15min", "load/messages/sent/1min", "load/messages/sent/5min", "load/messages/sent/15min", "load/publish/dropped/1min", "load/publish/dropped/5min", "load/publish/dropped/15min", "load/publish/received/1min", "load/publish/received/5min", "load/publish/received/15min", "load/publish/sent/1min", "load/publish/sent/5min", "load/publish/sent/15min", "load/sockets/1min", "load/sockets/5min", "load/sockets/15min", "messages/received", "messages/sent", "messages/stored", "publish/bytes/received", "publish/bytes/sent", "publish/messages/dropped", "publish/messages/received", "publish/messages/sent", "shared_subscriptions/count", "store/messages/bytes", "store/messages/count", "subscriptions/count", "uptime", "version"]  # fmt: skip
ALL = sorted(["$SYS/broker/retained messages/count", *(f"$SYS/broker/{name}" for name in TOPICS)])


def values(mqtt: RawMqtt, count: int) -> dict[str, bytes]:
    """So many retained values, by topic."""
    found = {}
    for _ in range(count):
        got = mqtt.next_publish()
        assert (got.qos, got.retain) == (0, True)
        found[got.topic] = got.payload
    assert mqtt.is_quiet()
    return found


@pytest.mark.parametrize("level", [4, 5])
def test_sys_topics(server: Eyotd, level: int) -> None:
    with client(server, "a", "one", level=level) as one, client(server, "b", level=level) as other:
        one.subscribe("x/#", qos=1)
        one.publish_acked("x/y", b"12345", qos=1, retain=True)
        one.message()
        one.publish_acked("x/y", b"12", qos=1, retain=True)
        one.message()
        one.subscribe("$SYS/#")
        found = values(one, len(ALL))
        assert sorted(found) == ALL
        counts = {topic.removeprefix("$SYS/broker/"): found[topic] for topic in ALL}
        assert counts["version"].startswith(b"Eyot ")
        assert counts["uptime"].endswith(b" seconds")
        assert {name: int(counts[name]) for name in ("clients/connected", "clients/total", "clients/maximum")} == {
            "clients/connected": 1,
            "clients/total": 1,
            "clients/maximum": 1,
        }
        assert int(counts["publish/messages/received"]) == 2
        assert int(counts["publish/messages/sent"]) == 2
        assert int(counts["publish/bytes/received"]) == 7
        assert int(counts["retained messages/count"]) == 1
        assert int(counts["subscriptions/count"]) == 2
        assert float(counts["load/publish/received/1min"]) > 0
        # The other account has its own figures.
        other.subscribe("$SYS/broker/publish/messages/received", "$SYS/broker/retained messages/count")
        assert values(other, 2) == {
            "$SYS/broker/publish/messages/received": b"0",
            "$SYS/broker/retained messages/count": b"0",
        }
        one.unsubscribe("$SYS/#")
        one.subscribe("$SYS/broker/version")
        assert list(values(one, 1)) == ["$SYS/broker/version"]


def next_of(mqtt: RawMqtt, topic: str) -> Got:
    """The next message on a topic."""
    while (got := mqtt.next_publish()).topic != topic:
        pass
    return got


def test_what_changed_comes_again(quick: Eyotd) -> None:
    with client(quick, "a") as one:
        one.subscribe("$SYS/broker/publish/messages/+", "$SYS/broker/version")
        assert sorted(one.next_publish().topic for _ in range(4)) == [
            "$SYS/broker/publish/messages/dropped",
            "$SYS/broker/publish/messages/received",
            "$SYS/broker/publish/messages/sent",
            "$SYS/broker/version",
        ]
        one.publish("z", b"1")
        while (got := one.next_publish()).topic != "$SYS/broker/publish/messages/received":
            assert got.topic == "$SYS/broker/publish/messages/sent"
        assert (got.payload, got.retain) == (b"1", False)
        one.unsubscribe("$SYS/broker/publish/messages/+")
        one.subscribe("$SYS/broker/bytes/received")
        before, after = (int(next_of(one, "$SYS/broker/bytes/received").payload) for _ in range(2))
        assert after > before


def test_only_filters_that_name_sys_get_its_topics(quick: Eyotd) -> None:
    """Neither wildcards at the beginning nor NATS subscribers nor streams get them, and clients cannot publish them."""
    with client(quick, "a") as one, RawClient(quick.client_port, user="a", **{"pass": "a"}) as nats:
        nats.ask(b"SUB > 1\r\n")
        one.subscribe("#", "+/broker/uptime", "+/#")
        assert one.is_quiet()
        one.subscribe("$SYS/broker/uptime")
        for retain in (True, False, False):
            got = one.next_publish()
            assert (got.topic, got.retain) == ("$SYS/broker/uptime", retain)
        assert one.publish_acked("$SYS/broker/uptime", b"forged", qos=1) == 0x87
        assert b"uptime" not in nats.ask(b"")


def test_permissions_apply_to_sys_topics(server: Eyotd) -> None:
    with client(server, "few") as few:
        assert few.subscribe("$SYS/#", "$SYS/broker/uptime", "$SYS/broker/clients/+").codes == [0x87, 0x87, 0]
        found = values(few, 7)
        assert all(topic.startswith("$SYS/broker/clients/") for topic in found)


def test_a_session_that_returns_goes_on_with_sys_topics(quick: Eyotd) -> None:
    lasting = {"clean": False, "props": Properties(session_expiry_interval=60)}
    with client(quick, "a", "panel", **lasting) as panel:
        panel.subscribe("$SYS/broker/uptime", qos=1)
        assert panel.next_publish().retain
        panel.disconnect()
    with client(quick, "a", "panel", **lasting) as panel:
        got = panel.next_publish()
        assert (got.topic, got.qos) == ("$SYS/broker/uptime", 0)


def test_jetstream_of_an_account_goes_off_and_on(server: Eyotd) -> None:
    """Clients go when it goes, come back when it does, and find their sessions: no restart is needed."""
    on = server.config_path.read_text()
    off = on.replace("A { jetstream: enabled", "A { jetstream: disabled")
    few = on.replace("A { jetstream: enabled", "A { jetstream: { max_streams: 1 }")
    lasting = Properties(session_expiry_interval=3600)
    with client(server, "a", "away", clean=False, props=lasting) as away:
        away.subscribe("t", qos=1)
        away.disconnect()
    connected = client(server, "a", "connected")
    for number, config in enumerate((off, few, off, few)):
        server.config_path.write_text(config)
        server.signal(signal.SIGHUP)
        if number == 0:
            assert connected.expect(PacketType.DISCONNECT).reason == ReasonCode.ADMINISTRATIVE_ACTION
            assert connected.closed()
        else:
            _wait_reloads(server, number + 1)
        with RawMqtt(server.leaf_port, level=5) as refused:
            expected = ReasonCode.SERVER_UNAVAILABLE if config is off else ReasonCode.SUCCESS
            assert refused.connect("refused", user="a", password=b"a").reason == expected
    server.config_path.write_text(on)
    server.signal(signal.SIGHUP)
    _wait_reloads(server, 5)
    with client(server, "a", "again") as again:
        assert again.publish_acked("t", b"x") == 0
    with client(server, "a", "away", clean=False, props=lasting) as away:
        assert away.message().payload == b"x"


def test_a_limit_that_kept_mqtt_out_is_lifted(tmp_path: Path) -> None:
    """What was refused once is tried again: no restart is needed."""
    few = CONFIG.replace("%SYS%", "sys_interval: 1h").replace(
        "A { jetstream: enabled", "A { jetstream: { max_streams: 1 }"
    )
    with Eyotd(few, tmp_path) as server:
        with RawMqtt(server.leaf_port, level=5) as refused:
            assert refused.connect("c", user="a", password=b"a").reason == ReasonCode.SERVER_UNAVAILABLE
        server.set_config(few.replace("max_streams: 1", "max_streams: 9"))
        server.signal(signal.SIGHUP)
        _wait_reloads(server, 1)
        client(server, "a", "c").disconnect()


def _wait_reloads(server: Eyotd, count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while server.log().count("Reloaded server configuration") < count:
        assert time.monotonic() < until, server.log()
        time.sleep(0.02)
