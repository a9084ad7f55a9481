"""Numbers in decimal digits: which bytes are accepted as one."""

from __future__ import annotations

import pytest

from eyot_wire.digits import UINT64_MAX, is_digits, parse_uint


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), (str(UINT64_MAX), UINT64_MAX)])
def test_numbers(text: str, number: int) -> None:
    assert parse_uint(text) == number
    assert parse_uint(text.encode()) == number
    assert is_digits(text)
    assert is_digits(text.encode())


@pytest.mark.parametrize(
    "text", ["", "+1", "-1", " 1", "1_0", "0x1", "1.0", "\u0661", "\u00b2", str(UINT64_MAX + 1), "0" * 21, "9" * 5000]
)
def test_what_is_none(text: str) -> None:
    assert parse_uint(text) is None
    assert parse_uint(text.encode()) is None


@pytest.mark.parametrize("text", ["", "+1", " 1", "\u0661", "\u00b2", "1\u00b2"])
def test_what_is_no_digits(text: str) -> None:
    assert not is_digits(text)
    assert not is_digits(text.encode())
    assert is_digits("9" * 5000)
