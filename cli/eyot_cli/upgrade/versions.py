"""Versions of Debian packages, in the order of Debian Policy 5.6.12 (`dpkg --compare-versions`)."""

from __future__ import annotations

import re
from itertools import zip_longest

#: A version: epoch, upstream version, revision. ASCII only: `\d` would take other digits, too.
VERSION = r"\A(?:[0-9]{1,9}:)?[0-9][A-Za-z0-9.+~:-]{0,99}\Z"
_PART = re.compile(r"([^0-9]*)([0-9]*)")
#: The end of a version sorts after `~` and before everything else.
_END = 0


def compare(first: str, second: str) -> int:
    """Return -1, 0 or 1: whether `first` is older than `second`, as old, or newer. Both match `VERSION`."""
    for one, other in zip(_split(first), _split(second), strict=True):
        for left, right in zip_longest(_parts(one), _parts(other), fillvalue=((_END,), 0)):
            if left != right:
                return -1 if left < right else 1
    return 0


def _split(version: str) -> tuple[str, str, str]:
    """Return epoch, upstream version and revision; a part that is missing is empty, which counts as 0."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "", version
    upstream, dash, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, rest, "")


def _parts(text: str) -> list[tuple[tuple[int, ...], int]]:
    """Return pairs of text and number, as values that sort."""
    return [((*map(_order, letters), _END), int(digits or 0)) for letters, digits in _PART.findall(text)]


def _order(char: str) -> int:
    """Return a character's rank: `~` before the end, letters before all others."""
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
