"""The origin's side of `eyot.stored`: a copy asks along with its consumer when this stream stored what it has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eyot_store.errors import StoreError
from eyot_sync.sourcing import stored_times
from eyot_wire.jetstream.consumer import ConsumerInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream


def with_stored_times(stream: Stream, info: ConsumerInfo) -> ConsumerInfo:
    """What is said of a new consumer, with the times that its request asks for."""
    config = info.config
    asked = config.metadata.get(stored_times.KEY) if config is not None and config.direct else None
    if config is None or asked is None:
        return info

    def time_of(seq: int) -> int:
        try:
            message = stream.log.get(seq)
        except StoreError:
            return 0  # damaged: it proves nothing
        return 0 if message is None else message.ts_ns

    metadata = config.metadata | {stored_times.KEY: stored_times.answer(asked, time_of)}
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=metadata))
