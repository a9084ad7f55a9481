"""Reading `mqtt { }` and `eyot { mqtt { } }`. Keys, defaults and errors of the first are nats-server's (`parseMQTT`)."""

from __future__ import annotations

from typing import Final

from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.listen import read_listen, read_listener_login
from eyot_daemon.config.mqtt import (
    ACK_WAIT_DEFAULT_S,
    API_TIMEOUT_DEFAULT_S,
    SESSION_EXPIRY_DEFAULT_S,
    MqttBounds,
    MqttOptions,
)
from eyot_daemon.config.profile import Profile
from eyot_daemon.config.reader import Block
from eyot_daemon.config.tls_read import read_tls
from eyot_wire.conf import ConfEntry, ConfMap

#: Packet identifiers, topic aliases and keep-alives are 16 bits wide.
_UINT16_MAX: Final = 65_535
#: MQTT 5: a session that expires after 2**32 - 1 seconds never does.
_EXPIRY_S_MAX: Final = 2**32 - 2
#: A hundred years: the times of a stream are 64 bits of nanoseconds.
_AGE_S_MAX: Final = 100 * 365 * 86_400
_WINDOW_DEFAULT: Final = 1024
#: A packet must at least hold a CONNECT with id, user and password.
_PACKET_BYTES_MIN: Final = 1024
_PACKET_BYTES_MAX: Final = 268_435_460  # what the length field of MQTT can say, with its header
#: Go's names of types, which nats-server's error has.
_GO_TYPES: Final = {bool: "bool", int: "int64", float: "float64", str: "string", tuple: "[]interface {}"}


def read_mqtt(parent: Block) -> MqttOptions | None:
    """Read the block; None without one, or without a port: then nats-server does not listen either."""
    entry = parent.entry("mqtt")
    if entry is None:
        return None
    if not isinstance(entry.value.value, ConfMap):
        raise parent.error(f"Expected mqtt to be a map, got {_go_type(entry)}", "mqtt")
    block = parent.nested(entry.value, entry.key)
    host, port = read_listen(block)
    replicas = block.entry("consumer_replicas")
    if replicas is not None:
        message = "consumer replicas setting ignored in this server version"
        block.reading.warn(replicas.value.position, replicas.key, message)
    options = MqttOptions(
        host=host or "0.0.0.0",
        port=port or 0,
        tls=read_tls(block, "tls"),
        authorization=_read_authorization(block.block("authorization", "authentication")),
        no_auth_user=block.string("no_auth_user"),
        # nats-server refuses negative times at the start, and only where MQTT is on
        ack_wait_s=_duration(block, "ack_wait", "ackwait") or ACK_WAIT_DEFAULT_S,
        api_timeout_s=_duration(block, "js_api_timeout", "api_timeout") or API_TIMEOUT_DEFAULT_S,
        max_ack_pending=_read_window(block),
        js_domain=block.string("js_domain"),
        stream_replicas=block.integer("stream_replicas", default=0),
        consumer_replicas=block.integer("consumer_replicas", default=0),
        consumer_memory_storage=block.boolean("consumer_memory_storage"),
        consumer_inactive_threshold_s=_duration(block, "consumer_inactive_threshold", "consumer_auto_cleanup"),
        reject_qos2_publish=block.boolean("reject_qos2_publish"),
        downgrade_qos2_subscribe=block.boolean("downgrade_qos2_subscribe"),
    )
    block.finish()
    return options if options.port else None


def _go_type(entry: ConfEntry) -> str:
    value = entry.value.value
    return _GO_TYPES.get(type(value), "time.Time")


def _duration(block: Block, *keys: str) -> float:
    return block.seconds(*keys, default=0.0, minimum=float("-inf"))


def _read_window(block: Block) -> int:
    keys = ("max_ack_pending", "max_pending", "max_inflight")
    window = block.integer(*keys, default=_WINDOW_DEFAULT)
    if not 0 <= window <= _UINT16_MAX:
        raise block.error(f"invalid value {window}, should in [0..{_UINT16_MAX}] range", *keys)
    return window or _WINDOW_DEFAULT


