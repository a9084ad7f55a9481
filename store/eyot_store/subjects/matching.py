"""Subjects that match any of several patterns, each once, however many patterns there are.

One pattern is searched in the table by one compiled call. Very many patterns would need very many calls; these are
combined, and the table is scanned once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from eyot_wire.pattern_set import PatternSet
from eyot_wire.subject import REST, is_literal

if TYPE_CHECKING:
    from eyot_store.native import SubjectTable

Found = tuple[bytes, int, int, int]
"""Subject, count, first and last."""

SCANNED_MAX: Final = 4096
"""Subjects that are matched in one go."""
_NOTHING: Final = (0, 0, 0)
SINGLY_MAX: Final = 16
"""Largest number of patterns that are searched one after the other: each costs about a thirtieth of a search for all."""


def matching_any(table: SubjectTable, patterns: Sequence[bytes]) -> Iterator[Found]:
    """Yield the subjects that match any of `patterns` (literals and wildcards; b"" and b">": all)."""
    return chain.from_iterable(in_pieces(table, patterns))


def in_pieces(table: SubjectTable, patterns: Sequence[bytes]) -> Iterator[list[Found]]:
    """Yield the same in slices of a few milliseconds at most; the table may change in between."""
    if len(patterns) == 1 and patterns[0] and is_literal(patterns[0]):
        known = table.get(patterns[0])
        yield [(patterns[0], *known)] if known is not None else []
        return
    if not patterns or REST in patterns or b"" in patterns:
        yield from _scans(table, b"")
        return
    literal = dict.fromkeys(pattern for pattern in patterns if is_literal(pattern))
    wild = list(dict.fromkeys(pattern for pattern in patterns if pattern not in literal))
    together = PatternSet(wild)
    for at in range(0, len(literal), SCANNED_MAX):
        piece = list(literal)[at : at + SCANNED_MAX]
        yield [
            (subject, *known)
            for subject in piece
            if (known := table.get(subject)) is not None and not together.matches(subject)
        ]
    if len(wild) > SINGLY_MAX:
        for found in _scans(table, b""):
            yield [each for each in found if together.matches(each[0])]
        return
    if len(wild) == 1:
        yield from _scans(table, wild[0])
        return
    for index, pattern in enumerate(wild):
        before = PatternSet(wild[:index])
        for found in _scans(table, pattern):
            yield [each for each in found if not before.matches(each[0])] if index else found


def _scans(table: SubjectTable, pattern: bytes) -> Iterator[list[Found]]:
    found, at = table.scan(pattern, 0, SCANNED_MAX)
    yield found
    while at:
        found, at = table.scan(pattern, at, SCANNED_MAX)
        yield found


def total_from(table: SubjectTable, patterns: tuple[bytes, ...], seq: int, most: int) -> tuple[int, list[bytes] | None]:
    """`SubjectTable.total_from`, without a look at all subjects where the patterns are literal."""
    literal = _all_literal(patterns)
    if literal is None:
        return table.total_from(patterns, seq, most)
    total = 0
    astride: list[bytes] | None = []
    for subject in literal:
        count, first, last = table.get(subject) or _NOTHING
        if seq <= 1 or first >= seq:
            total += count
        elif count and (not last or last >= seq) and astride is not None:
            astride.append(subject)
            if len(astride) > most:
                astride = None
    return total, astride


def lasts(table: SubjectTable, patterns: Sequence[bytes], above: int, upto: int) -> tuple[array[int], Iterable[bytes]]:
    """`SubjectTable.lasts`, without a look at all subjects where the patterns are literal."""
    literal = _all_literal(patterns)
    return (array("q"), literal) if literal is not None else table.lasts(tuple(patterns), above, upto)


def _all_literal(patterns: Sequence[bytes]) -> dict[bytes, None] | None:
    """Return patterns that are all literal, each once; None: some are not."""
    if all(pattern and is_literal(pattern) for pattern in patterns):
        return dict.fromkeys(patterns)
    return None
