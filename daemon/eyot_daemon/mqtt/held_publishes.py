"""QoS 2 publishes of one client that it has not released: their repetitions are not published again [MQTT-4.3.3-10]."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eyot_daemon.mqtt.publication import Result
    from eyot_daemon.mqtt.session_record import SessionRecord
    from eyot_daemon.mqtt.store import MqttStore


class HeldPublish:
    """A publish of QoS 2 that the client has not released: its identifier stands for this message and no other.

    `committed`: it is on flash, and PUBREC was sent. `waiting`: called with the result of the commit.
    """

    __slots__ = ("committed", "digest", "released", "releasing", "waiting")

    def __init__(self, digest: bytes, *, committed: bool = False) -> None:
        self.digest = digest
        self.committed = committed
        self.releasing = False
        self.released: Callable[[str], None] | None = None
        self.waiting: list[Callable[[Result], None]] = []


class HeldPublishes:
    """Those of one session, by packet identifier; on flash, too, if the session is persistent."""

    __slots__ = ("_by_id", "_record", "_store")

    def __init__(self, record: SessionRecord, store: MqttStore | None) -> None:
        """`store`: where a persistent session has them on flash; None for others."""
        self._record = record
        self._store = store
        self._by_id: dict[int, HeldPublish] = {}

    def __len__(self) -> int:
        """Return how many are not released."""
        return len(self._by_id)

    def get(self, packet_id: int) -> HeldPublish | None:
        """Return the publish with an identifier; None: there is none."""
        return self._by_id.get(packet_id)

    def hold(self, packet_id: int, digest: bytes) -> None:
        """Note a publish before it is on flash: its repetition may come meanwhile."""
        self._by_id[packet_id] = HeldPublish(digest)

    def settled(self, packet_id: int, *, kept: bool) -> list[Callable[[Result], None]]:
        """Note that a publish is on flash, or was refused and is forgotten; return who waits for that."""
        held = self._by_id.get(packet_id)
        if held is None or held.committed:
            return []
        held.committed = True
        if not kept:
            del self._by_id[packet_id]
        waiting, held.waiting = held.waiting, []
        return waiting

    def release(self, packet_id: int, done: Callable[[str], None]) -> None:
        """PUBREL: forget an identifier that is held; `done` when that is on flash, with "" or with the reason why not.

        Of repetitions meanwhile, only the last is answered: it may have come over a new connection.
        """
        held = self._by_id[packet_id]
        held.released = done
        if held.releasing:
            return

        def released(error: str) -> None:
            held.releasing = False
            if not error and self._by_id.get(packet_id) is held:
                del self._by_id[packet_id]
            if held.released is not None:
                held.released(error)
                held.released = None

        held.releasing = True
        if self._store is None:
            released("")
        else:
            self._store.release(self._record, packet_id, released)

    def restore(self, digests: dict[int, bytes]) -> None:
        """Take up what was on flash when the daemon started: digests by packet identifier."""
        self._by_id = {packet_id: HeldPublish(digest, committed=True) for packet_id, digest in digests.items()}
