"""Stored times of messages, requested from the origin along with a consumer: an extension of Eyot in the request's metadata.

The request names sequences (`"eyot.stored": "50 37"`). The answer gives each message's stored time in ns since 1970, 0
without a message (`"50:1767225600000000000 37:0"`). A server without the extension returns the request's text
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eyot_wire.digits import parse_uint

KEY = "eyot.stored"
#: More sequences are not answered.
ASKED_MAX = 16


def question(seqs: Iterable[int]) -> str:
    """Return the text that requests these sequences; "" if there are none."""
    return " ".join(str(seq) for seq in list(dict.fromkeys(seqs))[:ASKED_MAX])


def answer(asked: str, time_of: Callable[[int], int]) -> str:
    """Return the origin's answer. `time_of(seq)`: stored time, ns since 1970; 0: no such message."""
    seqs = (parse_uint(each) for each in asked.split(" ")[:ASKED_MAX])
    return " ".join(f"{seq}:{time_of(seq)}" for seq in seqs if seq is not None)


def read(text: str) -> dict[int, int] | None:
    """Return times by sequence; None for other text."""
    out: dict[int, int] = {}
    for each in text.split(" "):
        seq, _, time = each.partition(":")
        number, ns = parse_uint(seq), parse_uint(time)
        if number is None or ns is None:
            return None
        out[number] = ns
    return out
