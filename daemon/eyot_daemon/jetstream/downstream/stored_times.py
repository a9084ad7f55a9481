"""The origin's side of `eyot.stored`: a downstream requests stored times along with its consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eyot_store.errors import StoreError
from eyot_sync.sourcing import stored_times
from eyot_wire.jetstream.consumer import ConsumerInfo

if TYPE_CHECKING:
    from eyot_store.log.log import Log


def with_stored_times(log: Log, info: ConsumerInfo) -> ConsumerInfo:
    """Return a new consumer's info with the stored times that its request names."""
    config = info.config
    asked = config.metadata.get(stored_times.KEY) if config is not None and config.direct else None
    if config is None or asked is None:
        return info

    def time_of(seq: int) -> int:
        try:
            message = log.get(seq)
        except StoreError:
            return 0  # damaged: no evidence
        return 0 if message is None else message.ts_ns

    metadata = config.metadata | {stored_times.KEY: stored_times.answer(asked, time_of)}
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=metadata))
