"""Stored times of messages, requested from the origin along with a consumer: an extension of Eyot in the request's metadata.

The request names sequences (`"eyot.stored": "50 37"`). The answer gives each message's stored time in ns since 1970, 0
without a message (`"50:1767225600000000000 37:0"`). A server without the extension returns the request's text
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

KEY = "eyot.stored"
#: More sequences are not answered.
ASKED_MAX = 16


def question(seqs: Iterable[int]) -> str:
    """Return the text that requests these sequences; "" if there are none."""
    return " ".join(str(seq) for seq in list(dict.fromkeys(seqs))[:ASKED_MAX])


def answer(asked: str, time_of: Callable[[int], int]) -> str:
    """Return the origin's answer. `time_of(seq)`: stored time, ns since 1970; 0: no such message."""
    seqs = [
        int(each) for each in asked.split(" ")[:ASKED_MAX] if each.isdecimal() and each.isascii() and len(each) < 20
    ]
    return " ".join(f"{seq}:{time_of(seq)}" for seq in seqs)


def read(text: str) -> dict[int, int] | None:
    """Return times by sequence; None for other text."""
    pairs = [each.partition(":") for each in text.split(" ")]
    if not all(seq.isdecimal() and mark and time.isdecimal() for seq, mark, time in pairs):
        return None
    return {int(seq): int(time) for seq, _, time in pairs}
