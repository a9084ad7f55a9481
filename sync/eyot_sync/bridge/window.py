"""What a bridge has sent, or is about to send, and its remote has not acknowledged.

A window outlives connections. When the remote still has the session, publishes are sent again with their packet
identifiers, so that one of QoS 2 arrives once; else as new ones. Order is that of the first sending.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from eyot_wire.mqtt.properties import Properties

_IDS = 65_535


class Phase(Enum):
    """`PLANNED`: its identifier is not on flash yet; `SENT`: PUBLISH; `RECEIVED`: PUBREC came, PUBREL is due."""

    PLANNED = "planned"
    SENT = "sent"
    RECEIVED = "received"


class Entry(Struct, kw_only=True, eq=False):
    """One message on its way. `topic` None: it is no longer stored here, and only its identifier is cleared.

    `dup`: it was sent with this identifier before. `durable`: its identifier and phase are on flash, as far as QoS 2 needs it.
    """

    stream: str
    seq: int
    qos: int
    topic: str | None
    payload: bytes = b""
    properties: Properties | None = None
    retain: bool = False
    packet_id: int = 0
    phase: Phase = Phase.PLANNED
    dup: bool = False
    durable: bool = True

    @property
    def size(self) -> int:
        return len(self.payload) + len(self.topic or "")


class Window:
    """The entries by packet identifier. `messages_max` and `bytes_max` bound them; one message goes in any case.

    `last_id`: identifiers begin behind it; a random one keeps those of different starts apart.
    """

    def __init__(self, messages_max: int, bytes_max: int, last_id: int = 0) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        #: what the remote allows at present
        self.receive_maximum = _IDS
        self._entries: dict[int, Entry] = {}
        self._lent: set[int] = set()
        self._bytes = 0
        self._last_id = last_id

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    @property
    def room(self) -> bool:
        """Whether another publish may be sent."""
        most = min(self.messages_max, self.receive_maximum)
        return not self._entries or (len(self._entries) < most and self._bytes < self.bytes_max)

    def get(self, packet_id: int) -> Entry | None:
        return self._entries.get(packet_id)

    def next_id(self) -> int:
        """Lend a packet identifier that nothing uses."""
        packet_id = self._last_id
        while True:
            packet_id = packet_id % _IDS + 1
            if packet_id not in self._entries and packet_id not in self._lent:
                break
        self._last_id = packet_id
        self._lent.add(packet_id)
        return packet_id

    def free_id(self, packet_id: int) -> None:
        self._lent.discard(packet_id)

    def connection_ended(self) -> None:
        """Take back what was lent to the connection."""
        self._lent.clear()

    def add(self, entry: Entry) -> None:
        """Put in an entry, with a new identifier if it has none."""
        if not entry.packet_id:
            entry.packet_id = self.next_id()
            self._lent.discard(entry.packet_id)
        self._entries[entry.packet_id] = entry
        self._bytes += entry.size

    def remove(self, packet_id: int) -> Entry | None:
        """Take out an entry that is settled; its identifier is free."""
        entry = self._entries.pop(packet_id, None)
        if entry is not None:
            self._bytes -= entry.size
        return entry

    def drop_stream(self, stream: str) -> None:
        """Forget what belongs to a stream that is gone."""
        for entry in self:
            if entry.stream == stream:
                self.remove(entry.packet_id)

    def resume(self, *, session_present: bool) -> list[Entry]:
        """Return what is to be sent again on a new connection, in order.

        Without the session the window is empty then: everything is a new publish, with a new identifier.
        """
        again = list(self._entries.values())
        if session_present:
            return again
        self._entries.clear()
        self._bytes = 0
        for entry in again:
            entry.packet_id, entry.dup, entry.phase = 0, False, Phase.PLANNED
        return again


class Progress:
    """The position in one stream: everything up to `confirmed` is settled. `read`: last sequence that was looked at."""

    __slots__ = ("_ahead", "_open", "read")

    def __init__(self, confirmed: int) -> None:
        self.read = confirmed
        self._open: list[int] = []
        self._ahead: set[int] = set()

    @property
    def confirmed(self) -> int:
        """The last sequence up to which everything is settled."""
        return min(self.read, self._open[0] - 1) if self._open else self.read

    @property
    def settled_ahead(self) -> list[int]:
        """What is settled beyond `confirmed`, in order."""
        confirmed = self.confirmed
        return sorted(seq for seq in self._ahead if seq > confirmed)

    def begin(self, seq: int) -> None:
        """Note that a message is on its way."""
        heapq.heappush(self._open, seq)

    def knows(self, seq: int) -> bool:
        """Return whether a message is on its way, or was settled before it was read."""
        return seq in self._ahead or seq in self._open

    def done(self, seq: int) -> None:
        """Note that a message is settled."""
        if seq <= self.confirmed:
            return
        self._ahead.add(seq)
        while self._open and self._open[0] in self._ahead:
            first = heapq.heappop(self._open)
            if first <= self.read:
                self._ahead.discard(first)

    def passed(self, seq: int) -> None:
        """Note that everything up to `seq` was looked at."""
        self.read = max(self.read, seq)
        if self._ahead and not self._open:
            self._ahead = {each for each in self._ahead if each > self.read}
