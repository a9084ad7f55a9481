"""The journal's high-water mark, kept beside it: without the mark, a journal that lost its end looks like a shorter one.

`journal.high` is written after each frame and never flushed: it never exceeds what is durable, and may lag after a
power cut. It holds sealed(array(salt: bin, number of the last frame, array of [stream id, last sequence])) of streams
with messages in the journal.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from eyot_store.errors import StoreError
from eyot_store.records.record import seal, unseal

FILE = "journal.high"
_KEY = b"journal.high"
_STREAMS_MAX = 200
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, int, list[tuple[int, int]]]).decode
_SIZE = 4096


class HighWater:
    """Writes the mark. `close` closes the file."""

    def __init__(self, path: Path, salt: bytes) -> None:
        self._salt = salt
        self._ends: dict[int, tuple[int, int]] = {}  # stream id -> frame, last sequence
        self._fd = -1
        try:
            self._fd = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            pass  # the mark only confirms the journal's end

    def reached(self, number: int, ends: list[tuple[int, int]], applied: int) -> None:
        """Record the durable frame `number`; `ends`: stream ids and their last sequences; `applied`: last frame in LMDB."""
        known = self._ends
        for stream_id, last_seq in ends:
            known[stream_id] = number, last_seq
        if len(known) > _STREAMS_MAX:
            for stream_id in [each for each, (frame, _) in known.items() if frame <= applied]:
                del known[stream_id]
            while len(known) > _STREAMS_MAX:
                del known[next(iter(known))]
        if self._fd < 0:
            return
        value = _encode((self._salt, number, [(stream_id, last) for stream_id, (_, last) in known.items()]))
        try:
            os.pwrite(self._fd, len(value).to_bytes(4, "big") + seal(_KEY, value), 0)
        except OSError:
            pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_high(path: Path, salt: bytes) -> tuple[int, dict[int, int]]:
    """Return the last known frame of the journal with this salt, and each stream's last sequence then; 0 and {} if unknown."""
    try:
        data = (path / FILE).read_bytes()
        size = int.from_bytes(data[:4], "big")
        found, number, ends = _decode(unseal(_KEY, data[4 : 8 + size], "journal.high"))
    except (OSError, StoreError, msgspec.MsgspecError):
        return 0, {}
    return (number, dict(ends)) if found == salt else (0, {})


def remove_high(path: Path) -> None:
    """Remove the mark together with the journal."""
    (path / FILE).unlink(missing_ok=True)
