"""Unsigned integers in decimal text from untrusted peers."""

from typing import AnyStr

UINT64_MAX = (1 << 64) - 1
_DIGITS_MAX = 20


def is_digits(text: AnyStr) -> bool:
    """Return whether `text` is one or more of the digits 0 to 9, however many.

    `str.isdigit` alone also accepts digits of other alphabets, and superscripts, for which `int` raises ValueError.
    """
    return text.isdigit() and text.isascii()


def parse_uint(text: AnyStr) -> int | None:
    """Parse `text` as an unsigned integer of at most 64 bits; None for anything else.

    `int` alone would also accept signs, spaces, underscores and digits of other alphabets, and raises ValueError from
    4,301 digits on.
    """
    if len(text) > _DIGITS_MAX or not is_digits(text):
        return None
    number = int(text)
    return number if number <= UINT64_MAX else None
