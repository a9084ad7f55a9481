"""Records as they are in LMDB, sealed where the store is encrypted; and back."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec

from eyot_store.errors import StoreError
from eyot_store.records.record import (
    CRC_RESIDUE,
    CRC_SIZE,
    LARGE_RECORD,
    StoredMessage,
    decode_body,
    decode_head,
    file_message_bytes,
    pack_crc,
    pack_u64,
    salt_of,
    seq_of,
)
from eyot_store.records.store_cipher import SEALED_EXTRA, StoreCipher

FRAME_BYTES = 16
"""What a record has beside subject, header and payload, if they are short: the time and their lengths."""
Buffer = bytes | memoryview
Opened = Callable[[bytes, Buffer], bytes]
"""(key, sealed body) to body. Raises StoreError("corrupt") with the sequence."""


class RecordCodec:
    """Encodes and decodes the records of one stream. `opened` is None for an unencrypted store."""

    __slots__ = ("_about", "_store_cipher", "opened", "salt")

    def __init__(self, stream_id: int, store_cipher: StoreCipher | None) -> None:
        self.salt = salt_of(stream_id)
        self._store_cipher = store_cipher
        self._about = b"record" + pack_u64(stream_id)
        self.opened: Opened | None = None if store_cipher is None else self._open

    def stored(self, items: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return records (key, body and checksum) as LMDB stores them."""
        store_cipher = self._store_cipher
        if store_cipher is None:
            return items
        out = []
        for key, record in items:
            body = store_cipher.seal(self._about + key, record[:-CRC_SIZE])
            out.append((key, body + pack_crc(crc32(body, crc32(key, self.salt)))))
        return out

    def summed(self, key: bytes, body: bytes) -> bytes:
        """Return a record as a transaction carries it: a body and its checksum."""
        return body + pack_crc(crc32(body, crc32(key, self.salt)))

    def body(self, key: Buffer, value: Buffer) -> Buffer:
        """Return the MessagePack array in a record. Raises StoreError("corrupt")."""
        if crc32(value, crc32(key, self.salt)) != CRC_RESIDUE:
            raise StoreError("corrupt", "checksum does not match", seq=seq_of(key))
        body = value[:-CRC_SIZE]
        return body if self.opened is None else self.opened(bytes(key), body)

    def message(self, key: Buffer, value: Buffer) -> StoredMessage:
        """Return the message in a record. Raises StoreError("corrupt")."""
        try:
            message = decode_body(self.body(key, value))
        except msgspec.MsgspecError as error:
            size = self.counted_bytes(value)
            raise StoreError("corrupt", f"record is malformed: {error}", seq=seq_of(key), size=size) from None
        except StoreError as error:
            error.size = self.counted_bytes(value)
            raise
        message.seq = seq_of(key)
        return message

    def counted_bytes(self, value: Buffer) -> int:
        """Return a damaged record's size in its stream's bytes: from the lengths in it, or else estimated from its own length."""
        body = value[:-CRC_SIZE]
        if self.opened is None:
            try:
                message = decode_body(body)
                return file_message_bytes(message.subject, message.header, message.payload)
            except msgspec.MsgspecError:
                pass
        return max(0, len(body) - (0 if self.opened is None else SEALED_EXTRA) - FRAME_BYTES) + file_message_bytes(
            b"", b"", b""
        )

    def subject(self, key: Buffer, value: Buffer) -> bytes | None:
        """Return the subject in a record; None: it cannot be read."""
        try:
            is_large = self.opened is None and len(value) > LARGE_RECORD
            return decode_head(value[:-CRC_SIZE] if is_large else self.body(key, value)).subject
        except (StoreError, msgspec.MsgspecError):
            return None

    @property
    def reading(self) -> tuple[int, Callable[[bytes, Buffer], bytes | None] | None]:
        """Return what `Change` and `count_bytes` need to read records: the salt of checksums, and the decryption function."""
        return self.salt, None if self.opened is None else self.body_or_none

    def body_or_none(self, key: bytes, value: Buffer) -> bytes | None:
        """Return the MessagePack array in a record; None: it cannot be read."""
        try:
            return bytes(self.body(key, value))
        except StoreError:
            return None

    def _open(self, key: bytes, body: Buffer) -> bytes:
        store_cipher = self._store_cipher
        assert store_cipher is not None
        try:
            return store_cipher.open(self._about + key, body)
        except StoreError as error:
            raise StoreError("corrupt", error.message, seq=seq_of(key)) from None
