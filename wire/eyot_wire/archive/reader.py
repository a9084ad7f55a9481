"""Reads an archive as it arrives: bytes in, parts out, at most one compressed block in memory.

`feed` adds bytes, `step` parses up to one compressed block of them (a few MiB at most, however small when compressed),
`end` marks the end of the input. A generator keeps the position in the archive's grammar and suspends where bytes are
missing.
"""

from __future__ import annotations

from eyot_wire.archive import natsarc, tarred
from eyot_wire.archive.errors import truncated
from eyot_wire.archive.s2 import S2Reader
from eyot_wire.archive.values import Part
from eyot_wire.archive.window import MORE, Wait, Window


class ArchiveReader:
    """Incremental reader of either archive; `stream`: the name of the stream to restore.

    Every method raises ArchiveError.
    """

    def __init__(self, stream: str) -> None:
        self.done = False
        self._has_more = False
        self._stream = stream
        self._s2 = S2Reader()
        self._window = Window()
        self._parts: list[Part] = []
        self._grammar = self._read()

    @property
    def pending(self) -> int:
        """Bytes received and not yet parsed."""
        return self._s2.pending

    def feed(self, data: bytes) -> None:
        """Add bytes. Bytes after the archive's end are dropped."""
        if not self.done:
            self._s2.feed(data)

    def step(self) -> list[Part] | None:
        """Parse up to one compressed block and return its parts, perhaps none; None: more bytes are needed."""
        if self.done:
            return None
        if not self._has_more:
            block = self._s2.next_block()
            if block is None:
                return None
            self._window.add(bytes(block))
        try:
            self._has_more = next(self._grammar) is MORE
        except StopIteration:
            self.done = True
            self._window.clear()
        parts, self._parts = self._parts, []
        return parts

    def end(self) -> None:
        """Mark the end of the input, after everything was parsed."""
        if not self.done:
            raise truncated()

    def _read(self) -> Wait:
        while self._window.left < len(natsarc.MAGIC):
            yield None
        is_flat = self._window.peek(len(natsarc.MAGIC)) == natsarc.MAGIC
        read = natsarc.read if is_flat else tarred.read
        yield from read(self._window, self._stream, self._give)

    def _give(self, part: Part) -> None:
        self._parts.append(part)
