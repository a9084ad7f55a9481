"""Set-aside frames: journalled changes of streams that are damaged in LMDB, kept until the repair.

They are in one file beside the data, `set-aside`, with frames as in the journal. Each is flushed before LMDB's record
says that the frame was applied, so acknowledged messages survive. A frame may occur twice. `eyot-check --repair`
applies the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from eyot_store.changes import Changes, Operation, decode, encode
from eyot_store.directories import flush_directory
from eyot_store.errors import StoreError
from eyot_store.journal.journal import frame_bytes, frames_in
from eyot_store.records.store_cipher import StoreCipher
from eyot_store.txn import Op

FILE = "set-aside"
_SALT = b"set aside"
_TOUCHES_MESSAGES = (Op.APPEND, Op.SKIP, Op.REMOVE, Op.PURGE)


def split(changes: Changes, fenced: dict[int, StoreError]) -> tuple[Changes, Changes]:
    """Split changes into those that LMDB can apply, and those of the messages of damaged streams."""
    if not fenced:
        return changes, []
    kept: Changes = []
    aside: Changes = []
    for stream_id, ops in changes:
        if stream_id not in fenced:
            kept.append((stream_id, ops))
            continue
        away: list[Operation] = [op for op in ops if op[0] in _TOUCHES_MESSAGES]
        rest: list[Operation] = [op for op in ops if op[0] not in _TOUCHES_MESSAGES]
        if away:
            aside.append((stream_id, away))
        if rest:
            kept.append((stream_id, rest))
    return kept, aside


def set_aside(path: Path, changes: Changes, store_cipher: StoreCipher | None, *, flush: bool) -> None:
    """Keep `changes` in the store's directory `path`; they are durable on return. Raises OSError."""
    file = path / FILE
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        number = os.fstat(fd).st_size + 1
        body = encode(changes)
        if store_cipher is not None:
            body = store_cipher.seal(_about(number), body)
        data = frame_bytes(_SALT, number, body)
        written = os.write(fd, data)
        if written < len(data):
            raise OSError(0, "the disk accepts no more bytes")
        if flush:
            os.fsync(fd)
            flush_directory(path)
    finally:
        os.close(fd)


def read_aside(path: Path, store_cipher: StoreCipher | None) -> list[Changes]:
    """Return the set-aside changes in the store's directory `path`, in order. Raises StoreError("corrupt"), OSError."""
    file = path / FILE
    if not file.exists():
        return []
    out = []
    for frame in frames_in(file.read_bytes(), _SALT):
        body: bytes | memoryview = frame.body
        if store_cipher is not None:
            body = store_cipher.open(_about(frame.number), body)
        out.append(decode(body))
    return out


def last_aside(path: Path, store_cipher: StoreCipher | None) -> dict[int, int]:
    """By stream the last sequence that was set aside."""
    last: dict[int, int] = {}
    for changes in read_aside(path, store_cipher):
        for stream_id, ops in changes:
            for op, data in ops:
                if op is Op.APPEND:
                    last[stream_id] = int.from_bytes(data.items[-1][0], "big")
                elif op is Op.SKIP:
                    last[stream_id] = data
    return last


def remove_aside(path: Path) -> None:
    """Remove the file, after its changes were applied."""
    (path / FILE).unlink(missing_ok=True)


def _about(number: int) -> bytes:
    return b"aside" + number.to_bytes(8, "big")
