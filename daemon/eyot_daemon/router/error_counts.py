"""How often each `-ERR` was sent to clients since the start.

The text of an error may quote a subject that the client chose. It is counted without it, so the number of different
texts is bounded by the code that sends them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

#: More than the daemon has texts; further ones are counted together.
_TEXTS_MAX: Final = 64
_OTHER: Final = "other"


class ErrorCounts:
    """`counts`: the text up to what it quotes -> how often it was sent."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def sent(self, text: str, times: int = 1) -> None:
        kind = text.partition('"')[0].removesuffix(" ")
        self.counts[kind if kind in self.counts or len(self.counts) < _TEXTS_MAX else _OTHER] += times
