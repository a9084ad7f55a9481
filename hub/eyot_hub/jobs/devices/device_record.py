"""The state of one device, as the streaming job `devices` keeps it in Spark's state store.

A record is a Struct in MessagePack, under one name in the state store. Spark sees bytes, so a release may add members
without a migration: a member that an older release did not write has its default, and an older release ignores newer
members. Times are integers (microseconds since 1970), never datetimes.

Delays are counted in classes by powers of two, in milliseconds: class n counts those below 2**n. The classes stay
stable over releases, 41 numbers cover 34 years, and records can be added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

CLASSES: Final = 41
LATE_US: Final = 60_000_000


class DeviceRecord(msgspec.Struct, kw_only=True, array_like=False):
    """The state of one device."""

    first_event_us: int | None = None
    last_event_us: int | None = None
    last_stored_us: int | None = None
    readings: int = 0
    late: int = 0  # stored more than LATE_US after the event
    delays: list[int] = msgspec.field(default_factory=lambda: [0] * CLASSES)
    backlog: int | None = None  # as the device last reported
    backlog_at_us: int | None = None

    def reading(self, event_us: int, stored_us: int) -> None:
        """Add one reading."""
        self.first_event_us = event_us if self.first_event_us is None else min(self.first_event_us, event_us)
        self.last_event_us = event_us if self.last_event_us is None else max(self.last_event_us, event_us)
        self._stored(stored_us)
        self.readings += 1
        delay_us = max(stored_us - event_us, 0)
        self.late += delay_us > LATE_US
        self.delays[min((delay_us // 1000).bit_length(), CLASSES - 1)] += 1

    def status(self, at_us: int, stored_us: int, backlog: int | None) -> None:
        """Add a status; one that arrives after a newer one does not change the backlog."""
        self._stored(stored_us)
        if self.backlog_at_us is None or at_us >= self.backlog_at_us:
            self.backlog, self.backlog_at_us = backlog, at_us

    def delay_s(self, share: float) -> float | None:
        """Return the delay that `share` of the readings do not exceed, as the upper end of its class.

        Readings from a release without delay classes do not count.
        """
        wanted, seen = share * sum(self.delays), 0
        for number, count in enumerate(self.delays):
            seen += count
            if count and seen >= wanted:
                return float(2**number) / 1000
        return None

    def _stored(self, stored_us: int) -> None:
        self.last_stored_us = stored_us if self.last_stored_us is None else max(self.last_stored_us, stored_us)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DeviceRecord).decode


def to_state(record: DeviceRecord) -> bytes:
    """Encode a record for the state store."""
    return _encode(record)


def from_state(stored: bytes | bytearray | None) -> DeviceRecord:
    """Decode a record; without one, return a new record. Raises msgspec.DecodeError."""
    return DeviceRecord() if stored is None else _decode(bytes(stored))


def take(record: DeviceRecord, rows: Iterable[tuple[int, int, int, int | None]]) -> None:
    """Add rows of (event or status time, stored time, whether it is a status, backlog)."""
    for at_us, stored_us, is_status, backlog in rows:
        if is_status:
            record.status(at_us, stored_us, backlog)
        else:
            record.reading(at_us, stored_us)
