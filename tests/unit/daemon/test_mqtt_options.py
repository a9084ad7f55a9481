"""`mqtt { }` and `eyot { mqtt { } }`: what the keys say, what must hold at the start, what a reload may change."""

from __future__ import annotations

import pytest

from eyot_daemon.config.mqtt import MqttBounds, MqttOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.read import read_options
from eyot_daemon.mqtt.service import check_mqtt
from eyot_daemon.process.start_error import StartError
from eyot_daemon.reload.changes import ReloadError, changed_fields
from eyot_wire.conf import parse_text

JETSTREAM = "jetstream { store_dir: /tmp/none }\n"


def read(text: str) -> Options:
    return read_options(parse_text(text)).options


def mqtt(text: str) -> MqttOptions:
    options = read(f"mqtt {{ port: 1883, {text} }}").mqtt
    assert options is not None
    return options


def test_defaults_are_those_of_nats_server() -> None:
    options = mqtt("")
    assert options == MqttOptions(port=1883)
    assert (options.host, options.ack_wait_s, options.api_timeout_s) == ("0.0.0.0", 30.0, 5.0)
    assert (options.max_ack_pending, options.reject_qos2_publish) == (1024, False)


def test_zero_means_the_default() -> None:
    options = mqtt('ack_wait: "0s", js_api_timeout: "0s", max_ack_pending: 0')
    assert (options.ack_wait_s, options.api_timeout_s, options.max_ack_pending) == (30.0, 5.0, 1024)


def test_every_key_and_alias() -> None:
    first = mqtt(
        'host: "::1", ack_wait: 1s, js_api_timeout: 2s, max_ack_pending: 3, js_domain: d, stream_replicas: 4, '
        "consumer_memory_storage: true, consumer_inactive_threshold: 5s, reject_qos2_publish: true, "
        "downgrade_qos2_subscribe: true, no_auth_user: n, authorization { user: u, password: p, timeout: 6 }"
    )
    assert first.authorization is not None
    assert (first.authorization.user, first.authorization.password, first.authorization.timeout_s) == ("u", "p", 6.0)
    second = mqtt(
        'net: "::1", ackwait: 1s, api_timeout: 2s, max_inflight: 3, js_domain: d, stream_replicas: 4, '
        "consumer_memory_storage: true, consumer_auto_cleanup: 5s, reject_qos2_publish: true, "
        "downgrade_qos2_subscribe: true, no_auth_user: n, authentication { username: u, pass: p, timeout: 6s }"
    )
    assert first == second
    assert mqtt("max_pending: 3").max_ack_pending == 3
    assert read("mqtt { listen: '127.0.0.1:-1' }").mqtt == MqttOptions(host="127.0.0.1", port=-1)


@pytest.mark.parametrize("text", ["mqtt {}", "mqtt { host: a }", "mqtt { port: 0, js_domain: x }"])
def test_without_a_port_there_is_no_mqtt(text: str) -> None:
    assert read(text).mqtt is None


def test_replicas_of_consumers_are_a_warning() -> None:
    (warning,) = read_options(parse_text("mqtt { port: 1, consumer_replicas: 3 }")).reading.warnings
    assert "consumer replicas setting ignored in this server version" in warning


def test_bounds_of_eyot() -> None:
    assert read("").eyot.mqtt == MqttBounds()
    assert MqttBounds().session_expiry_max_s == 30 * 24 * 3600
    assert MqttBounds().packet_bytes(1_000) == 1_000 + 64 * 1024
    text = (
        'eyot { mqtt { max_keepalive: 60, session_expiry_max: "2h", max_sessions: 1, session_queue_msgs: 2, '
        'session_queue_bytes: "3K", retained_msgs_max: 0, retained_bytes_max: "5K", max_packet_size: "6K", '
        'session_queue_age: "72h", queued_msgs_max: 9, queued_bytes_max: "7K", retained_age: 60, '
        'max_topic_alias: 0, max_inflight: 8, packet3_refusal_pause: "9s" } }'
    )
    bounds = read(text).eyot.mqtt
    assert bounds == MqttBounds(
        keep_alive_max_s=60,
        session_expiry_max_s=7200,
        sessions_max=1,
        queue_msgs=2,
        queue_bytes=3072,
        queue_age_s=3 * 24 * 3600,
        queued_msgs_max=9,
        queued_bytes_max=7168,
        retained_age_s=60,
        retained_msgs_max=0,
        retained_bytes_max=5120,
        packet_bytes_max=6144,
        topic_alias_max=0,
        inflight_max=8,
        refusal_pause_s=9.0,
    )
    assert bounds.packet_bytes(1_000_000) == 6144


