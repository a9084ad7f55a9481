"""Options of MQTT: nats-server's block `mqtt { }`, and Eyot's own bounds in `eyot { mqtt { } }`."""

from __future__ import annotations

from msgspec import Struct

from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.tls import TlsOptions

ACK_WAIT_DEFAULT_S = 30.0
API_TIMEOUT_DEFAULT_S = 5.0
#: A day more or less does not matter to a sensor that was away for a month.
SESSION_EXPIRY_DEFAULT_S = 30 * 24 * 3600
#: Room for topic and properties beside a payload of `max_payload`, bytes.
PACKET_OVERHEAD = 64 * 1024


class MqttOptions(Struct, frozen=True, kw_only=True):
    """`mqtt { }`; `port` -1 = any free port. Times in seconds."""

    host: str = "0.0.0.0"
    port: int = 0
    tls: TlsOptions | None = None
    authorization: AuthorizationOptions | None = None
    no_auth_user: str = ""
    #: between deliveries of a message that nats-server's client leaves unacknowledged
    ack_wait_s: float = ACK_WAIT_DEFAULT_S
    api_timeout_s: float = API_TIMEOUT_DEFAULT_S
    #: messages of QoS 1 and 2 on their way to one client; 1..65535
    max_ack_pending: int = 1024
    js_domain: str = ""
    stream_replicas: int = 0
    consumer_replicas: int = 0
    consumer_memory_storage: bool = False
    consumer_inactive_threshold_s: float = 0.0
    reject_qos2_publish: bool = False
    downgrade_qos2_subscribe: bool = False


class MqttBounds(Struct, frozen=True, kw_only=True):
    """`eyot { mqtt { } }`: what clients, sessions and retained messages may take. Sizes in bytes, times in seconds."""

    #: the longest keep-alive; 0: as the client asks. MQTT 5 is told, 3.1.1 is closed after 1.5 times this
    keep_alive_max_s: int = 0
    #: how long a session outlives its connection at most; 0: for ever
    session_expiry_max_s: int = SESSION_EXPIRY_DEFAULT_S
    #: of one account
    sessions_max: int = 100_000
    #: what waits for one session
    queue_msgs: int = 10_000
    queue_bytes: int = 64 << 20
    #: how long a message waits for a session at most; 0: as long as the session lasts
    queue_age_s: int = 0
    #: what waits for all sessions of one account, a message for many of them once
    queued_msgs_max: int = 1_000_000
    queued_bytes_max: int = 4 << 30
    #: of one account
    retained_msgs_max: int = 100_000
    retained_bytes_max: int = 256 << 20
    #: how long a message is retained at most; 0: for ever
    retained_age_s: int = 0
    #: the largest packet of a client; 0: `max_payload` and `PACKET_OVERHEAD`
    packet_bytes_max: int = 0
    topic_alias_max: int = 10
    #: publishes of QoS 1 and 2 of one client that are not acknowledged yet (Receive Maximum)
    inflight_max: int = 1024
    #: how long a refused publish of 3.1.1, which has no answer for it, waits before its connection is closed
    refusal_pause_s: float = 10.0
    #: between `$SYS/broker` topics, while somebody subscribes; 0: there are none
    sys_interval_s: float = 10.0

    def packet_bytes(self, max_payload: int) -> int:
        """Return the largest packet of a client, bytes."""
        return self.packet_bytes_max or max_payload + PACKET_OVERHEAD
