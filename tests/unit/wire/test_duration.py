"""Go durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.go.duration import format_duration, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("10s", 10_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("-2ms", -2_000_000),
        ("+2us", 2_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("1ns", 1),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_parse(text: str, expected: int) -> None:
    assert parse_duration_ns(text) == expected


@pytest.mark.parametrize("bad", ["", "-", "10", "s", "1x", "1 s", "1s ", ".s", "1h-2m", "9999999h", "١s"])
def test_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration_ns(bad)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (250_000_000, "250ms"),
        (1_000_000_000, "1s"),
        (90_000_000_000, "1m30s"),
        (5_400_000_000_000, "1h30m0s"),
        (-1_500_000_000, "-1.5s"),
        (3_600_000_000_001, "1h0m0.000000001s"),
    ],
)
def test_format(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_round_trip(duration_ns: int) -> None:
    assert parse_duration_ns(format_duration(duration_ns)) == duration_ns
