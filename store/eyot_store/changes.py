"""Changes of transactions on disk, by stream, as values and as bytes.

`Changes` are the input of a committer. As bytes they are the body of a journal frame: a MessagePack array with one
element per transaction and stream, `[stream id, [operation, ...]]`. An operation is an array that starts with its
kind (`Op`). See docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

import msgspec

from eyot_store.errors import StoreError
from eyot_store.txn import AppendRun, Op, Txn

Operation = tuple[Op, Any]
Changes = list[tuple[int, list[Operation]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, list[list[Any]]]]).decode

_STRAIGHT = 1 << Op.CREATE | 1 << Op.DELETE | 1 << Op.CONFIG
_ROOM = 1 << Op.APPEND | 1 << Op.CREATE


def changes_of(txns: Sequence[Txn]) -> Changes:
    """Return the changes of these transactions on disk, in order."""
    return [
        (stream_id, part.ops) for txn in txns for stream_id, part in txn.parts.items() if part.ops and part.log.durable
    ]


def by_stream(changes: Changes) -> dict[int, list[Operation]]:
    """Return the operations, in order within each stream, neighbouring appends joined."""
    if len(changes) == 1:
        return dict(changes)
    streams: dict[int, list[Operation]] = {}
    joined: set[int] = set()  # streams whose last operation is a run joined here
    for stream_id, added in changes:
        ops = streams.get(stream_id)
        if ops is None:
            ops = streams[stream_id] = []
        for op, data in added:
            if op is Op.APPEND and ops and ops[-1][0] is Op.APPEND:
                if stream_id not in joined:
                    ops[-1] = (op, ops[-1][1].copy())
                    joined.add(stream_id)
                ops[-1][1].extend(data)
            else:
                ops.append((op, data))
                joined.discard(stream_id)
    return streams


def takes_room(txns: Iterable[Txn]) -> bool:
    """Return whether one of the transactions stores messages or streams; others may use the reserve."""
    return any(txn.kinds & _ROOM for txn in txns)


def is_journalled(txn: Txn) -> bool:
    """Return whether a journal can hold it: LMDB itself creates, changes and deletes streams."""
    return not txn.kinds & _STRAIGHT


def encode(changes: Changes) -> bytes:
    """Return the changes as bytes."""
    return _encode([(stream_id, list(starmap(_plain, ops))) for stream_id, ops in changes])


def _plain(op: Op, data: Any) -> tuple[Any, ...]:
    if op is Op.APPEND:
        return (4, data.bytes, data.last_ts_ns, data.items)
    if op in (Op.PURGE, Op.POSITION):
        return (int(op), *data)
    if op is Op.CONSUMER:
        return (int(op), data[0].encode("utf-8", "surrogateescape"), data[1], data[2])
    if op is Op.CONSUMER_GONE:
        return (int(op), data.encode("utf-8", "surrogateescape"))
    return (int(op), data)


def decode(body: bytes | memoryview) -> Changes:
    """Inverse of `encode`. Raises StoreError("corrupt")."""
    try:
        return [(stream_id, [_operation(fields) for fields in ops]) for stream_id, ops in _decode(body)]
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise StoreError("corrupt", f"a frame of the journal is malformed: {error}") from None


def _operation(fields: list[Any]) -> Operation:
    op, *rest = fields
    kind = Op(op)
    if kind is Op.APPEND:
        run = AppendRun()
        run.bytes, run.last_ts_ns, items = rest
        run.items = [(key, record) for key, record in items]
        return kind, run
    if kind is Op.REMOVE:
        return kind, [(key, counted) for key, counted in rest[0]]
    if kind is Op.PURGE:
        floor, messages, bytes_ = rest
        return kind, (floor, messages, bytes_)
    if kind is Op.POSITION:
        key, value = rest
        return kind, (key, value)
    if kind is Op.CONSUMER:
        name, config, state = rest
        return kind, (name.decode("utf-8", "surrogateescape"), config, state)
    if kind is Op.CONSUMER_GONE:
        return kind, rest[0].decode("utf-8", "surrogateescape")
    if kind in (Op.SKIP, Op.POSITION_GONE):
        return kind, rest[0]
    raise ValueError(f"operation {op} does not belong into a journal")
