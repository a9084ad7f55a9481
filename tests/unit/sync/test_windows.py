"""Windows of the day, in local time, across midnight and clock changes."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_sync.policy.windows import EVERY_DAY, Timetable, Window, opening, parse_window

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("22:00-06:00", Window(EVERY_DAY, 22 * 60, 6 * 60)),
        ("mon-fri 8:30-17:00", Window(frozenset(range(5)), 510, 1020)),
        ("sat,sun", Window(frozenset({5, 6}), 0, 1440)),
        ("fri-mon 00:00-24:00", Window(frozenset({4, 5, 6, 0}), 0, 1440)),
        ("daily 1:00-2:00", Window(EVERY_DAY, 60, 120)),
        ("SUN 01:00-02:00", Window(frozenset({6}), 60, 120)),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, window: Window) -> None:
    assert parse_window(text) == window
    assert parse_window(str(window) if window.days != EVERY_DAY else f"daily {window}") == window


@pytest.mark.parametrize(
    "text",
    ["", "25:00-26:00", "22:00", "22:00-22:00", "24:00-01:00", "mon mon", "8-9", "xyz 1:00-2:00", "1:60-2:00",
     "mon 1:00-2:00 tue", "mon-", "-1:00-2:00", "1:00-2:00 mon"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected days|no day|no time|no span"):
        parse_window(text)


def test_a_night_belongs_to_the_day_it_begins_on() -> None:
    windows = [parse_window("fri 22:00-06:00")]
    friday, saturday = "2026-11-20T", "2026-11-21T"
    assert not opening(windows, at(friday + "21:59:59"), BERLIN).is_open
    assert opening(windows, at(friday + "21:59:59"), BERLIN).until_s == at(friday + "22:00")
    assert opening(windows, at(friday + "22:00"), BERLIN).is_open
    assert opening(windows, at(saturday + "05:59:59"), BERLIN).until_s == at(saturday + "06:00")
    closed = opening(windows, at(saturday + "06:00"), BERLIN)
    assert (closed.is_open, closed.until_s) == (False, at("2026-11-27T22:00"))


def test_windows_that_touch_are_one_and_those_that_never_end_never_end() -> None:
    windows = [parse_window("mon-fri 18:00-24:00"), parse_window("tue-sat 00:00-07:00")]
    assert opening(windows, at("2026-11-16T20:00"), BERLIN).until_s == at("2026-11-17T07:00")
    assert math.isinf(opening([parse_window("daily")], at("2026-11-16T20:00"), BERLIN).until_s)
    assert opening([], 0.0).is_open


def test_nights_on_which_the_clocks_change() -> None:
    windows = [parse_window("01:00-04:00")]
    longer = opening(windows, at("2026-10-25T01:30"), BERLIN)
    assert longer.until_s - at("2026-10-25T01:00") == 4 * 3600
    shorter = opening(windows, at("2026-03-29T01:30"), BERLIN)
    assert shorter.until_s - at("2026-03-29T01:00") == 2 * 3600
    missing = opening([parse_window("02:00-02:30")], at("2026-03-29T01:00"), BERLIN)
    assert missing.until_s > at("2026-03-29T01:00")


@given(
    days=st.sets(st.integers(0, 6), min_size=1),
    start=st.integers(0, 1439),
    end=st.integers(0, 1440),
    minutes=st.integers(0, 60 * 24 * 30),
)
def test_the_answer_is_the_clocks_and_holds_until_it_says(days: set[int], start: int, end: int, minutes: int) -> None:
    window = Window(frozenset(days), start, end if end != start else (end + 1) % 1440)
    now = datetime(2026, 11, 1, tzinfo=BERLIN) + timedelta(minutes=minutes)

    def expected(when: datetime) -> bool:
        minute, day = when.hour * 60 + when.minute, when.weekday()
        if window.end > window.start:
            return day in days and window.start <= minute < window.end
        return (day in days and minute >= window.start) or ((day - 1) % 7 in days and minute < window.end)

    found = opening([window], now.timestamp(), BERLIN)
    assert found.is_open == expected(now)
    if not math.isinf(found.until_s):
        change = datetime.fromtimestamp(found.until_s, BERLIN)
        assert change > now
        assert expected(change) != expected(now)
        assert expected(change - timedelta(minutes=1)) == expected(now)


@given(steps=st.lists(st.integers(-(86_400 * 3), 86_400 * 3), max_size=30))
def test_what_is_remembered_is_what_would_be_found(steps: list[int]) -> None:
    windows = (parse_window("mon-thu 21:00-03:00"), parse_window("sat 12:00-13:00"))
    table = Timetable(windows, BERLIN)
    now = at("2026-11-21T12:30")
    for step in steps:
        now += step
        assert table.at(now).is_open == opening(windows, now, BERLIN).is_open
