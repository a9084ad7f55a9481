"""The three streams of an account's MQTT store (`store.py`): their names, configurations and bounds, and how they are opened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from eyot_wire.jetstream.errors import JetStreamError
from eyot_wire.jetstream.model import NS_PER_S, StreamConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.errors import StoreError

log = logging.getLogger("eyot.mqtt")

SESSIONS: Final = "$MQTT_sess"
QUEUED: Final = "$MQTT_msgs"
RETAINED_STREAM: Final = "$MQTT_rmsgs"


class MqttStoreOptions(NamedTuple):
    """Bounds of each queue, of all queues of an account together, and of its retained messages.

    -1 messages or bytes: no bound; ages in seconds, 0: none.
    """

    queue_msgs: int = 100_000
    queue_bytes: int = 64 << 20
    queue_age_s: int = 0
    queued_msgs: int = -1
    queued_bytes: int = -1
    retained_msgs: int = -1
    retained_bytes: int = -1
    retained_age_s: int = 0

    def configs(self) -> list[StreamConfig]:
        """Return the configurations of the streams: sessions, queued messages, retained messages."""
        return [
            StreamConfig(name=SESSIONS, subjects=["$MQTT.sess.>"], max_msgs_per_subject=1),
            StreamConfig(
                name=QUEUED,
                subjects=["$MQTT.msgs.>"],
                retention="interest",
                max_age=self.queue_age_s * NS_PER_S,
                allow_msg_ttl=True,
            ),
            StreamConfig(
                name=RETAINED_STREAM,
                subjects=["$MQTT.rmsgs.>"],
                max_msgs_per_subject=1,
                discard="new",
                max_msgs=self.retained_msgs,
                max_bytes=self.retained_bytes,
                max_age=self.retained_age_s * NS_PER_S,
                allow_msg_ttl=True,
            ),
        ]


def _with_bounds(there: StreamConfig, wanted: StreamConfig) -> StreamConfig:
    """Return the configuration of a stream with wanted bounds; `there` itself if it has them."""
    bounds: dict[str, int | bool] = {name: getattr(wanted, name) or -1 for name in ("max_msgs", "max_bytes")}
    bounds["max_age"] = wanted.max_age
    bounds["allow_msg_ttl"] = there.allow_msg_ttl or wanted.allow_msg_ttl
    if all(getattr(there, name) == bound for name, bound in bounds.items()):
        return there
    # These streams have no message ids, but a window must not be longer than the age.
    window = min(there.duplicate_window, wanted.max_age) if wanted.max_age else there.duplicate_window
    return msgspec.structs.replace(there, **bounds, duplicate_window=window)


def open_streams(
    jsa: JetStreamAccount,
    options: MqttStoreOptions,
    opened: Callable[[list[Stream]], None],
    refused: Callable[[str], None],
) -> None:
    """Find or make the streams with the bounds of `options`.

    Calls `opened` with the streams of sessions, queued messages and retained messages once they are on flash, or
    `refused` with what is wrong.
    """
    _open(jsa, options.configs(), [], opened, refused)


def _open(
    jsa: JetStreamAccount,
    wanted: list[StreamConfig],
    made: list[Stream],
    opened: Callable[[list[Stream]], None],
    refused: Callable[[str], None],
) -> None:
    """Find or make one stream after the other."""
    if not wanted:
        opened(made)
        return
    config = wanted[0]

    def settled(stream: Stream, failure: StoreError | None) -> None:
        if failure is not None:
            refused(f"stream {config.name} cannot be stored: {failure.message}")
        else:
            _open(jsa, wanted[1:], [*made, stream], opened, refused)

    try:
        existing = jsa.streams.get(config.name)
        if existing is None:
            jsa.create_stream(config, pedantic=False, storage_named=True, done=settled)
            return
        there = existing.config
        if (there.subjects, there.retention) != (config.subjects, config.retention):
            refused(f"stream {config.name} is not one of MQTT: its subjects or its retention differ")
            return
        changed = _with_bounds(there, config)
        if changed is there:
            existing.after_commits(lambda failure: settled(existing, failure))
            return
        jsa.update_stream(existing, changed, pedantic=False, done=settled)
    except JetStreamError as problem:
        refused(f"stream {config.name} for MQTT is refused: {problem.api_error.description}")


def set_bounds(jsa: JetStreamAccount, streams: Sequence[Stream], options: MqttStoreOptions) -> None:
    """Give the streams of queued and of retained messages other bounds; one that refuses keeps its own, and the log says so."""
    for stream, wanted in zip(streams, options.configs()[1:], strict=True):
        changed = _with_bounds(stream.config, wanted)
        if changed is not stream.config:
            try:
                jsa.update_stream(stream, changed, pedantic=False, done=_log_update)
            except JetStreamError as refused:
                log.error("Stream %s keeps its bounds: %s", stream.name, refused.api_error.description)


def _log_update(stream: Stream, failure: StoreError | None) -> None:
    if failure is not None:
        log.error("Stream %s keeps its bounds: %s", stream.name, failure.message)
