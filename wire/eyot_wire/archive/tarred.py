"""The tar archive of nats-server up to 2.14: the files of a stream's directory.

    meta.inf, meta.sum              the stream's configuration, JSON, and its hash in hexadecimal
    msgs/N.blk                      message blocks, in order; 2.9 puts an index N.idx before each
    msgs/index.db                   the index of all blocks (2.10 and later), after the blocks
    eyot.positions                  where mirrors and sources continue; only Eyot writes it
    obs/NAME/meta.inf, .sum, o.dat  consumers
    errors.txt                      present when the server had to abandon the snapshot

The reader skips other files: they are derived. Source: nats-server's filestore.go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from eyot_wire.archive import tar
from eyot_wire.archive.block import BlockParser, hasher
from eyot_wire.archive.block_index import BlockState, decode_block_index, read_index
from eyot_wire.archive.consumer_dat import decode_progress
from eyot_wire.archive.errors import ArchiveError, UnexpectedContent
from eyot_wire.archive.seqset import SeqSet
from eyot_wire.archive.values import ConsumerPart, EndPart, GonePart, MessagesPart, Part, PositionsPart, StreamPart
from eyot_wire.archive.window import MORE, Wait, Window
from eyot_wire.digits import parse_uint
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.untrusted import decode_json

FILE_MAX = 4 << 20
"""Bytes of a file that is read whole: a configuration, a consumer's state."""
BLOCK_INDEX_MAX = 1 << 20
"""Largest index of one block, bytes; it has room for every entry of a block."""
INDEX_MAX = 1 << 30
"""Largest index of all blocks, bytes; it grows with the number of subjects and is read as it arrives. A larger one is ignored:
messages that limits removed from the middle of blocks are then restored, as by a nats-server that finds no index."""
PIECE = 512 << 10
"""Bytes of a block that are parsed in one go: parsed messages need several times as much memory as their bytes."""
_META, _SUM = "meta.inf", "meta.sum"


class _Meta(msgspec.Struct):
    """The members of the stream's configuration that the reader uses."""

    name: str = ""
    Created: str = ""


def read(window: Window, stream: str, give: Callable[[Part], None]) -> Wait:
    """Read a whole tar archive. Raises ArchiveError."""
    yield from _Tar(window, stream, give).run()


