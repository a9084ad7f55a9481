"""The bytes of an archive between what was read and what has not come yet."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

#: What a reader is made of: it stops (yields) when bytes are missing, and returns a value. It yields MORE when there are bytes to go on
#: with, and something to be done with what it has given.
MORE: Final = True
Wait = Generator[bool | None, None, None]


class Window:
    """`data[at:]` is what is there. Readers move `at`."""

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
        """The next `size` bytes, gathered as they come."""
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
        """Pass over the next `size` bytes."""
        while True:
            passed = min(size, self.left)
            self.at += passed
            size -= passed
            if not size:
                return
            yield None
