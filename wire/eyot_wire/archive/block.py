"""nats-server's message blocks: consecutive records, little-endian.

    length(4) sequence(8) time(8) subject length(2) subject [header length(4) header] payload hash(8)

The length counts the whole record; its highest bit marks a record with a header. Two bits of the sequence are flags.
The highest marks an erased message (the record holds its place). The next marks the tombstone of a message that was
deleted from an earlier place. The hash is HighwayHash-64 over sequence, time, subject, header and payload; its key is
the SHA-256 of the stream's name, a dash and the block's number. Sequences of a block's records ascend; a missing
sequence was deleted.

Source: nats-server's filestore.go.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.native import HighwayHash64
from eyot_wire.archive.values import ArchivedMessage
from eyot_wire.subject import is_well_formed

RECORD_MAX = 32 << 20
"""nats-server treats a longer record as damage."""
HEAD_BYTES = 22
EMPTY_BYTES = 30
_HASH_BYTES = 8
_HAS_HEADER = 1 << 31
_ERASED = 1 << 63
_TOMBSTONE = 1 << 62

_head = struct.Struct("<IQqH")
_header_length = struct.Struct("<I")


def hasher(name: str) -> HighwayHash64:
    """Return the hash function keyed by a name.

    The name is `STREAM` for a stream's metadata and index, `STREAM/CONSUMER` for a consumer's metadata, and `STREAM-N`
    for the records of block N.
    """
    return HighwayHash64(hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest())


def encode_record(hash64: HighwayHash64, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> bytes:
    """Encode one message as a record."""
    length = EMPTY_BYTES + len(subject) + len(payload)
    middle = b""
    if header:
        length += _header_length.size + len(header)
        middle = _header_length.pack(len(header))
    head = _head.pack(length | (_HAS_HEADER if header else 0), seq, ts_ns, len(subject))
    hashed = hash64.digest(b"".join((head[4:20], subject, header, payload)))
    return b"".join((head, subject, middle, header, payload, hashed))


def encode_placeholder(hash64: HighwayHash64, seq: int, ts_ns: int) -> bytes:
    """Encode a record that holds the place of a deleted message; a stream whose last messages are deleted ends with one."""
    return encode_record(hash64, seq | _ERASED, ts_ns, b"", b"", b"")


class BlockParser:
    """Parses one block from as many of its bytes as have arrived.

    `first_seq` and `dead` come from the block's own index (nats-server 2.9): the first sequence and the deleted
    messages. `first` and `last_seq` describe the records parsed so far; 0: none yet.
    """

    def __init__(self, hash64: HighwayHash64, name: str, first_seq: int = 0, dead: Container[int] = ()) -> None:
        self.messages: list[ArchivedMessage] = []
        self.tombstones: list[tuple[int, int]] = []
        self.last_seq = 0
        self.last_ts_ns = 0
        self.first = 0
        self.offset = 0
        self._digest = hash64.digest
        self._name = name
        self._first_seq = first_seq
        self._dead = dead

    def parse(self, data: bytes, at: int, end: int, *, whole: bool) -> int:
        """Parse the records of data[at:end] into `messages` and `tombstones`, and return the offset after the last one.

        `whole`: the block ends at `end`. Raises ArchiveError.
        """
        unpack, digest, dead = _head.unpack_from, self._digest, self._dead
        start = at
        while end - at >= HEAD_BYTES:
            length, seq, ts_ns, subject_length = unpack(data, at)
            shortest = EMPTY_BYTES + subject_length
            has_header = length & _HAS_HEADER
            if has_header:
                length ^= _HAS_HEADER
                shortest += 4
            if not shortest <= length <= RECORD_MAX or (whole and length > end - at):
                raise self._bad("sanity check failed", at - start)
            if length > end - at:
                break
            text = at + HEAD_BYTES
            content = text + subject_length
            stop = at + length - _HASH_BYTES
            if has_header:
                content += 4
            hashed = b"".join((data[at + 4 : at + 20], data[text : text + subject_length], data[content:stop]))
            if digest(hashed) != data[stop : stop + _HASH_BYTES]:
                raise self._bad("invalid checksum", at - start)
            if seq >= _TOMBSTONE or not seq:
                self._note_mark(seq, ts_ns)
            elif seq > self.last_seq:
                self.last_seq, self.last_ts_ns = seq, ts_ns
                if seq >= self._first_seq and seq not in dead:
                    subject = data[text : text + subject_length]
                    body = content
                    if has_header:
                        body += _header_length.unpack_from(data, content - 4)[0]
                    if body > stop or not is_well_formed(subject):
                        raise self._bad("sanity check failed", at - start)
                    self.first = self.first or seq
                    self.messages.append(ArchivedMessage(seq, ts_ns, subject, data[content:body], data[body:stop]))
            at += length
        if whole and at != end:
            raise self._bad("message overrun", at - start)
        self.offset += at - start
        return at

    def _note_mark(self, seq: int, ts_ns: int) -> None:
        if seq & _TOMBSTONE:
            self.tombstones.append((seq & ~(_TOMBSTONE | _ERASED), ts_ns))
        elif seq & ~_ERASED > self.last_seq:
            self.last_seq, self.last_ts_ns = seq & ~_ERASED, ts_ns

    def _bad(self, what: str, distance: int) -> ArchiveError:
        return ArchiveError(f"message block {self._name}: {what} at {self.offset + distance}")
