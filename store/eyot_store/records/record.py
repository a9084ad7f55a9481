"""One stored message as bytes: a MessagePack array and a checksum over it, its sequence and its stream.

A record is `msgpack([ts_ns, subject, header, payload]) + crc32_le`. The checksum is CRC-32 (zlib's) over the stream's
id and the sequence (8 bytes big-endian each) followed by the MessagePack body. A record under another key or in another
stream is therefore as corrupt as one with a flipped bit. The little-endian checksum after the body makes the CRC over
both a constant, which readers compare in one pass without slicing.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from eyot_store.errors import StoreError

CRC_RESIDUE = 0x2144DF1C
CRC_SIZE = 4

pack_u64 = struct.Struct(">Q").pack
unpack_u64 = struct.Struct(">Q").unpack
pack_crc = struct.Struct("<I").pack


class StoredMessage(msgspec.Struct, array_like=True, gc=False):
    """A stored message. The order of the fields is the order on disk; `seq` is the key, not in the record."""

    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes
    seq: int = 0


class RecordHead(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a record: enough to know its subject."""

    ts_ns: int
    subject: bytes


class Counters(msgspec.Struct, array_like=True):
    """A stream's counters, stored beside its records and changed in the same transaction."""

    messages: int = 0
    bytes: int = 0
    last_seq: int = 0
    last_ts_ns: int = 0
    floor: int = 0
    """Records below this sequence were purged; they may still be there."""


class StreamRecord(msgspec.Struct, array_like=True, frozen=True):
    """A stream's entry in the database `streams`."""

    account: str
    name: str
    created_ns: int
    config: bytes


class ReadResult(NamedTuple):
    """Messages of one bounded read, and where to continue: all matches below `next_seq` are included."""

    messages: list[StoredMessage]
    next_seq: int


encode_body = msgspec.msgpack.Encoder().encode
decode_body = msgspec.msgpack.Decoder(StoredMessage).decode
decode_head = msgspec.msgpack.Decoder(RecordHead).decode

LARGE_RECORD = 8192
"""Of records with more bytes, subject and sizes are read without the checksum, which needs all their pages. Damage to
them still shows when the message is read, and where the lengths in it do not add up."""


#: How MessagePack begins a record whose time has 8 bytes, and the bytes of the length behind each kind of `bin`.
_RECORD_START = b"\x94\xcf"
_BIN_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def seq_of(key: bytes | memoryview) -> int:
    """Return the sequence of an LMDB key."""
    seq: int = unpack_u64(key)[0]
    return seq


def salt_of(stream_id: int) -> int:
    """Return the initial value of a stream's record checksums."""
    return crc32(pack_u64(stream_id))


def encode_record(salt: int, key: bytes, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> bytes:
    """Return the value stored under `key` in the stream with `salt`."""
    body = encode_body((ts_ns, subject, header, payload))
    return body + pack_crc(crc32(body, crc32(key, salt)))


def is_whole(salt: int, key: bytes | memoryview, value: bytes | memoryview) -> bool:
    """Return whether the checksum of the record under `key` is right."""
    return crc32(value, crc32(key, salt)) == CRC_RESIDUE


def decode_record(salt: int, key: bytes | memoryview, value: bytes | memoryview) -> StoredMessage:
    """Return the message under `key`. Raises StoreError("corrupt") when the checksum or the shape is not right."""
    if not is_whole(salt, key, value):
        raise StoreError("corrupt", "checksum does not match", seq=seq_of(key))
    try:
        message = decode_body(value[:-CRC_SIZE])
    except msgspec.MsgspecError as error:
        raise StoreError("corrupt", f"record is malformed: {error}", seq=seq_of(key)) from None
    message.seq = unpack_u64(key)[0]
    return message


def subject_in(body: bytes) -> bytes | None:
    """Return the subject in a record's MessagePack array; None if it cannot be read."""
    try:
        return decode_head(body).subject
    except msgspec.MsgspecError:
        return None


class LongHead(NamedTuple):
    """What the first bytes of a long record tell of it: its subject, and the sizes of header and payload."""

    subject: bytes
    header: int
    payload: int


def head_of_long(beginning: bytes, size: int) -> LongHead | None:
    """Return the head of a record of `size` bytes from its first ones; None where only the whole record can tell.

    The lengths of its parts must add up to `size`.
    """
    if beginning[:2] != _RECORD_START:
        return None
    at, starts, sizes = 2 + 8, [0, 0, 0], [0, 0, 0]
    for part in range(3):
        width = _BIN_WIDTHS.get(beginning[at]) if at < len(beginning) else None
        if width is None:
            return None
        starts[part] = at + 1 + width
        sizes[part] = int.from_bytes(beginning[at + 1 : starts[part]], "big")
        at = starts[part] + sizes[part]
    if at + CRC_SIZE != size:
        return None
    return LongHead(beginning[starts[0] : starts[0] + sizes[0]], sizes[1], sizes[2])


def file_message_bytes(subject: bytes, header: bytes, payload: bytes) -> int:
    """Return a message's size in a file stream's `bytes`, as nats-server's file store counts."""
    return 30 + len(subject) + len(payload) + (len(header) + 4 if header else 0)


def memory_message_bytes(subject: bytes, header: bytes, payload: bytes) -> int:
    """Return a message's size in a memory stream's `bytes`, as nats-server's memory store counts."""
    return 16 + len(subject) + len(header) + len(payload)


def seal(key: bytes, value: bytes) -> bytes:
    """Return a value of the small databases (streams, consumers, positions, counters): itself and a CRC-32 over key and value."""
    return value + pack_crc(crc32(value, crc32(key)))


def without_flipped_bit(key: bytes, sealed: bytes) -> bytes | None:
    """Return a sealed value without its one flipped bit; None: more than one bit is wrong. It tries all bits: for small values."""
    data = bytearray(sealed)
    start = crc32(key)
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            if crc32(data, start) == CRC_RESIDUE:
                return bytes(data)
            data[at] ^= 1 << bit
    return None


def unseal(key: bytes, sealed: bytes, what: str) -> bytes:
    """Check and remove the checksum of `seal`. Raises StoreError("corrupt") naming `what`."""
    if len(sealed) < CRC_SIZE or crc32(sealed, crc32(key)) != CRC_RESIDUE:
        raise StoreError("corrupt", f"{what}: checksum does not match")
    return sealed[:-CRC_SIZE]
