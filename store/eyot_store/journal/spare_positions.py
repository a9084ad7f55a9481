"""A few positions that can be made durable on a full disk: a small file in the store's directory, written in place.

The transaction that holds a position fails on a full disk. Where the position must not be lost with the power, it is
kept in `positions.spare` until such a transaction succeeds. The file has its full size from the beginning, so writing
it needs no space. It holds two copies, at 0 and at SLOT_BYTES, which are written in turn: a torn write leaves the one
before. A copy is

    4 bytes length (big-endian) ‖ sealed(array(number of the write, array of [stream id, key: bin, value: bin]))

and the array is locked in an encrypted store.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from eyot_store.errors import StoreError
from eyot_store.records.record import seal, unseal
from eyot_store.records.store_cipher import StoreCipher

FILE = "positions.spare"
_KEY = b"positions.spare"
#: Room for one copy, bytes: some thirty records of downstreams.
SLOT_BYTES = 8192
_SLOTS = 2
_LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, bytes, bytes]]]).decode


class SparePositions:
    """The positions in `positions.spare` of the store in directory `path`. For one thread at a time.

    `cipher`: encrypts them; None: the store is not encrypted. A copy that cannot be decrypted counts as empty.
    """

    def __init__(self, path: Path, cipher: StoreCipher | None, *, flush: bool) -> None:
        self._file = path / FILE
        self._cipher = cipher
        self._flush = flush
        self._number = 0
        self._positions: dict[tuple[int, bytes], bytes] = {}
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError:
            return
        found = [copy for slot in range(_SLOTS) if (copy := self._copy(data[slot * SLOT_BYTES :][:SLOT_BYTES]))]
        for number, positions in sorted(found, key=lambda copy: copy[0])[-1:]:
            self._number = number
            self._positions = {(stream_id, key): value for stream_id, key, value in positions}
        if len(data) < _SLOTS * SLOT_BYTES:
            self._allocate()

    def of(self, stream_id: int) -> dict[bytes, bytes]:
        """Return a stream's positions in the file, by key."""
        return {key: value for (owner, key), value in self._positions.items() if owner == stream_id}

    def put(self, stream_id: int, key: bytes, value: bytes) -> bool:
        """Keep a position; return whether it is durable. It is not when there is no room, or on an I/O error."""
        before = self._positions
        if before.get((stream_id, key)) == value:
            return True
        self._positions = {**before, (stream_id, key): value}
        if self._write():
            return True
        self._positions = before
        return False

    def remove(self, stream_id: int, key: bytes) -> None:
        """Remove a position, if it is there: the store has it, or it is void."""
        if (stream_id, key) in self._positions:
            del self._positions[stream_id, key]
            self._write()

    def remove_stream(self, stream_id: int) -> None:
        """Remove all positions of a stream that was deleted."""
        for key in self.of(stream_id):
            self.remove(stream_id, key)

    def _copy(self, data: bytes) -> tuple[int, list[tuple[int, bytes, bytes]]] | None:
        size = int.from_bytes(data[:_LENGTH_BYTES], "big")
        try:
            value = unseal(_KEY, data[_LENGTH_BYTES:][:size], FILE)
            return _decode(value if self._cipher is None else self._cipher.open(_KEY, value))
        except (StoreError, msgspec.MsgspecError):
            return None

    def _allocate(self) -> None:
        """Give the file its full size. The bytes are written, since a file with a hole needs space later."""
        try:
            with self._file.open("ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(bytes(_SLOTS * SLOT_BYTES - file.tell()))
        except OSError:
            pass  # `put` tries again

    def _write(self) -> bool:
        """Write a copy over the older one; return whether it is durable."""
        positions = [(stream_id, key, value) for (stream_id, key), value in self._positions.items()]
        value = _encode((self._number + 1, positions))
        sealed = seal(_KEY, value if self._cipher is None else self._cipher.seal(_KEY, value))
        if len(sealed) + _LENGTH_BYTES > SLOT_BYTES:
            return False
        copy = (len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed).ljust(SLOT_BYTES, b"\0")
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                whole = os.pwrite(fd, copy, (self._number + 1) % _SLOTS * SLOT_BYTES) == SLOT_BYTES
                if self._flush:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError:
            return False
        if whole:
            self._number += 1
        return whole
