"""The journal's files: preallocated segments of checksummed frames, written in place, one flush per frame.

Invariants. A frame is durable when `write` returns, after one system call that writes and flushes (`RWF_DSYNC`; two
calls where the system lacks it). Files never change their size while they are written, so that a flush has no metadata
to write. All writes are whole blocks of 4 KiB, so that nothing is read back and the page cache keeps to small pages. A
torn frame is not a frame. After a failed write, its frame can never be found again, or nothing more is written.

A *frame* is `magic, length of the body, number, CRC-32 of salt, number, length and body` (20 bytes) and the body.
Numbers increase by one. Frames are consecutive inside a segment; one that does not fit starts the next free segment. A
segment is free when LMDB holds everything in it. Old content remains after the newer frames, or in place of the first;
its numbers are lower. docs/format.md has the bytes.

This module does not know threads, LMDB, or the meaning of frames.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from eyot_store.directories import flush_directory
from eyot_store.errors import StoreError
from eyot_store.native import checksum

BLOCK = 4096
MAGIC = b"EyJ1"
HEADER = Struct(">4sIIQ")  # magic, CRC-32, length of the body, number
_COVERED = Struct(">IQ")  # the part that the CRC covers
_COVERED_AT = 8
_RETRY_S = 10.0
#: Errors of systems that lack a flag of `pwritev2`.
_NOT_KNOWN = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))


class Frame(NamedTuple):
    """A frame as it was found."""

    number: int
    body: memoryview


class Segment:
    """One file. `last` is the highest frame in it (0 = none)."""

    __slots__ = ("fd", "index", "last")

    def __init__(self, index: int, fd: int) -> None:
        self.index = index
        self.fd = fd
        self.last = 0


class Write(NamedTuple):
    """A frame that is to be written: whole blocks, the first of which may hold the end of the frame before it."""

    segment: Segment
    number: int
    data: bytes
    at: int
    """Where in the segment."""
    end: int
    """Of the frame in `data`."""


def segment_name(index: int) -> str:
    """Name of a segment's file in the journal's directory."""
    return f"segment-{index:02d}"


class Journal:
    """Open segments; the one being written, and where in it."""

    def __init__(
        self, path: Path, salt: bytes, number: int, segment_bytes: int, segments_max: int, flush: bool
    ) -> None:
        """Open the journal; `number`: the last frame ever written. All existing segments are free."""
        self.path = path
        self.number = number
        self.segment_bytes = segment_bytes
        self.segments_max = segments_max
        self.filled = 0  # segments
        self.salt = salt
        self._salt = checksum(salt)
        #: For a write of a frame: flags of pwritev2, and whether a flush must follow.
        self.flags, self.flush_after = trial_write(path, flush)
        self._flush = flush
        self._segments: list[Segment] = []
        self._current: Segment | None = None
        self._at = 0  # where the next frame begins
        self._tail = b""  # the bytes before it in its block
        self._doubtful = False  # a write failed: part of a frame may be at `_at`
        self._retry_s = 0.0  # not before then another attempt to add a segment
        self._adding = threading.Lock()  # held while a segment is created, which may be slow
        self._looked_ahead = False  # for the segment after the current one
        for index in range(segments_max):
            file = path / segment_name(index)
            if file.exists() and file.stat().st_size == segment_bytes:
                self._segments.append(Segment(index, os.open(file, os.O_RDWR | os.O_CLOEXEC)))

    def prepare(self, size: int, applied: int) -> bool:
        """Find space for a frame with a body of `size` bytes; `applied`: the last frame that LMDB holds.

        Returns False when every segment holds frames that LMDB lacks, and there is no space for another segment.
        """
        if self._current is not None and self._at + HEADER.size + size <= self.segment_bytes:
            return True
        if HEADER.size + size > self.segment_bytes:
            return False
        segment = self._free(applied) or self._add_segment()
        if segment is None:
            return False
        # Small pages: the cache may hold large pages from reading or set-up, which a write would dirty as a whole.
        os.posix_fadvise(segment.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self.filled += self._current is not None
        self._current = segment
        self._at = 0
        self._tail = b""
        self._looked_ahead = False
        return True

    @property
    def empty(self) -> bool:
        """Return whether there is no segment yet."""
        return not self._segments

    def runs_out(self, applied: int) -> bool:
        """Return True once per segment: when half of it is written and no other would be free. `add_spare` is for that."""
        if self._looked_ahead or self._at * 2 < self.segment_bytes:
            return False
        self._looked_ahead = True
        return len(self._segments) < self.segments_max and self._free(applied) is None

    def add_spare(self) -> None:
        """Create the segment that will be needed, if another is allowed. Any thread may call; a writer that needs it waits."""
        with self._adding:
            if all(segment.last for segment in self._segments):
                self._make_segment()

    @property
    def oldest_last(self) -> int:
        """Return the frame that LMDB must have applied for a segment to become free."""
        return min((segment.last for segment in self._segments), default=0)

    def write(self, body: bytes) -> int:
        """Write the next frame where `prepare` found space; durable on return. Returns its number.

        Raises OSError: the frame does not count, and `scrub` must succeed before the next write.
        """
        frame = self.begin(body)
        self._put(frame.segment, frame.data, frame.at)
        return self.end(frame)

    def fits(self, size: int) -> bool:
        """Whether a frame with a body of `size` bytes can be begun at once, without `prepare` and `scrub`."""
        return self._current is not None and not self._doubtful and self._at + HEADER.size + size <= self.segment_bytes

    def begin(self, body: bytes) -> Write:
        """Return what is to be written for the next frame. Until `end`, the frame does not count, and `scrub` is due."""
        segment = self._current
        assert segment is not None
        assert not self._doubtful
        start, number, size = len(self._tail), self.number + 1, HEADER.size + len(body)
        assert self._at + size <= self.segment_bytes
        header = _header(self._salt, number, body)
        end = start + size
        data = b"".join((self._tail, header, body, bytes(-end % BLOCK)))
        self._doubtful = True
        return Write(segment, number, data, self._at - start, end)

    def end(self, frame: Write) -> int:
        """Note that the frame of `begin` is durable; return its number."""
        self._doubtful = False
        self.number = frame.segment.last = frame.number
        self._at = frame.at + frame.end
        self._tail = frame.data[frame.end - frame.end % BLOCK : frame.end]
        return frame.number

    def scrub(self) -> None:
        """After a failed write, ensure that no part of its frame can be read as a frame. Raises OSError."""
        if self._doubtful:
            assert self._current is not None
            block = self._tail.ljust(BLOCK, b"\0")
            self._put(self._current, block, self._at - len(self._tail))
            self._doubtful = False

    def close(self) -> None:
        for segment in self._segments:
            os.close(segment.fd)
        self._segments.clear()
        self._current = None

    # -- segments ------------------------------------------------------------------------------------------------------

    def _free(self, applied: int) -> Segment | None:
        """Return a segment to reuse, possibly the full one that was written last."""
        free = [each for each in self._segments if each.last <= applied]
        return min(free, key=lambda each: (each.last, each.index), default=None)

    def _add_segment(self) -> Segment | None:
        """One more segment, which another thread may just have made."""
        with self._adding:
            return next((segment for segment in self._segments if not segment.last), None) or self._make_segment()

    def _make_segment(self) -> Segment | None:
        """Create a file, allocated and filled with zeros, so that later writes change only its content.

        None at the maximum number of segments, and when the disk refuses; after that, no attempt is made for some time.
        """
        taken = {each.index for each in self._segments}
        index = next((index for index in range(self.segments_max) if index not in taken), None)
        if index is None or time.monotonic() < self._retry_s:
            return None
        file = self.path / segment_name(index)
        fd = -1
        try:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(fd, 0, self.segment_bytes)
            if self._flush:
                step = min(self.segment_bytes, 1 << 20)
                for at in range(0, self.segment_bytes, step):
                    _write_all(fd, bytes(min(step, self.segment_bytes - at)), at, 0)
                os.fsync(fd)
                flush_directory(self.path)
        except OSError:
            if fd >= 0:
                os.close(fd)
                file.unlink(missing_ok=True)
            self._retry_s = time.monotonic() + _RETRY_S
            return None
        segment = Segment(index, fd)
        self._segments.append(segment)
        return segment

    def _put(self, segment: Segment, data: bytes | bytearray, at: int) -> None:
        try:
            _write_all(segment.fd, data, at, self.flags)
        except OSError as error:
            if not self.flags or error.errno not in _NOT_KNOWN:
                raise
            # The trial write failed for another reason: the disk was full, or failed.
            self.flags, self.flush_after = 0, True
            _write_all(segment.fd, data, at, 0)
        if self.flush_after:
            os.fdatasync(segment.fd)


def read_segments(path: Path, *, skip_unreadable: bool = False) -> Iterator[bytes]:
    """Yield the content of each file of the journal at `path`.

    `skip_unreadable`: blocks that the disk does not give are zeros, so that frames in them count as damaged. Raises
    StoreError, which names the file, without it.
    """
    for file in sorted(path.glob("segment-*")):
        try:
            yield file.read_bytes()
        except OSError as error:
            if not skip_unreadable:
                why = f"the disk failed: {file} cannot be read: {error.strerror}"
                raise StoreError("io", f"{why}; eyot-check --repair takes over what can be read") from error
            yield b"".join(_blocks(file))


def _blocks(file: Path) -> Iterator[bytes]:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for at in range(0, os.fstat(fd).st_size, BLOCK):
            try:
                yield os.pread(fd, BLOCK, at)
            except OSError:
                yield bytes(BLOCK)
    finally:
        os.close(fd)


def read_frames(
    path: Path, salt: bytes, applied: int, *, skip_unreadable: bool = False
) -> tuple[list[Frame], list[int]]:
    """Return the frames above `applied` in the journal at `path`, in order, and the numbers of damaged frames between them.

    Data after the last complete frame was never acknowledged. `skip_unreadable`: as in `read_segments`.
    """
    start = checksum(salt)
    found: dict[int, Frame] = {}
    for data in read_segments(path, skip_unreadable=skip_unreadable):
        last = 0
        for frame in _frames_in(data, start):
            if frame.number > max(last, applied):
                last = frame.number
                found[last] = frame
    frames = [found[number] for number in sorted(found)]
    missing = [number for number in range(applied + 1, frames[-1].number) if number not in found] if frames else []
    return frames, missing


def _header(salt: int, number: int, body: bytes) -> bytes:
    covered = _COVERED.pack(len(body), number)
    return MAGIC + checksum(body, checksum(covered, salt)).to_bytes(4, "big") + covered


def frame_bytes(salt: bytes, number: int, body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _header(checksum(salt), number, body) + body


def frames_in(data: bytes, salt: bytes) -> Iterator[Frame]:
    """Every whole frame in `data`."""
    return _frames_in(data, checksum(salt))


def _frames_in(data: bytes, salt: int) -> Iterator[Frame]:
    """Every whole frame, wherever it begins."""
    at = data.find(MAGIC)
    while at >= 0:
        frame = _frame_at(data, at, salt)
        if frame is None:
            at = data.find(MAGIC, at + 1)
        else:
            yield frame
            at = data.find(MAGIC, at + HEADER.size + len(frame.body))


def _frame_at(data: bytes, at: int, salt: int) -> Frame | None:
    if at + HEADER.size > len(data):
        return None
    _, expected, length, number = HEADER.unpack_from(data, at)
    end = at + HEADER.size + length
    if end > len(data):
        return None
    view = memoryview(data)
    if checksum(view[at + _COVERED_AT : end], salt) != expected:
        return None
    return Frame(number, view[at + HEADER.size : end])


def _write_all(fd: int, data: bytes | bytearray, at: int, flags: int) -> None:
    """Write all of it. Raises OSError."""
    written = os.pwritev(fd, [data], at, flags)
    while written < len(data):
        with memoryview(data) as view, view[written:] as rest:
            more = os.pwritev(fd, [rest], at + written, flags)
        if not more:
            raise OSError(0, "the disk accepts no more bytes")
        written += more


def trial_write(path: Path, flush: bool) -> tuple[int, bool]:
    """Return the flags for writes in this directory, and whether an extra flush must follow, by writing a block.

    Some file systems (9p, FUSE, old kernels) lack `RWF_DSYNC`. Other disk errors show at the first write.
    """
    if not flush:
        return 0, False
    dsync = getattr(os, "RWF_DSYNC", 0)
    file = path / "trial"
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, bytes(BLOCK), 0, dsync)
        finally:
            os.close(fd)
            file.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _NOT_KNOWN:
            return 0, True
    return dsync, not dsync


def remove_files(path: Path) -> None:
    """Remove the journal's files."""
    try:
        for file in path.glob("segment-*"):
            file.unlink()
        path.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError("io", f"the journal in {path} cannot be removed: {error.strerror}") from error
