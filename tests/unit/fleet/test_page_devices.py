"""The fleet's page: pages of devices, one device, and the events that viewers get."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from eyot_fleet.device_record import Alert, DeviceRecord
from eyot_fleet.web import feeds
from eyot_fleet.web.backend import Freshness
from support.devices.fleet_browser import Browser
from support.devices.fleet_devices import MARKUP, fleet
from support.devices.fleet_page import replaced


@pytest.fixture
async def browser() -> Browser:
    browser = Browser()
    put(browser, 300)
    await browser.login("viewer")
    return browser


def put(browser: Browser, count: int) -> None:
    now = browser.backend.now()
    for record in fleet(count, now):
        browser.backend.index.put(record, now)


async def test_a_page_of_the_list_and_its_counts(browser: Browser) -> None:
    status, told = await browser.get("/api/devices?size=25&sort=name&page=2")
    assert status == 200
    assert (len(told["rows"]), told["total"], told["fleet"]) == (25, 300, 300)
    assert sum(told["states"].values()) == 300
    names = [row["name"] for row in told["rows"]]
    assert names == sorted(names)
    assert told["hub"]["connected"] is True
    _, found = await browser.get("/api/devices?text=pump%20site:north".replace("%20", " "))
    assert 0 < found["total"] < 300
    assert all("pump" in row["name"] and "site:north" in row["labels"] for row in found["rows"])


async def test_the_number_of_the_page_may_lie_behind_the_last(browser: Browser) -> None:
    assert (await browser.get("/api/devices?page=999999999"))[1]["rows"] == []


@pytest.mark.parametrize(
    "query",
    ["size=0", "size=201", "size=x", "page=-1", "page=9999999999", "sort=secrets", "states=fine", "more=1", "text=" + "x" * 201,
     "labels=" + "\n".join(f"l{n}" for n in range(21)), "size=²"],
)  # fmt: skip
async def test_a_question_that_makes_no_sense_is_refused(browser: Browser, query: str) -> None:
    status, told = await browser.get(f"/api/devices?{query}")
    assert status == 400
    assert told["error"]


async def test_a_row_is_small_whatever_a_device_says(browser: Browser) -> None:
    alerts = tuple(Alert(kind=f"k{n}", severity="info", text="x", since=0.0) for n in range(50))
    worst = Alert(kind="w", severity="critical", text=MARKUP[0], since=0.0)
    record = DeviceRecord(name="a", labels=tuple(f"l{n:02}" for n in range(40)), alerts=(*alerts, worst), heard_at=1.0)
    browser.backend.index.put(record, browser.backend.now())
    _, told = await browser.get("/api/devices?text=l39")
    (row,) = told["rows"]
    assert (len(row["labels"]), row["more_labels"], len(row["alerts"]), row["more_alerts"]) == (6, 34, 3, 48)
    assert row["alerts"][0]["text"] == MARKUP[0]
    assert len(json.dumps(row)) < 1000


async def test_equal_questions_share_an_answer_for_a_second(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    query = browser.backend.index.query
    monkeypatch.setattr(browser.backend.index, "query", lambda each: asked.append(each) or query(each))
    for _ in range(5):
        await browser.get("/api/devices?size=10")
        browser.backend.index.put(DeviceRecord(name=f"new-{len(asked)}", heard_at=1.0), browser.backend.now())
    assert len(asked) == 1
    browser.now_s += 1
    assert (await browser.get("/api/devices?size=10"))[1]["fleet"] == 301
    assert len(asked) == 2
    for number in range(200):
        await browser.get(f"/api/devices?size=10&page={number}")
    assert len(browser.site._devices._found) <= 64


async def test_one_device_with_its_day(browser: Browser) -> None:
    status, told = await browser.get("/api/devices/pump-00000")
    assert (status, told["device"]["name"], len(told["day"]["points"])) == (200, "pump-00000", 144)
    assert any(point["heard"] and not point["linked"] for point in told["day"]["points"])
    for name in ("nobody", "a/b", "../session", ""):
        assert (await browser.get(f"/api/devices/{name}"))[0] == 404


async def test_how_old_the_figures_are_is_told(browser: Browser) -> None:
    browser.backend.hub = Freshness(connected=False, since=5.0, error="no route to host")
    for path in ("/api/devices", "/api/devices/pump-00000"):
        assert (await browser.get(path))[1]["hub"] == {"connected": False, "since": 5.0, "error": "no route to host"}


# -- events --------------------------------------------------------------------------------------------------------


class Viewer:
    """One stream of events."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self.id = ""

    async def next(self) -> tuple[str, Any]:
        name, _, data = (await anext(self._parts)).decode().removesuffix("\n\n").partition("\ndata: ")
        assert "\n" not in data
        return name.removeprefix("event: "), json.loads(data)


