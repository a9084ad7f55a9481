"""`o.dat`: a consumer's state as nats-server stores it.

    magic(1) version(1), then varints: ack floor (consumer, stream), delivered (consumer, stream), number of pending messages,
    [a time in s, then for each: distance of its sequence from the floor, of its consumer sequence, seconds before that time],
    number of redelivered ones, [for each: distance of its sequence from the floor, redeliveries]

Version 1 of the format has no consumer sequences of pending messages, counts times in the other direction, and keeps
`delivered` relative. Source: nats-server's store.go and filestore.go.
"""

from __future__ import annotations

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.values import ConsumerProgress
from eyot_wire.archive.varint import Cursor, uvarint, varint

_MAGIC = 22
_VERSION = 2
PENDING_MAX = 150_000
"""More than any consumer has; a file of this form can stand for very many."""
_SEQ_MAX = 1 << 63
_M64 = (1 << 64) - 1
_NS = 1_000_000_000


def encode_progress(progress: ConsumerProgress, now_ns: int) -> bytes:
    """Encode `progress` as a file; `now_ns`: wall time that delivery times are relative to."""
    floor_c, floor_s = progress.ack_floor
    out = [bytes((_MAGIC, _VERSION))]
    out += (uvarint(value) for value in (floor_c, floor_s, *progress.delivered, len(progress.pending)))
    if progress.pending:
        base_s = round(now_ns / _NS)
        out.append(varint(base_s))
        for sseq, (cseq, ts_ns) in progress.pending.items():
            out += (uvarint(sseq - floor_s & _M64), uvarint(cseq - floor_c & _M64), varint(base_s - ts_ns // _NS))
    out.append(uvarint(len(progress.redelivered)))
    for sseq, times in progress.redelivered.items():
        out += (uvarint(sseq - floor_s & _M64), uvarint(times))
    return b"".join(out)


def decode_progress(data: bytes) -> ConsumerProgress:
    """Decode a file of :func:`encode_progress`; an empty file is a consumer without deliveries. Raises ArchiveError."""
    if not data:
        return ConsumerProgress()
    if len(data) < 2 or data[0] != _MAGIC:
        raise ArchiveError("corrupt state file")
    version = data[1]
    if version not in (1, 2):
        raise ArchiveError(f"unsupported version: {version}")
    cursor = Cursor(data, 2)
    floor_c, floor_s, delivered_c, delivered_s = (cursor.uvarint() for _ in range(4))
    if version == 1:
        delivered_c += max(floor_c - 1, 0)
        delivered_s += max(floor_s - 1, 0)
    if max(floor_s, delivered_s) >= _SEQ_MAX:
        raise ArchiveError("corrupt state file")
    return ConsumerProgress(
        delivered=(delivered_c, delivered_s),
        ack_floor=(floor_c, floor_s),
        pending=_pending(cursor, version, floor_c, floor_s),
        redelivered=_redelivered(cursor, floor_s),
    )


def _pending(cursor: Cursor, version: int, floor_c: int, floor_s: int) -> dict[int, tuple[int, int]]:
    count = cursor.uvarint()
    if count > PENDING_MAX:
        raise ArchiveError("corrupt state file")
    pending: dict[int, tuple[int, int]] = {}
    base_s = cursor.varint() if count else 0
    for _ in range(count):
        sseq = cursor.uvarint() + floor_s & _M64
        cseq = cursor.uvarint() + floor_c & _M64 if version == 2 else 0
        distance_s = cursor.varint()
        ts_s = base_s - distance_s if version == 2 else base_s + distance_s
        if not 0 < sseq < _SEQ_MAX:
            raise ArchiveError("corrupt state file")
        pending[sseq] = (cseq, ts_s * _NS)
    return pending


def _redelivered(cursor: Cursor, floor_s: int) -> dict[int, int]:
    redelivered: dict[int, int] = {}
    count = cursor.uvarint()
    if count > PENDING_MAX:
        raise ArchiveError("corrupt state file")
    for _ in range(count):
        distance, times = cursor.uvarint(), cursor.uvarint()
        if distance and times:
            redelivered[distance + floor_s & _M64] = times
    return redelivered
