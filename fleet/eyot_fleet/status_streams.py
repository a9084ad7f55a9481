"""Reads devices' statuses from streams at the hub, from where the service stopped before: they tell of the time offline.

A stream that sources devices holds what devices stored, with subjects as they chose them. The hub's own header
`Nats-Stream-Source` tells from which device a message really came.
"""

from __future__ import annotations

import logging
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from eyot_fleet.errors import ApiFailure
from eyot_fleet.jetstream import STREAM_NOT_FOUND
from eyot_wire import headers
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream import stream_source
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.device_record import DeviceRecord
    from eyot_fleet.jetstream import Delivered, JetStream
    from eyot_fleet.state import State

log = logging.getLogger("eyot.fleet")

#: A stream that was never read begins with the last day.
FIRST_S: Final = 86_400.0


class Position(Struct, frozen=True):
    """Up to where a stream was read. `created`: which stream of that name it was."""

    created: str
    sequence: int


def came_from(message: Delivered, name: str, record: DeviceRecord | None) -> bool:
    """Return whether a stored message can be of device `name`: the hub's stream sourced it from that device's domain.

    A message without the header was stored as it was published at the hub, where permissions bind the subject.
    """
    value = headers.get(message.header, stream_source.HEADER)
    if value is None:
        return True
    source = stream_source.parse(value)
    if source is None:
        return False
    _, colon, digest = source.name.partition(":")
    domains = {name} if record is None or not record.domain else {name, record.domain}
    return bool(colon) and digest in {stream_source.hash8(f"$JS.{domain}.API") for domain in domains}


async def start_of(jetstream: JetStream, state: State, stream: str) -> tuple[dict[str, Any], str] | None:
    """Return the configuration of a consumer that goes on where reading stopped, and the stream's `created`; None: it is gone."""
    info = await jetstream.stream_info(stream)
    if info is None:
        return None
    created, last = str(info.get("created")), int(info["state"]["last_seq"])
    found = await state.state.get(f"position.{stream}")
    position = None
    if found is not None and found.value:
        try:
            position = decode_json(found.value, Position)
        except msgspec.DecodeError as error:
            log.warning("the position in stream %s cannot be read: %s", stream, error)
    if position is not None and position.created == created and position.sequence <= last:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": position.sequence + 1}, created
    start = ns_to_rfc3339(int((time.time() - FIRST_S) * 1e9))
    return {"deliver_policy": "by_start_time", "opt_start_time": start}, created


class StatusStream:
    """One stream of statuses at one connection."""

    def __init__(self, jetstream: JetStream, state: State, name: str, filter_subject: str) -> None:
        self.name = name
        self._js = jetstream
        self._state = state
        self._filter = filter_subject
        self._created = ""
        self._sequence = 0
        self._saved = 0

    async def read(self, take: Callable[[Delivered], None]) -> None:
        """Give each message to `take`, without end. Ends when the stream is gone."""
        begin = await start_of(self._js, self._state, self.name)
        if begin is None:
            return
        config, self._created = begin
        try:
            async with aclosing(self._js.pull(self.name, {**config, "filter_subject": self._filter})) as batches:
                async for batch in batches:
                    for message in batch:
                        take(message)
                        self._sequence = message.sequence
        except ApiFailure as failure:
            if failure.code != STREAM_NOT_FOUND:
                raise

    async def save(self) -> None:
        """Keep the position. What it covers must be saved before."""
        sequence = self._sequence
        if sequence > self._saved:
            position = Position(self._created, sequence)
            await self._state.state.put(f"position.{self.name}", msgspec.json.encode(position))
            self._saved = sequence