@asynccontextmanager
async def viewing(browser: Browser) -> AsyncIterator[Viewer]:
    assert (await browser.ask("GET", "/api/events"))[0] == 200
    assert browser.answer.content_type == "text/event-stream"
    assert browser.answer.stream is not None
    async with browser.answer.stream() as parts:
        viewer = Viewer(parts)
        name, told = await viewer.next()
        assert name == "begin"
        viewer.id = told["feed"]
        yield viewer


def change(browser: Browser, name: str, **members: Any) -> None:
    browser.backend.index.put(replaced(browser.backend.index.get(name), **members), browser.backend.now())


async def test_a_viewer_hears_of_what_it_sees_once_a_second(
    browser: Browser, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery, viewing(browser) as viewer:
        nursery.start_soon(browser.site.feeds.run)
        await trio.testing.wait_all_tasks_blocked()
        _, first = await viewer.next()
        assert first["totals"]["fleet"] == 300
        _, told = await browser.get(f"/api/devices?sort=name&size=5&feed={viewer.id}")
        seen = told["rows"][0]["name"]
        for messages in range(1000):
            change(browser, seen, messages=messages)
        change(browser, "pump-00296", backlog=7)
        browser.backend.index.remove(told["rows"][1]["name"])
        name, event = await viewer.next()
        assert name == "change"
        assert [row["name"] for row in event["rows"]] == [seen]
        assert event["gone"] == [told["rows"][1]["name"]]
        assert event["totals"]["fleet"] == 299
        began = trio.current_time()
        for backlog in range(1_000_001, 1_000_006):
            change(browser, seen, backlog=backlog)
            _, event = await viewer.next()
            assert event["rows"][0]["backlog"] == backlog
        assert trio.current_time() - began >= 4 * feeds.TICK_S
        nursery.cancel_scope.cancel()


async def test_a_viewer_hears_also_when_nothing_changes(
    browser: Browser, autojump_clock: trio.testing.MockClock
) -> None:
    async with viewing(browser) as viewer:
        await viewer.next()
        browser.backend.hub = Freshness(connected=False, since=5.0)
        began = trio.current_time()
        _, event = await viewer.next()
        assert event["hub"]["connected"] is False
        assert trio.current_time() - began <= feeds.QUIET_S + feeds.TICK_S


async def test_a_storm_becomes_one_reload(browser: Browser, autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery, viewing(browser) as viewer:
        nursery.start_soon(browser.site.feeds.run)
        await viewer.next()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3000):
            browser.backend.index.put(DeviceRecord(name=f"n{number}", heard_at=1.0), browser.backend.now())
        _, event = await viewer.next()
        assert event["reload"] is True
        assert event["totals"]["fleet"] == 3300
        nursery.cancel_scope.cancel()


async def test_a_session_that_ends_in_the_middle_ends_its_events(
    browser: Browser, autojump_clock: trio.testing.MockClock
) -> None:
    async with viewing(browser) as viewer:
        await viewer.next()
        await browser.post("/api/logout", {})
        assert await viewer.next() == ("ended", {})
        with pytest.raises(StopAsyncIteration):
            await viewer.next()
    assert len(browser.site.feeds) == 0


async def test_one_session_cannot_say_what_the_viewer_of_another_sees(browser: Browser) -> None:
    async with viewing(browser) as viewer:
        cookies = dict(browser.cookies)
        browser.cookies.clear()
        await browser.login("operator")
        await browser.get(f"/api/devices?feed={viewer.id}")
        assert browser.site.feeds._feeds[viewer.id].names == frozenset()
        browser.cookies = cookies
        await browser.get(f"/api/devices?feed={viewer.id}")
        assert len(browser.site.feeds._feeds[viewer.id].names) == 50


async def test_viewers_are_bounded(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    async with viewing(browser), viewing(browser):
        monkeypatch.setattr(feeds, "SESSION_FEEDS_MAX", 2)
        assert (await browser.get("/api/events"))[0] == 503
        assert browser.header("Retry-After") == ["30"]
        browser.cookies.clear()
        await browser.login("operator")
        monkeypatch.setattr(feeds, "FEEDS_MAX", 2)
        assert (await browser.get("/api/events"))[0] == 503
        assert browser.site.feeds.refused == 2
        monkeypatch.setattr(feeds, "FEEDS_MAX", 3)
        async with viewing(browser):
            assert len(browser.site.feeds) == 3
    assert len(browser.site.feeds) == 0


async def test_a_viewer_that_reads_slowly_costs_no_memory(browser: Browser) -> None:
    """What waits for it is a set of names that it sees, however often they change."""
    async with viewing(browser) as viewer:
        await browser.get(f"/api/devices?size=200&feed={viewer.id}")
        feed, names = browser.site.feeds._feeds[viewer.id], frozenset(f"other-{n}" for n in range(2000))
        feed.note(names | feed.names, reload=False)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(2000):
            feed.note(names | feed.names, reload=False)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert after - before < 50_000
        assert len(feed._changed) == 200
