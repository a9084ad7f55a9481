"""The bytes of an archive that arrived and were not parsed yet."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

#: What a reader's generator yields: it suspends when bytes are missing, and returns a value at the end. MORE: bytes are
#: left, and the caller must first process what the reader has emitted.
MORE: Final = True
Wait = Generator[bool | None, None, None]


class Window:
    """A buffer of unparsed bytes, `data[at:]`. Readers advance `at`."""

    __slots__ = ("at", "data")

    def __init__(self) -> None:
        self.data = b""
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def add(self, block: bytes) -> None:
        self.data = self.data[self.at :] + block if self.left else block
        self.at = 0

    def clear(self) -> None:
        self.data, self.at = b"", 0

    def peek(self, size: int) -> bytes:
        return self.data[self.at : self.at + size]

    def take(self, size: int) -> Generator[bool | None, None, bytes]:
        """Return the next `size` bytes, waiting for those that have not arrived."""
        if self.left >= size:
            piece = self.peek(size)
            self.at += size
            return piece
        out = bytearray()
        while True:
            piece = self.peek(size - len(out))
            self.at += len(piece)
            out += piece
            if len(out) == size:
                return bytes(out)
            yield None

    def skip(self, size: int) -> Wait:
        """Skip the next `size` bytes."""
        while True:
            passed = min(size, self.left)
            self.at += passed
            size -= passed
            if not size:
                return
            yield None
