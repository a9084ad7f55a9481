"""Runs of PUBLISH packets of QoS 0 and 1, in plain Python: a read is scanned once, and a run is one operation.

The decoder reads the first packet of each topic, so that it alone decides what is valid. The packets behind it belong to
the run as long as they are that one again with another payload (and with QoS 1, another identifier). `_publish_run.pyx`
is the compiled twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The first byte of PUBLISH with QoS 0, not retained.
PLAIN_PUBLISH = 0x30
#: The same with QoS 1, not sent before.
ACKED_PUBLISH = 0x32


class Scanned(NamedTuple):
    """Whole packets from one place on: where they end, how many they are, and bytes of their payloads: all and the longest."""

    end: int
    msgs: int
    payload_bytes: int
    payload_max: int


class MixedScanned(NamedTuple):
    """As `Scanned`; `heads`: the different ones that occur, in the order of their first packets."""

    end: int
    msgs: int
    payload_bytes: int
    payload_max: int
    heads: list[bytes]


class AckedScanned(NamedTuple):
    """Whole packets of QoS 1 from one place on: where they end, their identifiers and payloads, and the longest payload's bytes."""

    end: int
    packet_ids: list[int]
    payloads: list[bytes]
    payload_bytes: int
    payload_max: int


def scan_run(source: bytes, at: int, head: bytes, packet_bytes_max: int) -> Scanned:
    """Scan packets from `at` on that are PUBLISH with QoS 0, not retained, and have `head` before their payload.

    The scan ends before a packet that is not whole, that is larger than `packet_bytes_max`, or whose remaining length
    takes more bytes than it needs: the reader judges those.
    """
    if at < 0:
        raise IndexError(at)
    size, head_bytes = len(source), len(head)
    count = payload_bytes = payload_max = 0
    while at < size and source[at] == PLAIN_PUBLISH:
        start, length = _length(source, at)
        end = start + length
        if not start or end > size or end - at > packet_bytes_max or length < head_bytes:
            break
        if not source.startswith(head, start):
            break
        count += 1
        payload_bytes += length - head_bytes
        payload_max = max(payload_max, length - head_bytes)
        at = end
    return Scanned(at, count, payload_bytes, payload_max)


def scan_mixed(
    source: bytes, at: int, heads: Mapping[bytes, object], head_more: int, packet_bytes_max: int
) -> MixedScanned:
    """Scan packets as `scan_run` does, with any of `heads` before their payload.

    A head is the topic with its length, and `head_more` bytes behind it.
    """
    if at < 0 or head_more < 0:
        raise IndexError(at)
    size = len(source)
    seen: dict[bytes, None] = {}
    count = payload_bytes = payload_max = 0
    while at < size and source[at] == PLAIN_PUBLISH:
        start, length = _length(source, at)
        end = start + length
        if not start or end > size or end - at > packet_bytes_max or length < 2:
            break
        head_bytes = 2 + int.from_bytes(source[start : start + 2], "big") + head_more
        head = source[start : start + head_bytes]
        if length < head_bytes or head not in heads:
            break
        seen[head] = None
        count += 1
        payload_bytes += length - head_bytes
        payload_max = max(payload_max, length - head_bytes)
        at = end
    return MixedScanned(at, count, payload_bytes, payload_max, list(seen))


def scan_acked(source: bytes, at: int, head: bytes, has_properties: bool, packet_bytes_max: int) -> AckedScanned:
    """Scan packets from `at` on that are PUBLISH with QoS 1, neither retained nor sent before, and begin with `head`.

    `head`: the topic with its length. `has_properties`: properties follow the identifier (MQTT 5), which must be none.
    The scan ends where that of `scan_run` does, and before a packet with the identifier 0.
    """
    if at < 0:
        raise IndexError(at)
    size, head_bytes = len(source), len(head)
    before = head_bytes + 2 + has_properties
    found: list[bytes] = []
    packet_ids: list[int] = []
    payload_bytes = payload_max = 0
    while at < size and source[at] == ACKED_PUBLISH:
        start, length = _length(source, at)
        end = start + length
        if not start or end > size or end - at > packet_bytes_max or length < before:
            break
        packet_id = int.from_bytes(source[start + head_bytes : start + head_bytes + 2], "big")
        if not source.startswith(head, start) or not packet_id or (has_properties and source[start + before - 1]):
            break
        packet_ids.append(packet_id)
        found.append(source[start + before : end])
        payload_bytes += length - before
        payload_max = max(payload_max, length - before)
        at = end
    return AckedScanned(at, packet_ids, found, payload_bytes, payload_max)


def payloads(packets: bytes, head_bytes: int) -> list[bytes]:
    """Return the payloads of a run's packets, which have `head_bytes` before them. Raises ValueError for other bytes."""
    if head_bytes < 0:
        raise IndexError(head_bytes)
    found, at = [], 0
    while at < len(packets):
        start, length = _length(packets, at)
        if not start or length > len(packets) - start or length < head_bytes:
            raise ValueError("not the packets of a run")
        at = start + length
        found.append(packets[start + head_bytes : at])
    return found


def _length(source: bytes, at: int) -> tuple[int, int]:
    """Return where the body begins and how long it is; (0, 0) for a length that is not whole, or longer than it needs to be."""
    length = 0
    for offset in range(1, 5):
        if at + offset >= len(source):
            return 0, 0
        byte = source[at + offset]
        length |= (byte & 0x7F) << 7 * (offset - 1)
        if byte < 0x80:
            return (0, 0) if offset > 1 and not byte else (at + offset + 1, length)
    return 0, 0
