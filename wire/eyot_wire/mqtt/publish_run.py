"""Runs of PUBLISH packets of QoS 0, in plain Python: a read is scanned once, and a run is one operation.

The decoder reads the first packet of a run, so that it alone decides what is valid. The packets behind it belong to the
run as long as they are the first one again with another payload. `_publish_run.pyx` is the compiled twin.
"""

from __future__ import annotations

from typing import NamedTuple

#: The first byte of PUBLISH with QoS 0, not retained.
PLAIN_PUBLISH = 0x30


class Scanned(NamedTuple):
    """Whole packets from one place on: where they end, how many they are, and bytes of their payloads: all and the longest."""

    end: int
    msgs: int
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
