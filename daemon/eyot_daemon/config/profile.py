"""`eyot { profile }`: the defaults of options that bound memory, for the size of the machine.

A profile changes defaults only: what the configuration names itself stands. docs/reference.md lists both columns.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


class Profile(Struct, frozen=True, kw_only=True):
    """Defaults of the configuration. Sizes in bytes, times in seconds; each field is named like the key that overrides it.

    The values here are those of `standard`: nats-server's where it has the option.
    """

    max_connections: int = 65_536
    #: of one connection; 0: no limit
    max_subscriptions: int = 0
    max_pending: int = 64 * _MIB
    #: of all client connections; 0: no limit
    max_pending_total: int = 0
    max_closed_clients: int = 10_000
    #: of all accounts, in streams with memory storage; -1: by the machine's memory
    max_memory_store: int = -1
    #: of one stream, published and not on flash; 0: the limiter's own
    max_buffered_msgs: int = 0
    max_buffered_size: int = 0
    #: of one consumer; 0: no limit
    max_ack_pending: int = 0
    #: of one stream; 0: no limit
    duplicate_window_s: float = 0.0
    #: 0: the store's own
    journal_size: int = 0
    #: of all streams, staged and not on flash; 0: the store's own
    backlog_size: int = 0
    #: of all open atomic batches
    batch_size: int = 128 * _MIB
    mqtt_max_sessions: int = 100_000
    mqtt_session_queue_msgs: int = 10_000
    mqtt_session_queue_bytes: int = 64 * _MIB
    mqtt_queued_msgs_max: int = 1_000_000
    mqtt_queued_bytes_max: int = 4096 * _MIB
    mqtt_retained_msgs_max: int = 100_000
    mqtt_retained_bytes_max: int = 256 * _MIB
    mqtt_max_inflight: int = 1024


STANDARD: Final = Profile()
#: For 256 MB of memory and one weak core.
SMALL: Final = Profile(
    max_connections=64,
    max_subscriptions=1000,
    max_pending=4 * _MIB,
    max_pending_total=48 * _MIB,
    max_closed_clients=100,
    max_memory_store=32 * _MIB,
    max_buffered_msgs=10_000,
    max_buffered_size=8 * _MIB,
    max_ack_pending=10_000,
    duplicate_window_s=600.0,
    journal_size=4 * _MIB,
    backlog_size=8 * _MIB,
    batch_size=8 * _MIB,
    mqtt_max_sessions=1000,
    mqtt_session_queue_msgs=2000,
    mqtt_session_queue_bytes=512 * _KIB,
    mqtt_queued_msgs_max=50_000,
    mqtt_queued_bytes_max=32 * _MIB,
    mqtt_retained_msgs_max=5000,
    mqtt_retained_bytes_max=8 * _MIB,
    mqtt_max_inflight=64,
)
PROFILES: Final = {"standard": STANDARD, "small": SMALL}
