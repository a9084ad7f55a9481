"""Work that is done in slices, one a turn: a generator that yields between two of them and returns the result."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

import trio

T = TypeVar("T")
Slices = Generator[None, None, T]

#: Rows that one slice of a page adds: 256 take 1 to 5 ms, and others wait meanwhile.
ROWS_MAX = 256


def at_once(slices: Slices[T]) -> T:
    """Do all the work in this turn; return the result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


async def over_turns(slices: Slices[T]) -> T:
    """Do one slice a turn; return the result. Sockets are read between two turns."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


def in_slices(rows: Iterable[T], most: int = ROWS_MAX) -> Iterator[T | None]:
    """Return the rows, and None after each `most` of them: there a slice ends."""
    for number, row in enumerate(rows, 1):
        yield row
        if number % most == 0:
            yield None