AUTH = "authorization { users [ { user: a, password: b } ] }\n"
NOT_DEFINED = 'no_auth_user: "z" present, but users/nkeys are not defined'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mqtt { port: 1 }", "mqtt requires JetStream to be enabled if running in standalone mode"),
        (JETSTREAM + 'mqtt { port: 1, ack_wait: "-1s" }', "ack wait must be a positive value"),
        (JETSTREAM + 'mqtt { port: 1, api_timeout: "-1s" }', "JS API timeout must be a positive value"),
        (JETSTREAM + "mqtt { port: 1, no_auth_user: z }", NOT_DEFINED),
        (JETSTREAM + "authorization { token: t }\nmqtt { port: 1, no_auth_user: z }", NOT_DEFINED),
        (JETSTREAM + AUTH + "mqtt { port: 1, no_auth_user: z }", 'no_auth_user: "z" not present as user or nkey in'),
        (
            JETSTREAM + AUTH + "mqtt { port: 1, authorization { user: x, password: y } }",
            "mqtt authentication username not compatible with presence of users/nkeys",
        ),
        (
            JETSTREAM + AUTH + "mqtt { port: 1, authorization { token: y } }",
            "mqtt authentication token not compatible with presence of users/nkeys",
        ),
        (JETSTREAM + "mqtt { port: 1, js_domain: hub }", 'mqtt: js_domain "hub" is not the domain of this server'),
    ],
)
def test_what_must_hold_at_the_start(text: str, words: str) -> None:
    options = read(text)
    assert options.mqtt is not None
    with pytest.raises(StartError) as failure:
        check_mqtt(options, options.mqtt)
    assert str(failure.value).startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "mqtt { port: 1 }",
        AUTH + "mqtt { port: 1, no_auth_user: a }",
        "mqtt { port: 1, authorization { user: x, password: y } }",
        "authorization { user: a, password: b }\nmqtt { port: 1, authorization { token: y } }",
    ],
)
def test_what_may_start(text: str) -> None:
    options = read(JETSTREAM + text)
    assert options.mqtt is not None
    check_mqtt(options, options.mqtt)


def test_the_servers_own_domain_may_be_named() -> None:
    options = read("jetstream { store_dir: /tmp/none, domain: leaf }\nmqtt { port: 1, js_domain: leaf }")
    assert options.mqtt is not None
    check_mqtt(options, options.mqtt)


@pytest.mark.parametrize(
    "changed",
    [
        'ack_wait: "5s"',
        "max_ack_pending: 7",
        "stream_replicas: 1",
        "consumer_replicas: 1",
        "consumer_memory_storage: true",
        'consumer_inactive_threshold: "1h"',
    ],
)
def test_a_reload_may_change(changed: str) -> None:
    assert changed_fields(read("mqtt { port: 1 }"), read(f"mqtt {{ port: 1, {changed} }}")) == ["mqtt"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("port: 2", 'field "Port": old=1, new=2'),
        ("port: 1, host: 127.0.0.1", 'field "Host": old=0.0.0.0, new=127.0.0.1'),
        ("port: 1, no_auth_user: a", 'field "NoAuthUser"'),
        ("port: 1, js_domain: a", 'field "JsDomain"'),
        ("port: 1, js_api_timeout: 1s", 'field "JSAPITimeout": old=5s, new=1s'),
        ("port: 1, reject_qos2_publish: true", 'field "RejectQoS2Pub": old=false, new=true'),
        ("port: 1, downgrade_qos2_subscribe: true", 'field "DowngradeQoS2Sub"'),
        ("port: 1, authorization { user: hidden, password: p }", 'field "Authorization"'),
        ("port: 0", "config reload not supported for MQTT"),
    ],
)
def test_a_reload_may_not_change(changed: str, words: str) -> None:
    with pytest.raises(ReloadError) as refusal:
        changed_fields(read("mqtt { port: 1 }"), read(f"mqtt {{ {changed} }}"))
    assert "config reload not supported for MQTT" in str(refusal.value)
    assert words in str(refusal.value)
    assert "hidden" not in str(refusal.value)


def test_bounds_may_change_at_a_reload() -> None:
    assert changed_fields(read(""), read("eyot { mqtt { max_sessions: 5 } }")) == ["eyot"]
