"""Packet identifiers of QoS 2 on flash: positions of `$MQTT_sess`, for all sessions of one account.

The values in memory are those on flash, or on the way there. A change is made in memory at once. The caller stages it
in a transaction, and undoes it if the transaction is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.mqtt.session_record import HELD, PUBREL, position_key, read_position

if TYPE_CHECKING:
    from eyot_store import Log, Txn


class PacketIdChange(NamedTuple):
    """One change: how it gets into a transaction, and how it is undone if that is refused."""

    stage: Callable[[Txn], None]
    undo: Callable[[], None]


class StoredPacketIds:
    """Values by kind (`HELD` or `PUBREL`), hash of the session and packet identifier."""

    def __init__(self, log: Log) -> None:
        """Read the positions of the log of `$MQTT_sess`. Raises StoreError."""
        self._log = log
        self._values: dict[bytes, dict[str, dict[int, bytes]]] = {HELD: {}, PUBREL: {}}
        for key, value in log.positions().items():
            read = read_position(key)
            if read is not None:
                kind, session, packet_id = read
                self._values[kind].setdefault(session, {})[packet_id] = value

    def of(self, kind: bytes, session: str) -> dict[int, bytes]:
        """Return a session's values by packet identifier; a copy."""
        return dict(self._values[kind].get(session, {}))

    def get(self, kind: bytes, session: str, packet_id: int) -> bytes | None:
        """Return the value of one identifier; None: it is not stored."""
        return self._values[kind].get(session, {}).get(packet_id)

    def put(self, kind: bytes, session: str, packet_id: int, value: bytes) -> PacketIdChange:
        """Store a value."""
        before = self.get(kind, session, packet_id)
        self._values[kind].setdefault(session, {})[packet_id] = value
        key = position_key(kind, session, packet_id)

        def undo() -> None:
            if self.get(kind, session, packet_id) != value:
                return
            if before is not None:
                self._values[kind][session][packet_id] = before
            else:
                self.remove(kind, session, packet_id)

        return PacketIdChange(lambda txn: self._log.put_position(txn, key, value), undo)

    def remove(self, kind: bytes, session: str, packet_id: int) -> PacketIdChange:
        """Remove an identifier; also one that is not in memory, from flash."""
        values = self._values[kind].get(session, {})
        value = values.pop(packet_id, None)
        if not values:
            self._values[kind].pop(session, None)
        key = position_key(kind, session, packet_id)

        def undo() -> None:
            if value is not None:
                self._values[kind].setdefault(session, {}).setdefault(packet_id, value)

        return PacketIdChange(lambda txn: self._log.delete_position(txn, key), undo)

    def forget(self, session: str) -> list[bytes]:
        """Forget a session's identifiers in memory, and return their keys for `stage_removal`."""
        return [
            position_key(kind, session, packet_id)
            for kind, sessions in self._values.items()
            for packet_id in sessions.pop(session, {})
        ]

    def forget_others(self, known: Collection[str]) -> list[bytes]:
        """Forget the identifiers of all sessions but the known ones, as `forget` does."""
        others = {session for sessions in self._values.values() for session in sessions if session not in known}
        return [key for session in others for key in self.forget(session)]

    def stage_removal(self, txn: Txn, keys: list[bytes]) -> None:
        """Stage the removal of identifiers that were forgotten."""
        for key in keys:
            self._log.delete_position(txn, key)
