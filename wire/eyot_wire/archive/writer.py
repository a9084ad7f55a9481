"""Writes an archive: parts in, bytes out, at most one message block in memory.

Both writers have the same methods. Callers use them in this order: `begin`, `messages` any number of times, `consumer`
any number of times (flat: before the messages, `consumers_first`), `end`. Send what they return as it is.

`TarWriter` writes what every nats-server restores. The archive has no index, since no two versions share its format: a
placeholder record holds a deleted message's place, or the sequence falls between two blocks. `FlatWriter` is for
streams in memory: nats-server up to 2.14 would accept a tar archive of such a stream and restore it empty, but refuses
a flat archive.
"""

from __future__ import annotations

from collections.abc import Iterable

from eyot_wire.archive import natsarc, tar
from eyot_wire.archive.block import encode_placeholder, encode_record, hasher
from eyot_wire.archive.block_index import encode_empty_index
from eyot_wire.archive.consumer_dat import encode_progress
from eyot_wire.archive.s2 import S2Writer
from eyot_wire.archive.tarred import FILE_MAX
from eyot_wire.archive.values import ArchivedMessage, ConsumerProgress

BLOCK_BYTES = 4 << 20
"""A message block is closed when it has grown so large: nats-server holds a block in memory, and so does `TarWriter`."""
PLACEHOLDERS_MAX = 100_000
PLACEHOLDERS_PER_MESSAGE = 2
"""Deleted messages per stored one that placeholders represent (30 bytes each, before compression). A larger gap begins the next
block: equivalent, except that nats-server 2.9 then counts deleted messages wrong."""
HOLE_BLOCKS_MAX = 10_000
"""Largest number of blocks that begin because of a gap. Later gaps stay inside blocks, which nats-server 2.9 cannot read."""


class TarWriter:
    """Writes a tar archive; `stream`: its name. Times in ns since the epoch."""

    consumers_first = False

    def __init__(self, stream: str, now_ns: int) -> None:
        self._stream = stream
        self._now_ns = now_ns
        self._hash = hasher(stream)
        self._s2 = S2Writer()
        self._out: list[bytes] = []
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._number = 0
        self._placeholders_left = PLACEHOLDERS_MAX
        self._hole_blocks = 0
        self._last_seq = 0
        self._last_ts_ns = 0
        self._next_block()

    def begin(self, config: bytes, created: str, state: bytes, positions: bytes = b"") -> bytes:
        """Return the archive's start.

        `config` is JSON, `created` RFC 3339. `state` is unused: it follows from the messages. `positions`: what
        `PositionsPart` brings back; more than a reader takes is left out.
        """
        meta = b'{"Created":"%b",%b' % (created.encode(), config[1:])
        self._file("meta.inf", meta)
        self._file("meta.sum", self._hash.digest(meta).hex().encode())
        if 0 < len(positions) <= FILE_MAX:
            self._file("eyot.positions", positions)  # every nats-server leaves it alone
        return self._compressed()

    def messages(self, messages: Iterable[ArchivedMessage]) -> bytes:
        for seq, ts_ns, subject, header, payload in messages:
            if seq != self._last_seq + 1:
                self._hole(seq)
            self._add(encode_record(self._block_hash, seq, ts_ns, subject, header, payload))
            self._last_seq, self._last_ts_ns = seq, ts_ns
            self._placeholders_left += PLACEHOLDERS_PER_MESSAGE
            if self._block_bytes >= BLOCK_BYTES:
                self._close_block()
        return self._compressed()

    def messages_end(self, last_seq: int, last_ts_ns: int) -> bytes:
        """Return the end of the messages; the stream's last sequence may lie beyond the last message."""
        hole = last_seq - self._last_seq
        if self._block and 0 < hole <= self._placeholders_left:
            self._fill(last_seq, last_ts_ns)
            self._last_seq = last_seq
        if self._block:
            self._close_block()
        if last_seq > self._last_seq:
            record = encode_placeholder(self._block_hash, last_seq, last_ts_ns)
            # nats-server 2.9 drops a block without messages that has no index.
            self._file(f"msgs/{self._number}.idx", encode_empty_index(last_seq, last_ts_ns, record))
            self._add(record)
            self._close_block()
        return self._compressed()

    def consumer(self, name: str, config: bytes, created: str, progress: ConsumerProgress) -> bytes:
        """Return a consumer's files; `config` is JSON and not empty."""
        meta = b'{"Created":"%b","Name":"%b",%b' % (created.encode(), name.encode(), config[1:])
        folder = f"obs/{name}"
        self._file(f"{folder}/meta.inf", meta)
        self._file(f"{folder}/meta.sum", hasher(f"{self._stream}/{name}").digest(meta).hex().encode())
        self._file(f"{folder}/o.dat", encode_progress(progress, self._now_ns))
        return self._compressed()

    def end(self) -> bytes:
        return self._s2.write(tar.END)

    def _hole(self, seq: int) -> None:
        """Skip the sequences between the last message and `seq`, which hold no messages."""
        if not self._block:
            return
        hole = seq - self._last_seq - 1
        if hole <= self._placeholders_left:
            self._placeholders_left -= hole
            self._fill(seq - 1, self._last_ts_ns)
        elif self._hole_blocks < HOLE_BLOCKS_MAX:
            self._hole_blocks += 1
            self._close_block()

    def _fill(self, last: int, ts_ns: int) -> None:
        """Write placeholders after the last message, up to `last`."""
        for missing in range(self._last_seq + 1, last + 1):
            self._add(encode_placeholder(self._block_hash, missing, ts_ns))

    def _add(self, record: bytes) -> None:
        self._block.append(record)
        self._block_bytes += len(record)

    def _close_block(self) -> None:
        self._file(f"msgs/{self._number}.blk", b"".join(self._block))
        self._block, self._block_bytes = [], 0
        self._next_block()

    def _next_block(self) -> None:
        self._number += 1
        self._block_hash = hasher(f"{self._stream}-{self._number}")

    def _file(self, name: str, content: bytes) -> None:
        self._out.append(tar.encode_member(name, content, self._now_ns / 1e9))

    def _compressed(self) -> bytes:
        """Return the bytes encoded since the last call."""
        made, self._out = b"".join(self._out), []
        return self._s2.write(made) if made else b""


class FlatWriter:
    """Writes a flat archive; `stream`: its name, which the archive does not hold."""

    consumers_first = True

    def __init__(self, stream: str, now_ns: int) -> None:
        self._now_ns = now_ns
        self._s2 = S2Writer()

    def begin(self, config: bytes, created: str, state: bytes, positions: bytes = b"") -> bytes:
        """Return the archive's start. `state` is JSON and counts the consumers that follow. The rest is unused."""
        return self._s2.write(natsarc.MAGIC + natsarc.encode_entry(b"state.json", self._now_ns, 0, b"", state))

    def messages(self, messages: Iterable[ArchivedMessage]) -> bytes:
        entry = natsarc.encode_entry
        return self._s2.write(
            b"".join(entry(subject, ts_ns, seq, header, payload) for seq, ts_ns, subject, header, payload in messages)
        )

    def messages_end(self, last_seq: int, last_ts_ns: int) -> bytes:
        """Return nothing: the last sequence stands in the state."""
        return b""

    def consumer(self, name: str, config: bytes, created: str, progress: ConsumerProgress) -> bytes:
        return self._s2.write(natsarc.encode_consumer(name, config, progress, self._now_ns))

    def end(self) -> bytes:
        return self._s2.write(natsarc.END)


Writer = TarWriter | FlatWriter
