"""The mirrors and sources that a change of interest concerns."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eyot_daemon.jetstream.sourcing.source_task import SourceTask
from eyot_daemon.jetstream.sourcing.sourcing import SourcesByOrigin
from eyot_daemon.router.account import Account
from eyot_wire.mapping import MappingTable


class Home:
    """An account, as far as it is asked."""

    def __init__(self) -> None:
        self.mappings = MappingTable()


class Task:
    def __init__(self, home: Home, api: bytes) -> None:
        self._home = home
        self._api = api

    def api_subject(self) -> bytes:
        return self._home.mappings.apply(self._api) or self._api


def copies(home: Home, *subjects: bytes) -> tuple[SourcesByOrigin, list[Any]]:
    table = SourcesByOrigin(cast(Account, home))
    tasks = [Task(home, subject) for subject in subjects]
    for task in tasks:
        table.add(cast(SourceTask, task))
    return table, tasks


EAST, WEST, FOREIGN = (
    b"$JS.east.API.CONSUMER.CREATE.S",
    b"$JS.west.API.CONSUMER.CREATE.S",
    b"JS.acc@hub.API.CONSUMER.CREATE.S",
)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (EAST, [0]),
        (b"$JS.east.API.>", [0]),
        (b"$JS.west.API.CONSUMER.CREATE.*", [1]),
        (b"$JS.*.API.>", [0, 1]),
        (b">", [0, 1, 2]),
        (b"JS.acc@hub.API.CONSUMER.CREATE.*", [2]),
        (b"_INBOX.a", []),
        (b"$JS.east.API.STREAM.>", []),
    ],
)
def test_who_is_asked_on_what_a_pattern_matches(pattern: bytes, found: list[int]) -> None:
    table, tasks = copies(Home(), EAST, WEST, FOREIGN)
    assert [tasks.index(task) for task in table.asked_on(pattern)] == found


def test_several_copies_of_one_origin_and_what_was_taken_out() -> None:
    table, tasks = copies(Home(), EAST, EAST)
    assert list(table.asked_on(b"$JS.east.API.>")) == tasks
    table.discard(cast(SourceTask, tasks[0]))
    assert list(table.asked_on(EAST)) == tasks[1:]
    assert len(table) == 1


def test_a_changed_mapping_is_followed() -> None:
    home = Home()
    table, tasks = copies(home, b"far.API.CONSUMER.CREATE.S")
    assert list(table.asked_on(EAST)) == []
    home.mappings.add(b"far.API.>", [b"$JS.east.API.>"])
    assert list(table.asked_on(EAST)) == tasks