def _read_authorization(block: Block | None) -> AuthorizationOptions | None:
    if block is None:
        return None
    authorization = read_listener_login(block)
    block.finish()
    return authorization


def read_mqtt_bounds(block: Block | None, profile: Profile) -> MqttBounds:
    """Read `eyot { mqtt { } }`."""
    if block is None:
        return _bounds_of(profile)
    bounds = MqttBounds(
        keep_alive_max_s=_whole_seconds(block, "max_keepalive", default=0, most=_UINT16_MAX),
        session_expiry_max_s=_whole_seconds(
            block, "session_expiry_max", default=SESSION_EXPIRY_DEFAULT_S, most=_EXPIRY_S_MAX
        ),
        sessions_max=block.integer("max_sessions", default=profile.mqtt_max_sessions, minimum=1),
        queue_msgs=block.integer("session_queue_msgs", default=profile.mqtt_session_queue_msgs, minimum=1),
        queue_bytes=_bytes(block, "session_queue_bytes", default=profile.mqtt_session_queue_bytes),
        queue_age_s=_whole_seconds(block, "session_queue_age", default=0, most=_AGE_S_MAX),
        queued_msgs_max=block.integer("queued_msgs_max", default=profile.mqtt_queued_msgs_max, minimum=1),
        queued_bytes_max=_bytes(block, "queued_bytes_max", default=profile.mqtt_queued_bytes_max),
        retained_msgs_max=block.integer("retained_msgs_max", default=profile.mqtt_retained_msgs_max, minimum=0),
        retained_bytes_max=_bytes(block, "retained_bytes_max", default=profile.mqtt_retained_bytes_max),
        retained_age_s=_whole_seconds(block, "retained_age", default=0, most=_AGE_S_MAX),
        packet_bytes_max=_read_packet_size(block),
        topic_alias_max=block.integer("max_topic_alias", default=10, minimum=0, maximum=_UINT16_MAX),
        inflight_max=block.integer("max_inflight", default=profile.mqtt_max_inflight, minimum=1, maximum=_UINT16_MAX),
        refusal_pause_s=block.timeout("packet3_refusal_pause", default=10.0),
        sys_interval_s=block.timeout("sys_interval", default=10.0),
    )
    block.finish()
    return bounds


def _bounds_of(profile: Profile) -> MqttBounds:
    return MqttBounds(
        sessions_max=profile.mqtt_max_sessions,
        queue_msgs=profile.mqtt_session_queue_msgs,
        queue_bytes=profile.mqtt_session_queue_bytes,
        queued_msgs_max=profile.mqtt_queued_msgs_max,
        queued_bytes_max=profile.mqtt_queued_bytes_max,
        retained_msgs_max=profile.mqtt_retained_msgs_max,
        retained_bytes_max=profile.mqtt_retained_bytes_max,
        inflight_max=profile.mqtt_max_inflight,
    )


def _whole_seconds(block: Block, key: str, *, default: int, most: int) -> int:
    """Return a time that MQTT counts in seconds: a bare number, or a duration."""
    seconds = block.timeout(key, default=default)
    if seconds > most:
        raise block.error(f"must be at most {most} seconds", key)
    if seconds != int(seconds):
        raise block.error("MQTT counts whole seconds", key)
    return int(seconds)


def _bytes(block: Block, key: str, *, default: int) -> int:
    size = block.size(key, default=default)
    if size < 0:
        raise block.error("must be at least 0: nothing is unlimited here", key)
    return size


def _read_packet_size(block: Block) -> int:
    size = block.size("max_packet_size", default=0)
    if size and not _PACKET_BYTES_MIN <= size <= _PACKET_BYTES_MAX:
        raise block.error(f"must be between {_PACKET_BYTES_MIN} and {_PACKET_BYTES_MAX} bytes", "max_packet_size")
    return size
