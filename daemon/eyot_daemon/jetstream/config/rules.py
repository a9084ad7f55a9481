"""Shared parts of stream and consumer configurations: names, subjects in use, and the server's metadata.

`Taken` has the subjects in use by the streams of an account, or by the consumers of a work queue. To compare a new
configuration with every other one would cost more with each of them. `Taken` keeps all patterns in one set, and updates it
by what changed since the last use.

Metadata (ADR-44): `_nats.req.level` is stored: the lowest API level that the configuration needs. `_nats.ver` and
`_nats.level` describe the answering server and are added to responses only. Users cannot set these keys, and comparisons of
configurations ignore them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eyot_daemon.version import API_LEVEL, VERSION
from eyot_wire.jetstream.error_codes import JSStreamInvalidConfigF
from eyot_wire.jetstream.errors import JetStreamError, fail
from eyot_wire.jetstream.model import StreamConfig, SubjectTransform
from eyot_wire.pattern_set import PatternSet, bounded
from eyot_wire.subject import is_literal, is_valid
from eyot_wire.transform import Transform, TransformError


class Taken:
    """The patterns of named configurations."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, tuple[bytes, ...]]] = {}
        self._patterns: PatternSet = bounded()

    def follow(self, configs: Iterable[tuple[str, object, Sequence[str | bytes]]]) -> None:
        """Name, configuration (a changed one is another object) and patterns of all there are."""
        known, gone = self._known, dict(self._known)
        for name, config, patterns in configs:
            before = gone.pop(name, None)
            if before is not None and before[0] is config:
                continue
            if before is not None:
                self._forget(name, before[1])
            encoded = tuple(one if isinstance(one, bytes) else one.encode() for one in patterns)
            known[name] = (config, encoded)
            for pattern in encoded:
                self._patterns.add(pattern)
        for name, (_, patterns_gone) in gone.items():
            self._forget(name, patterns_gone)

    def _forget(self, name: str, patterns: tuple[bytes, ...]) -> None:
        del self._known[name]
        for pattern in patterns:
            self._patterns.discard(pattern)

    def overlaps(self, patterns: Iterable[bytes], *, but: str = "") -> bool:
        """Return whether one of `patterns` overlaps one of a configuration of another name. Raises TooManySteps."""
        own = self._known.get(but, (None, ()))[1]
        self._patterns.steps = 0
        for pattern in own:
            self._patterns.discard(pattern)
        try:
            return any(self._patterns.overlaps(pattern) for pattern in patterns)
        finally:
            for pattern in own:
                self._patterns.add(pattern)


#: Streams of the daemon's own, for MQTT. Only the daemon stores messages there: publishes on their subjects do not
#: reach them.
DAEMON_STREAMS = frozenset({"$MQTT_sess", "$MQTT_msgs", "$MQTT_rmsgs"})
#: In the metadata of a consumer of these streams that delivers to the daemon alone.
INTERNAL = "eyot.internal"
#: In the metadata of a stream whose commits may wait for others while a flash budget is exceeded.
FLASH_KEY, FLASH_PACED = "eyot.flash", "paced"
#: In the metadata of a stream that stores an MQTT publish of QoS 1 once, though it was sent again (DUP).
MQTT_DUPLICATES_KEY, MQTT_DROP = "eyot.mqtt_duplicates", "drop"

_NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


class ConfigRules(msgspec.Struct, frozen=True, kw_only=True):
    """The context of the checks: the account's other streams and limits, and the server's limits."""

    streams: Mapping[str, StreamConfig]
    taken: Taken | None = None  # their subjects; None: derive them from `streams`
    duplicate_window_max_ns: int = 0  # 0: no server limit
    max_bytes_required: bool = False
    stream_bytes_max: int = -1


def invalid(text: str) -> JetStreamError:
    """Error 10052 with nats-server's words."""
    return fail(JSStreamInvalidConfigF, err=text)


def valid_name(name: str) -> bool:
    """Return whether `name` is a valid stream or consumer name."""
    return bool(name) and not _NAME_FORBIDDEN.intersection(name)


def check_transform(transform: SubjectTransform, *, source_error: int, dest_error: int) -> None:
    """Raise `source_error` or `dest_error` for an invalid transform; an empty `dest` is a filter only."""
    src = transform.src or ">"
    if not is_valid(src.encode()):
        raise fail(source_error, err=f"invalid subject {transform.src}")
    if transform.dest:
        try:
            Transform(src.encode(), transform.dest.encode())
        except TransformError as err:
            raise fail(dest_error, err=err) from None


def literal_prefix(prefix: str) -> bool:
    """Return whether `prefix` is a valid subject without wildcards."""
    return is_valid(prefix.encode()) and is_literal(prefix.encode())


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
