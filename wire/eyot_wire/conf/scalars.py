"""Meaning of an unquoted word: boolean, integer (with size suffix), float, Zulu time, or string.

Errors do not repeat the word: it may be a password. `10s` and `127.0.0.1:4222` are strings; `2m` is the integer
2,000,000, so minutes must be quoted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from eyot_wire.digits import is_digits

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)

_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INTEGER = re.compile(r"(-?[0-9]+)([kmgtpe](?:b|i|ib)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_BROKEN_NUMBER = re.compile(r"-(?![0-9]).*|\.[0-9].*|-?[0-9]+\.|-?[0-9]+\.[0-9]+[kmgtpe](?:b|i|ib)?", re.IGNORECASE)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
# More digits are refused, leading zeros or not: `int` itself refuses more than 4,300.
_DIGITS_MAX = 100
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def suffix_factor(suffix: str) -> int:
    """Return a size suffix's factor: `k` = 1000, `kb`, `ki` and `kib` = 1024; m, g, t, p, e likewise; "" = 1.

    Any case.
    """
    if not suffix:
        return 1
    base = 1000 if len(suffix) == 1 else 1024
    return int(base ** _POWERS[suffix[0].lower()])


def parse_scalar(word: str) -> bool | int | float | str | datetime:
    """Convert `word` to its value. Raises ValueError for a malformed number or one beyond 64 bits."""
    first = word[:1]
    if is_digits(first) or first in "-.":
        return _parse_number(word)
    return _BOOLS.get(word.lower(), word)


def _parse_number(word: str) -> int | float | str | datetime:
    if matched := _INTEGER.fullmatch(word):
        digits = matched[1]
        number = int(digits[:_DIGITS_MAX]) * suffix_factor(matched[2] or "")
        if len(digits) > _DIGITS_MAX or not INT_MIN <= number <= INT_MAX:
            raise ValueError("this integer is out of the range of 64 bits")
        return number
    if _FLOAT.fullmatch(word):
        return float(word)
    if _TIME.fullmatch(word):
        try:
            return datetime.strptime(word, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise ValueError("expected a Zulu time like 2006-01-02T15:04:05Z") from None
    if _BROKEN_NUMBER.fullmatch(word):
        raise ValueError("malformed number; quote it if it is meant as text")
    return word
