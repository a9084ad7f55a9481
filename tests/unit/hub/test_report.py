"""The page: the verdict, the pictures' geometry, and names that try to be markup."""

from __future__ import annotations

import os
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eyot_hub.jobs.reports.report import coverage, every_day, render, table, verdict, write_page
from eyot_hub.jobs.reports.report_charts import (
    COLUMN_MAX,
    Piece,
    amount,
    columns,
    duration,
    lag_bars,
    shorten,
    strips,
    top_of,
)

HOSTILE = "<script>alert('x')</script>&"
ORIGIN = {
    "kind": "origin",
    "domain": HOSTILE,
    "stream": "S",
    "epoch": 1,
    "in_table": 90,
    "last_in_table": 95,
    "last_sequence": 100,
    "reachable": True,
    "last_stored_at": None,
}
GAP = {
    **ORIGIN,
    "first_sequence": 3,
    "last_sequence": 7,
    "count": 5,
    "status": "missing",
    "after": None,
    "before": None,
}
DEVICE = {"device": HOSTILE, "readings": 5, "delay_s_p50": 1.0, "delay_s_p95": None, "state": "silent", "statuses": 3}


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page(rows: int = 95, fresh_s: float | None = None, **more: Any) -> str:
    """The page of a hub with `rows` messages."""
    tables = [{"table": "bronze", "rows": rows, "files": 1}]
    nothing = {
        "gaps": [],
        "gap_counts": {},
        "gap_rows": 0,
        "fleet": [],
        "devices": 0,
        "silent": 0,
        "slow": [],
        "quality": [],
        "expired": {},
    }
    return render({"tables": tables, "per_day": [], "origins": [], **nothing, **more}, fresh_s)


def test_the_whole_page() -> None:
    gaps = {"gaps": [GAP], "gap_counts": {"missing": 5}, "gap_rows": 1}
    fleet = {"fleet": [DEVICE], "devices": 1, "silent": 1, "slow": [(HOSTILE, 2.0)]}
    shown = Page(page(per_day=[("2026-01-01", 95)], origins=[ORIGIN], **gaps, **fleet))
    assert not [tag for tag, _ in shown.elements if tag in ("script", "img", "link")]
    assert not [
        name for _, attrs in shown.elements for name in attrs if name in ("src", "href") or name.startswith("on")
    ]
    assert HOSTILE in shown.text
    assert f"5 missing. At {HOSTILE}/S. Missing: the origin holds them" in shown.text
    assert "1 of 1 device is silent" in shown.text
    assert any(tag == "rect" and attrs.get("class") == "missing" for tag, attrs in shown.elements)
    assert " of 1." not in shown.text
    assert "marked: missing" in shown.text


def test_a_page_that_is_made_again_is_loaded_again() -> None:
    fresh = Page(page(fresh_s=600.0))
    assert ("meta", {"http-equiv": "refresh", "content": "600"}) in fresh.elements
    assert "made again every 10 min" in fresh.text
    assert "http-equiv" not in page()
    assert ("meta", {"http-equiv": "refresh", "content": "10"}) in Page(page(fresh_s=0.1)).elements


def test_an_empty_hub() -> None:
    assert "No message has arrived yet." in Page(page(rows=0)).text


def test_more_than_a_page_shows_is_counted() -> None:
    """What is missing beyond the rows that are shown is in the verdict, and the shortened lists say so."""
    expired = [{**GAP, "status": "expired", "domain": f"d{number:04}"} for number in range(500)]
    origins = [{**ORIGIN, "domain": f"d{number:04}"} for number in range(2000, 0, -1)]
    gaps = {"gaps": expired, "gap_counts": {"expired": 2500, "missing": 7}, "gap_rows": 501}
    fleet = {"fleet": [DEVICE] * 500, "devices": 1000, "silent": 600, "slow": []}
    shown = Page(page(origins=origins, **gaps, **fleet))
    assert (
        "7 missing. Missing: the origin holds them, and later ones have arrived, or nothing has for long. 2,500 expired at"
        in shown.text
    )
    assert "600 of 1,000 devices are silent" in shown.text
    assert "The worst first; 500 of 501." in shown.text
    assert "Silent devices and those behind first; 500 of 1,000." in shown.text
    assert "Those with gaps first; 60 of 2,000." in shown.text
    assert sum(1 for tag, attrs in shown.elements if tag == "rect" and attrs.get("class") == "expired") == 60


@pytest.mark.parametrize(
    ("counts", "start"),
    [
        ({"lost": 2, "missing": 1, "unknown": 7}, "<p class='verdict bad'><b>1 missing and 2 lost.</b>"),
        ({"in_flight": 4}, "<p class='verdict warn'>Nothing is missing as far as is known; 4 in flight."),
        ({"deleted": 4}, "<p class='verdict'>Everything"),
        ({"expired": 4}, "<p class='verdict warn'>Everything that the origins hold is in the table. 4 expired"),
    ],
)
def test_verdicts(counts: dict[str, int], start: str) -> None:
    assert verdict(Counter(counts), 1, 0, 0).startswith(start)


def test_an_origin_that_did_not_answer_is_in_the_verdict() -> None:
    """Its last epoch counts: none before it can answer."""
    rows = [ORIGIN | {"epoch": 2}, ORIGIN | {"reachable": False}]
    assert "Everything that the origins hold is in the table." in Page(page(origins=rows)).text
    rows.append(ORIGIN | {"stream": "T", "reachable": False})
    shown = Page(page(origins=rows))
    assert (
        "Everything that the origins are known to hold is in the table. What 1 of 2 origins holds now is not known."
        in shown.text
    )
    assert ("p", {"class": "verdict warn"}) in shown.elements


