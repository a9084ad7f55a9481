"""Consecutive PUBLISH packets of one client that are alike: not retained, without properties, of one QoS and mostly one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.native import payloads, scan_run
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.packets import Publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eyot_wire.mqtt.publish_run import AckedScanned, MixedScanned, Scanned


class AckedPublishes:
    """A run of at least one packet of QoS 1 on one topic, none of them sent before.

    `packet_ids` and `payloads` belong together, `count` of them; `payload_bytes`: of all; `payload_max`: of the longest.
    """

    __slots__ = ("count", "packet_ids", "payload_bytes", "payload_max", "payloads", "topic")

    def __init__(self, topic: str, scanned: AckedScanned) -> None:
        self.topic = topic
        _, self.packet_ids, self.payloads, self.payload_bytes, self.payload_max = scanned
        self.count = len(self.packet_ids)

    def publishes(self) -> list[Publish]:
        """Return the packets one by one, as the decoder makes them."""
        return [
            Publish(self.topic, payload, 1, packet_id=packet_id)
            for packet_id, payload in zip(self.packet_ids, self.payloads, strict=True)
        ]


class MixedPublishes:
    """A run of packets of QoS 0 on more than one topic. A subscriber with the same kind of level can be sent the bytes as they came.

    `topics`         all that occur, each once.
    `count`          how many packets.
    `payload_bytes`  of all of them; `payload_max`: of the longest.
    """

    __slots__ = ("_head_more", "_heads", "count", "level", "packets", "payload_bytes", "payload_max", "topics")

    def __init__(self, level: int, packets: bytes, heads: Mapping[bytes, str], scanned: MixedScanned) -> None:
        self.level = level
        self.packets = packets
        self.count = scanned.msgs
        self.payload_bytes = scanned.payload_bytes
        self.payload_max = scanned.payload_max
        self._heads = {head: heads[head] for head in scanned.heads}
        self._head_more = int(level == V5)
        self.topics = list(self._heads.values())

    def runs(self) -> Iterator[PlainPublishes]:
        """Yield the runs of one topic each that it consists of."""
        packets, at = self.packets, 0
        while at < len(packets):
            start = _body_at(packets, at)
            end = start + 2 + int.from_bytes(packets[start : start + 2], "big") + self._head_more
            head = packets[start:end]
            scanned = scan_run(packets, at, head, len(packets))
            yield PlainPublishes(self._heads[head], self.level, packets[at : scanned.end], len(head), scanned)
            at = scanned.end

    def publishes(self) -> list[Publish]:
        """Return the packets one by one, as the decoder makes them."""
        return [packet for run in self.runs() for packet in run.publishes()]

    def packet_max(self) -> int:
        """Return the size of the largest packet, at most by the difference of the topics' sizes too much."""
        return 5 + max(map(len, self._heads)) + self.payload_max


def _body_at(packets: bytes, at: int) -> int:
    """Return where the body of a packet that was scanned begins."""
    at += 1
    while packets[at] >= 0x80:
        at += 1
    return at + 1


class PlainPublishes:
    """A run of at least one packet of QoS 0 on one topic. A subscriber with the same kind of level can be sent the bytes as they came.

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
