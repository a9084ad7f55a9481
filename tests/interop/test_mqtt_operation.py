"""What operators see of MQTT: metrics, the log of a reload, `$SYS/broker` topics."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eyot_wire.mqtt.properties import Properties
from support.eyotd import Eyotd
from support.raw_mqtt import Closed, RawMqtt

CONFIG = """
    server_name: gateway
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
    eyot { mqtt { session_queue_msgs: 3 } }
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
    with Eyotd(CONFIG, tmp_path) as made:
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
        text = server.config_path.read_text()
        server.config_path.write_text(text.replace("session_queue_msgs: 3", "session_queue_msgs: 4, max_inflight: 9"))
        server.signal(signal.SIGHUP)
        server.wait_log("Reloaded: eyot mqtt limits")
        server.wait_log("Reloaded server configuration")
        assert "sync policies" not in server.log()
        assert one.publish_acked("q/x", b"room", qos=1) == 0
        assert one.publish_acked("q/x", b"no room", qos=1) == 0x97
    with RawMqtt(server.leaf_port, level=5) as late:
        assert late.connect("", user="a", password=b"a").properties.receive_maximum == 9
