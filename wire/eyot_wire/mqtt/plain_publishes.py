"""Consecutive PUBLISH packets of one client that are alike: QoS 0, not retained, one topic, and no properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.native import payloads
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.packets import Publish

if TYPE_CHECKING:
    from eyot_wire.mqtt.publish_run import Scanned


class PlainPublishes:
    """A run of at least one packet. A subscriber with the same kind of level can be sent the bytes as they came.

    `topic`          of all of them; neither empty nor with wildcards.
    `count`          how many they are.
    `payload_bytes`  of all of them; `payload_max`: of the longest.
    """

    __slots__ = ("_encoded", "_head_bytes", "_is_v5", "_packets", "count", "payload_bytes", "payload_max", "topic")

    def __init__(self, topic: str, level: int, packets: bytes, head_bytes: int, scanned: Scanned) -> None:
        self.topic = topic
        self.count = scanned.msgs
        self.payload_bytes = scanned.payload_bytes
        self.payload_max = scanned.payload_max
        self._packets = packets
        self._head_bytes = head_bytes
        self._is_v5 = level == V5
        self._encoded: bytes | None = None

    def payloads(self) -> list[bytes]:
        """Return the payloads, in order."""
        return payloads(self._packets, self._head_bytes)

    def publishes(self) -> list[Publish]:
        """Return the packets one by one, as the decoder makes them."""
        return [Publish(self.topic, payload) for payload in self.payloads()]

    def packets(self, level: int) -> bytes:
        """Return the packets for a subscriber of this level, one behind the other; encoded once for all of them."""
        if (level == V5) == self._is_v5:
            return self._packets
        if self._encoded is None:
            self._encoded = b"".join(encoder.publish(level, self.topic, payload) for payload in self.payloads())
        return self._encoded

    def packet_max(self, level: int) -> int:
        """Return the size of the largest packet for a subscriber of this level, at most 3 bytes too many."""
        return 5 + len(self.topic.encode()) + 2 + (level == V5) + self.payload_max