class _Tar:
    def __init__(self, window: Window, stream: str, give: Callable[[Part], None]) -> None:
        self._window = window
        self._stream = stream
        self._give = give
        self._hash = hasher(stream)
        self._meta: bytes | None = None
        self._block_states: dict[int, BlockState] = {}
        self._seen: dict[int, tuple[int, int]] = {}  # the first and last sequence read from each block
        self._stored_seq = 0
        self._last_seq = self._last_ts_ns = 0
        self._consumer = ("", b"")

    def run(self) -> Wait:
        records: dict[str, str] = {}
        while True:
            block = yield from self._window.take(tar.BLOCK)
            member = tar.decode_header(block)
            if member is None:
                break
            if member.is_pax:
                records = tar.decode_pax((yield from self._window.take(member.size)))
                yield from self._window.skip(member.padding)
                continue
            member, records = tar.renamed(member, records), {}
            yield from self._member(member)
            yield from self._window.skip(member.padding)
        if self._meta is None:
            raise ArchiveError(f"open {_META}: no such file or directory")
        if self._consumer[0]:
            raise ArchiveError(f"consumer {self._consumer[0]!r} is not complete")
        self._give(EndPart(self._last_seq, self._last_ts_ns))

    def _member(self, member: tar.Member) -> Wait:
        parts = member.name.split("/")
        if parts[0] == "" or ".." in parts:
            raise UnexpectedContent(f"path {member.name!r}")
        match parts:
            case ["errors.txt"]:
                text = yield from self._file(member, tar.PAX_MAX)
                raise ArchiveError(f"the snapshot is not complete: {text.decode('utf-8', 'replace')}")
            case ["meta.inf"]:
                yield from self._stream_meta(member)
            case ["meta.sum"]:
                self._check_sum((yield from self._file(member)), self._hash.digest(self._meta or b""))
            case ["eyot.positions"]:
                self._needs_meta()
                self._give(PositionsPart((yield from self._file(member))))
            case ["msgs", name] if name.endswith(".blk") and (block := parse_uint(name[:-4])) is not None:
                yield from self._block(member, block)
            case ["msgs", name] if (
                name.endswith(".idx")
                and (block := parse_uint(name[:-4])) is not None
                and member.size <= BLOCK_INDEX_MAX
            ):
                data = yield from self._window.take(member.size)
                self._block_states = {block: decode_block_index(data)}  # the index precedes its block
            case ["msgs", "index.db"] if member.size <= INDEX_MAX:
                yield from self._index(member)
            case ["obs", name, file]:
                yield from self._consumer_file(member, name, file)
            case _:
                yield from self._window.skip(member.size)

    def _file(self, member: tar.Member, most: int = FILE_MAX) -> Generator[bool | None, None, bytes]:
        if member.size > most:
            raise ArchiveError(f"{member.name} is too large")
        return (yield from self._window.take(member.size))

    def _stream_meta(self, member: tar.Member) -> Wait:
        if self._meta is not None:
            raise UnexpectedContent("a second stream")
        self._meta = yield from self._file(member)
        try:
            found = decode_json(self._meta, _Meta)
            created_ns = rfc3339_to_ns(found.Created) if found.Created else 0
        except ValueError as problem:
            raise ArchiveError(f"{_META}: {problem}") from None
        if found.name != self._stream:
            raise ArchiveError("stream names do not match")
        self._give(StreamPart(self._meta, created_ns))

    @staticmethod
    def _check_sum(found: bytes, made: bytes) -> None:
        if found.strip() != made.hex().encode():
            raise ArchiveError("metadata checksum does not match")

    def _needs_meta(self) -> None:
        if self._meta is None:
            raise UnexpectedContent("messages before the configuration")

    def _block(self, member: tar.Member, number: int) -> Wait:
        self._needs_meta()
        window = self._window
        state = self._block_states.pop(number, None)
        hash64 = hasher(f"{self._stream}-{number}")
        if state is None:
            parser = BlockParser(hash64, f"[{number}]")
        else:
            parser = BlockParser(hash64, f"[{number}]", state.first_seq, state.dead)
            self._reach(state.last_seq, state.last_ts_ns)
        left = member.size
        piece = PIECE
        while left:
            end = min(len(window.data), window.at + min(left, piece))
            before = window.at
            window.at = parser.parse(window.data, before, end, whole=end - before == left)
            left -= window.at - before
            self._flush(parser)
            if not left:
                break
            if end < len(window.data):
                # One record may be larger than a piece.
                piece = PIECE if window.at > before else 2 * piece
                yield MORE
            else:
                yield None
        if parser.first:
            self._seen[number] = (parser.first, parser.last_seq)

    def _flush(self, parser: BlockParser) -> None:
        """Emit what a parser found."""
        self._reach(parser.last_seq, parser.last_ts_ns)
        if parser.messages:
            if parser.messages[0].seq <= self._stored_seq:
                raise ArchiveError(f"message sequence {parser.messages[0].seq} out of order")
            self._stored_seq = parser.messages[-1].seq
            self._give(MessagesPart(parser.messages))
            parser.messages = []
        if parser.tombstones:
            self._reach(*max(parser.tombstones))
            self._give(GonePart([seq for seq, _ in parser.tombstones]))
            parser.tombstones = []

    def _reach(self, seq: int, ts_ns: int) -> None:
        """Record that the stream reached `seq`, stored at `ts_ns`."""
        if seq > self._last_seq or (seq == self._last_seq and not self._last_ts_ns):
            self._last_seq, self._last_ts_ns = seq, ts_ns  # an erased message has no time, its tombstone has

    def _index(self, member: tar.Member) -> Wait:
        """Emit the deleted messages of the blocks read so far. As in nats-server, a damaged index counts as none."""
        self._needs_meta()
        try:
            index = yield from read_index(self._window, member.size, self._hash, self._seen)
        except ArchiveError:
            return
        self._reach(index.last_seq, index.last_ts_ns)
        ranges: list[tuple[int, int]] = []
        among: list[tuple[int, int, SeqSet]] = []
        for number, (first, last) in self._seen.items():
            state = index.blocks.get(number)
            if state is None:
                ranges.append((first, last))
                continue
            if first < state.first_seq:
                ranges.append((first, min(state.first_seq - 1, last)))
            if state.dead:
                among.append((first, last, state.dead))
        if ranges or among:
            self._give(GonePart((), ranges, among))

    def _consumer_file(self, member: tar.Member, name: str, file: str) -> Wait:
        self._needs_meta()
        data = yield from self._file(member)
        open_name, config = self._consumer
        if file == _META and not open_name:
            self._consumer = (name, data)
        elif file == _SUM and name == open_name:
            self._check_sum(data, hasher(f"{self._stream}/{name}").digest(config))
        elif file == "o.dat" and name == open_name:
            self._consumer = ("", b"")
            self._give(ConsumerPart(name, config, decode_progress(data)))
        elif file in (_META, _SUM, "o.dat"):
            raise UnexpectedContent(f"file {member.name!r} out of its place")