def test_days_without_messages_are_shown() -> None:
    assert every_day([("2026-02-27", 5), ("2026-03-01", 7)]) == [
        ("2026-02-27", 5.0),
        ("2026-02-28", 0.0),
        ("2026-03-01", 7.0),
    ]
    assert len(every_day([("2025-01-01", 5), ("2026-03-01", 7)])) == 60
    assert columns([], "messages").startswith("<p")


def test_strips() -> None:
    again = {**ORIGIN, "epoch": 2, "last_sequence": None, "last_in_table": 9}
    assert coverage([ORIGIN, again], [GAP]) == [
        (f"{HOSTILE}/S (1)", 100, [Piece(3, 7, "missing")]),
        (f"{HOSTILE}/S (2)", 9, []),
    ]
    page = Page(strips([("a", 10_000_000, [Piece(10_000_000, 10_000_000, "lost")])]))
    (lost,) = [attrs for _, attrs in page.elements if attrs.get("class") == "lost"]
    (held,) = [attrs for _, attrs in page.elements if attrs.get("class") == "held"]
    assert float(lost["width"]) == 2.0
    assert float(lost["x"]) + 2.0 <= float(held["x"]) + float(held["width"])


def test_one_day_is_a_column_and_no_wall() -> None:
    page = Page(columns([("2026-01-01", 29.0)], "messages"))
    (bar,) = [attrs for _, attrs in page.elements if attrs.get("class") == "bar"]
    assert float(bar["width"]) <= COLUMN_MAX
    assert "01-01" in page.text
    assert [top_of(most) for most in (0, 1, 2, 29, 61, 100, 101, 9_999)] == [2, 2, 2, 30, 80, 100, 200, 10_000]


def test_a_column_without_anything_in_it_is_left_out() -> None:
    rows: list[dict[str, Any]] = [{"domain": "", "stream": "A"}, {"domain": None, "stream": ""}]
    assert [attrs for tag, attrs in Page(table(rows, ["domain", "stream"])).elements if tag == "th"] == [
        {"class": "text"}
    ]
    rows[0]["domain"] = "edge"
    text = Page(table(rows, ["domain", "stream"])).text
    assert text.split() == ["domainstreamedgeA––"]


def test_numbers() -> None:
    assert [duration(one) for one in (None, 0.0, 0.25, 59.0, 90.0, 5400.0, 260_000.0, 0.99964, 6.18e8)] == [
        "–",
        "0 s",
        "250 ms",
        "59 s",
        "1.5 min",
        "1.5 h",
        "3.01 d",
        "1,000 ms",
        "7,153 d",
    ]
    assert [amount(one) for one in (0, 9_999, 12_400, 1_280_000, 5e9)] == ["0", "9,999", "12.4 k", "1.28 M", "5 G"]
    widths = [
        float(attrs["width"]) for tag, attrs in Page(lag_bars([("a", 1e5), ("b", 10.0)])).elements if tag == "rect"
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[1] > widths[0] / 10


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10 k"),
        (999_499, "999 k"),
        (999_600, "1 M"),
        (1_234_567, "1.23 M"),
        (999_950_000, "1 G"),
        (999_900_000_000, "1,000 G"),
        (2.5e12, "2,500 G"),
    ],
)
def test_amounts_at_the_borders_of_their_units(count: float, text: str) -> None:
    assert amount(count) == text


def test_a_long_name_is_cut_and_kept_whole_beside_it() -> None:
    name = "a-device-in-the-north-hall-of-the-plant"
    shown = strips([(name, 10, [])])
    assert "a-device-in-t…of-the-plant" in shown
    assert f"<title>{name}</title>" in shown
    shown = page(fleet=[{**DEVICE, "device": "\u202e" + "x" * 10_000}], devices=1)
    assert "<td class=text>\\u202exxx" in shown.replace(f"<span title='\\u202e{'x' * 993}…'>", "")
    assert len(shown) < 20_000


def test_long_names_can_be_told_apart() -> None:
    assert shorten(["a", "b" * 26]) == ["a", "b" * 26]
    long = [f"plant-in-the-north-building-{number:04}/READINGS" for number in (17, 18)]
    assert shorten(long) == ["…0017/READINGS", "…0018/READINGS"]
    assert shorten(["x" * 30 + "1" + "y" * 30, "x" * 30 + "2" + "y" * 30, "x"]) == [
        "xxxxxxxxxxxxx…yyyyyyyyyyyy",
        "xxxxxxxxxxxxx…yyyyyyyyyyyy",
        "x",
    ]
    (one,) = shorten(["plant-in-the-north-building-0017/READINGS"])
    assert (len(one), one[:6], one[-9:]) == (26, "plant-", "/READINGS")


def test_rows_that_retention_removed_are_told_as_such() -> None:
    left = {"bronze": 1234, "silver/readings": 0, "quarantine": 7}
    assert "Retention removed 1,234 rows from bronze, 7 rows from quarantine." in page(expired=left)
    assert "Retention" not in page()


def test_a_page_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Whoever was allowed to read it still is, and a link to it stays one."""
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    link.symlink_to(page)
    write_page(str(link), "first")
    page.chmod(0o640)
    with page.open() as reader:
        write_page(str(link), "second")
        assert reader.read() == "first"
    assert link.is_symlink()
    assert (page.read_text(), page.stat().st_mode & 0o777) == ("second", 0o640)
    assert {each.name for each in tmp_path.iterdir()} == {"page.html", "link.html"}


def test_a_page_for_a_pipe_goes_into_it(tmp_path: Path) -> None:
    """As with `-o /dev/stdout`: what is no file is not replaced by one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_page(str(pipe), "the page")
        assert os.read(reader, 100) == b"the page"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
