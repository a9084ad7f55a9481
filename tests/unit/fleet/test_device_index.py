"""Questions about many devices, and who is told of changes."""

from __future__ import annotations

import random

import pytest
import trio
from msgspec.structs import replace

from eyot_fleet import change_feed
from eyot_fleet.change_feed import Changes, TooManySubscribers
from eyot_fleet.device_index import DeviceIndex
from eyot_fleet.device_query import SORTS, DeviceQuery, QueryError
from eyot_fleet.device_record import STATES, Alert, DeviceRecord

NOW = 1_800_000_000.0


def device(number: int, chance: random.Random) -> DeviceRecord:
    """A device as it may be; every figure may be unknown."""
    backlog = chance.choice([None, 0, chance.randrange(10_000)])
    alerts = tuple(
        Alert(kind=kind, severity="warning", text=f"{kind} of <b>{number}</b>", since=NOW)
        for kind in ("disk", "clock")
        if chance.random() < 0.1
    )
    return DeviceRecord(
        name=f"gateway-{number:05}",
        labels=(f"site:{chance.choice(['berlin', 'köln', 'oslo'])}", *(["canary"] if chance.random() < 0.05 else [])),
        version=chance.choice(["0.1.0", "0.2.0"]),
        heard_at=chance.choice([None, NOW - 10, NOW - 10_000]),
        synced=backlog == 0,
        backlog=backlog,
        oldest_s=float(backlog) if backlog else None,
        never_arrived=chance.choice([0, 0, 0, 5]),
        alerts=alerts,
    )


@pytest.fixture(scope="module")
def index() -> DeviceIndex:
    chance, made = random.Random(7), DeviceIndex()
    for number in range(2_000):
        made.put(device(number, chance), NOW)
    return made


def everything(index: DeviceIndex, query: DeviceQuery) -> list[DeviceRecord]:
    """All pages of a query, one after the other."""
    found: list[DeviceRecord] = []
    while page := index.query(replace(query, page=len(found) // query.size)).devices:
        found += page
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_pages_hold_every_device_once_and_in_order(index: DeviceIndex, sort: str, descending: bool) -> None:
    found = everything(index, DeviceQuery(sort=sort, descending=descending, size=500))
    assert sorted(each.name for each in found) == sorted(each.name for each in index)
    values = [SORTS[sort](each) for each in found]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=descending)  # type: ignore[type-var]
    assert values[: len(known)] == known  # what is not known comes last


def test_filters_find_what_a_plain_search_finds(index: DeviceIndex) -> None:
    chance = random.Random(11)
    for _ in range(40):
        query = DeviceQuery(
            text=chance.choice(["", "0042", "KÖLN 9", "canary", "<b>", "disk of", "no such thing"]),
            labels=chance.choice([(), ("canary",), ("site:oslo",), ("site:oslo", "canary")]),
            states=tuple(chance.sample(STATES, chance.choice([0, 1, 3]))),
            alerts=chance.choice([(), ("*",), ("disk",), ("disk", "clock")]),
            size=500,
        )
        wanted = {
            each.name
            for each in index
            if set(query.labels) <= set(each.labels)
            and (not query.states or each.state in query.states)
            and (not query.alerts or any("*" in query.alerts or a.kind in query.alerts for a in each.alerts))
            and all(
                any(
                    word in text.casefold()
                    for text in (each.name, each.version, *each.labels, *(a.text for a in each.alerts))
                )
                for word in query.text.casefold().split()
            )
        }
        page = index.query(query)
        assert {each.name for each in everything(index, query)} == wanted
        assert page.total == len(wanted) == sum(page.states.values())
        assert page.backlog == sum(index.get(name).backlog or 0 for name in wanted)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (DeviceQuery(sort="__class__"), "cannot sort by"),
        (DeviceQuery(size=0), "a page has"),
        (DeviceQuery(size=100_000), "a page has"),
        (DeviceQuery(page=-1), "counted from 0"),
        (DeviceQuery(states=("fine",)), "unknown state 'fine'"),
        (DeviceQuery(text="x" * 1000), "at most"),
    ],
)
def test_what_cannot_be_answered_is_refused(index: DeviceIndex, query: DeviceQuery, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        index.query(query)


def test_a_page_beyond_the_end_is_empty(index: DeviceIndex) -> None:
    page = index.query(DeviceQuery(page=10**9))
    assert (page.devices, page.total) == ([], 2_000)


def test_a_device_that_says_nothing_is_silent_and_never_fine() -> None:
    index = DeviceIndex()
    index.put(DeviceRecord(name="pump", heard_at=NOW, every_s=60, synced=True, linked=True), NOW)
    assert index.get("pump").state == "synced"  # type: ignore[union-attr]
    assert index.evaluate(NOW + 180) == []
    [changed] = index.evaluate(NOW + 181)
    assert changed.state == index.get("pump").state == "silent"  # type: ignore[union-attr]


def test_states_in_the_order_of_need() -> None:
    alert = Alert(kind="disk", severity="critical", text="full", since=NOW)
    heard = DeviceRecord(name="pump", heard_at=NOW, backlog=0, synced=True)
    for record, state in [
        (DeviceRecord(name="pump"), "new"),
        (replace(heard, revoked_at=NOW, store_error="EIO"), "revoked"),
        (replace(heard, linked=False, store_error="EIO"), "not linked"),
        (replace(heard, store_error="EIO", never_arrived=3), "failing"),
        (replace(heard, alerts=(alert,)), "failing"),
        (replace(heard, never_arrived=3), "incomplete"),
        (heard, "synced"),
        (replace(heard, backlog=7, synced=False), "behind"),
        (replace(heard, synced=False), "unknown"),
    ]:
        assert DeviceIndex().put(record, NOW).state == state  # type: ignore[union-attr]


def test_the_index_is_bounded_and_counts_what_it_leaves_out() -> None:
    index = DeviceIndex(devices_max=2)
    kept = [index.put(DeviceRecord(name=name), NOW) for name in ("a", "b", "c", "a")]
    assert [each is not None for each in kept] == [True, True, False, True]
    assert (len(index), index.left_out) == (2, 1)


async def test_subscribers_hear_of_each_change_once() -> None:
    index = DeviceIndex()
    with index.feed.subscribe() as changes:
        for synced in (True, False, False):
            index.put(DeviceRecord(name="pump", synced=synced), NOW)
        index.put(DeviceRecord(name="valve"), NOW)
        index.remove("valve")
        assert await anext(changes) == Changes(4, frozenset({"pump", "valve"}))
        with trio.move_on_after(0.01) as none:
            await anext(changes)
        assert none.cancelled_caught
    assert len(index.feed) == 0


async def test_a_slow_subscriber_is_told_to_reload_and_counted() -> None:
    index = DeviceIndex()
    with index.feed.subscribe() as slow, index.feed.subscribe() as quick:
        for number in range(change_feed.WAITING_MAX + 1):
            index.put(DeviceRecord(name=str(number)), NOW)
            assert (await anext(quick)).names == {str(number)}
        told = await anext(slow)
        assert (told.reload, told.names, index.feed.reloads) == (True, frozenset(), 1)
        index.put(DeviceRecord(name="one more"), NOW)
        assert (await anext(slow)).names == {"one more"}


async def test_subscribers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "SUBSCRIBERS_MAX", 1)
    feed = DeviceIndex().feed
    with feed.subscribe(), pytest.raises(TooManySubscribers), feed.subscribe():
        pass
