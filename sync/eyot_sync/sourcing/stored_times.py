"""When messages were stored, asked of the origin along with a consumer: Eyot's own addition to the metadata of the request.

The request names sequences (`"eyot.stored": "50 37"`), the answer says of each when that message was stored, in ns since 1970, and 0
where there is none (`"50:1767225600000000000 37:0"`). A server that does not know of it gives the request's text back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

KEY = "eyot.stored"
#: More sequences are not answered.
ASKED_MAX = 16


def question(seqs: Iterable[int]) -> str:
    """The text that asks for these sequences; "" if there are none."""
    return " ".join(str(seq) for seq in list(dict.fromkeys(seqs))[:ASKED_MAX])


def answer(asked: str, time_of: Callable[[int], int]) -> str:
    """The origin's answer. `time_of(seq)`: when it was stored, ns since 1970; 0: there is no such message."""
    seqs = [
        int(each) for each in asked.split(" ")[:ASKED_MAX] if each.isdecimal() and each.isascii() and len(each) < 20
    ]
    return " ".join(f"{seq}:{time_of(seq)}" for seq in seqs)


def read(text: str) -> dict[int, int] | None:
    """Times by sequence; None if that is no answer."""
    pairs = [each.partition(":") for each in text.split(" ")]
    if not all(seq.isdecimal() and mark and time.isdecimal() for seq, mark, time in pairs):
        return None
    return {int(seq): int(time) for seq, _, time in pairs}
