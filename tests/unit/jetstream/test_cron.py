"""Cron expressions: what they mean, in UTC and where clocks are set back and forth, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.jetstream.ingest.cron import Cron
from eyot_wire.jetstream.model import NS_PER_S

PRAGUE = ZoneInfo("Europe/Prague")


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * NS_PER_S


def following(expression: str, after: str, count: int = 1, zone: ZoneInfo | None = None) -> list[str]:
    """The next `count` due times as ISO text in UTC."""
    cron, at, out = Cron(expression), ns(after), []
    for _ in range(count):
        at = cron.next(at, zone or UTC)
        out.append(datetime.fromtimestamp(at // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    return out


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * * *", "2026-01-01T00:00:00Z", ["2026-01-01T00:00:01", "2026-01-01T00:00:02"]),
        ("*/20 59 23 31 12 *", "2026-12-31T23:59:15Z", ["2026-12-31T23:59:20", "2026-12-31T23:59:40", "2027-12-31T23:59:00"]),
        ("0 30 4 * * mon-fri", "2026-01-02T05:00:00Z", ["2026-01-05T04:30:00"]),
        ("0 0 0 29 feb *", "2026-01-01T00:00:00Z", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("0 0 12 13 * FRI", "2026-02-01T00:00:00Z", ["2026-02-06T12:00:00", "2026-02-13T12:00:00"]),
        ("0 0 12 13 * ?", "2026-02-01T00:00:00Z", ["2026-02-13T12:00:00", "2026-03-13T12:00:00"]),
        ("0 0 6,18 1-7/3 * *", "2026-02-01T07:00:00Z", ["2026-02-01T18:00:00", "2026-02-04T06:00:00"]),
        ("0 5/25 0 * * *", "2026-02-01T00:00:00Z", ["2026-02-01T00:05:00", "2026-02-01T00:30:00", "2026-02-01T00:55:00"]),
        ("@hourly", "2026-02-01T07:00:00Z", ["2026-02-01T08:00:00"]),
        ("@daily", "2026-02-01T07:00:00Z", ["2026-02-02T00:00:00"]),
        ("@midnight", "2026-02-01T07:00:00Z", ["2026-02-02T00:00:00"]),
        ("@weekly", "2026-02-01T07:00:00Z", ["2026-02-08T00:00:00"]),
        ("@monthly", "2026-02-01T07:00:00Z", ["2026-03-01T00:00:00"]),
        ("@yearly", "2026-02-01T07:00:00Z", ["2027-01-01T00:00:00"]),
        ("@annually", "2026-02-01T07:00:00Z", ["2027-01-01T00:00:00"]),
    ],
)  # fmt: skip
def test_what_expressions_mean(expression: str, after: str, expected: list[str]) -> None:
    assert following(expression, after, len(expected)) == expected


def test_where_the_clocks_go_forward_the_missing_time_does_not_come() -> None:
    """2026-03-29 02:00 is 03:00 in Prague."""
    assert following("0 30 2 * * *", "2026-03-28T12:00:00Z", zone=PRAGUE) == ["2026-03-30T00:30:00"]
    assert following("0 30 3 * * *", "2026-03-28T12:00:00Z", zone=PRAGUE) == ["2026-03-29T01:30:00"]


def test_where_the_clocks_go_back_a_time_comes_twice() -> None:
    """2026-10-25 03:00 is 02:00 again in Prague. nats-server's schedules are due at both."""
    assert following("0 30 2 * * *", "2026-10-24T12:00:00Z", 3, PRAGUE) == [
        "2026-10-25T00:30:00",
        "2026-10-25T01:30:00",
        "2026-10-26T01:30:00",
    ]
    assert following("0 0,30 * * * *", "2026-10-25T00:00:00Z", 4, PRAGUE) == [
        "2026-10-25T00:30:00",
        "2026-10-25T01:00:00",
        "2026-10-25T01:30:00",
        "2026-10-25T02:00:00",
    ]


def test_every_second_goes_on_where_the_clocks_go_back() -> None:
    at = ns("2026-10-25T00:59:58Z")
    for _ in range(5):
        following_ns = Cron("* * * * * *").next(at, PRAGUE)
        assert following_ns == at + 1_000_000_000
        at = following_ns


def test_a_step_restricts_a_day() -> None:
    """2026-03-01 is a Sunday: the days 1, 11, 21, 31, and Mondays."""
    assert following("0 0 0 */10 * 1", "2026-03-01T12:00:00Z", 4) == [
        "2026-03-02T00:00:00",
        "2026-03-09T00:00:00",
        "2026-03-11T00:00:00",
        "2026-03-16T00:00:00",
    ]


def test_a_day_that_never_comes() -> None:
    assert Cron("0 0 0 31 2 *").next(ns("2026-01-01T00:00:00Z")) == 0


@pytest.mark.parametrize(
    "expression",
    [
        "", "@reboot", "@every 1s", "0 5 * * *", "0 0 5 * * * 2027", "60 * * * * *", "* * 24 * * *", "* * * 0 * *", "* * * 32 * *",
        "* * * * 13 *", "* * * * * 7", "* * * * foo *", "*/0 * * * * *", "5-1 * * * * *", "-1 * * * * *", "1,,2 * * * * *",
        "a * * * * *", "1.5 * * * * *",
    ],
)  # fmt: skip
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(ValueError):
        Cron(expression)


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5-50/9", "59"]),
    st.sampled_from(["*", "0", "*/13", "30", "1,2,58"]),
    st.sampled_from(["*", "0", "23", "2-5"]),
    st.just("*"),
    st.just("*"),
    st.sampled_from(["*", "MON", "0", "1-5"]),
)


@given(FIELDS, st.integers(0, 40 * 24 * 3600))
def test_the_next_time_is_the_first_that_fits(fields: tuple[str, ...], offset: int) -> None:
    """Held against looking at every second, for as long as that is bearable."""
    cron = Cron(" ".join(fields))
    start = ns("2026-02-01T00:00:00Z") + offset * NS_PER_S
    due = cron.next(start)
    assert due > start
    assert cron.next(due - 1) == due
    every = Cron("* * * * * *")
    at = start
    for _ in range(200):
        at = every.next(at)
        if at == due:
            break
        assert cron.next(at - NS_PER_S // 2) != at, datetime.fromtimestamp(at // NS_PER_S, UTC)
    assert datetime.fromtimestamp(due // NS_PER_S, UTC) - datetime.fromtimestamp(start // NS_PER_S, UTC) <= timedelta(
        days=8
    )
