"""The metadata that a server writes into stream and consumer configurations (ADR-44).

`_nats.req.level` is stored: the lowest API level that the configuration needs. `_nats.ver` and `_nats.level` describe
the answering server and are added to responses only. Users cannot set these keys, and comparisons of configurations
ignore them.
"""

from eyot_daemon.version import API_LEVEL, VERSION
from eyot_wire.jetstream.model import StreamConfig

REQUIRED_LEVEL = "_nats.req.level"
SERVER_VERSION = "_nats.ver"
SERVER_LEVEL = "_nats.level"
RESERVED = frozenset({REQUIRED_LEVEL, SERVER_VERSION, SERVER_LEVEL})


def own(metadata: dict[str, str]) -> dict[str, str]:
    """Return the user's metadata, without the server's keys."""
    return {key: value for key, value in metadata.items() if key not in RESERVED}


def with_level(metadata: dict[str, str], level: int) -> dict[str, str]:
    """Return the metadata to store: the user's own, and the API level that the configuration needs."""
    return {**own(metadata), REQUIRED_LEVEL: str(level)}


def answered(metadata: dict[str, str]) -> dict[str, str]:
    """Return metadata for a response: the stored ones, and the answering server. Sorted by key, as Go writes maps."""
    return dict(sorted({**metadata, SERVER_VERSION: VERSION, SERVER_LEVEL: str(API_LEVEL)}.items()))


def stream_level(config: StreamConfig) -> int:
    """Return the lowest API level that supports everything in `config`."""
    if config.allow_batched:
        return 4
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules or config.persist_mode == "async":
        return 2
    if config.allow_msg_ttl or config.subject_delete_marker_ttl:
        return 1
    return 0
