"""The hub's streams for devices: what is asked of the hub, and what of it is told."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from eyot_fleet.alerts import AlertLimits
from eyot_fleet.audit import Audit
from eyot_fleet.desired import SourceRule
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.errors import ApiFailure
from eyot_fleet.fleet import Fleet
from eyot_fleet.jetstream import JetStream
from eyot_fleet.sourcing import Sourcing

NOW = 1_800_000_000.0


class Hub:
    """A hub without streams that refuses changes while `refuses`, and what it was asked and told."""

    domain = "hub"

    def __init__(self) -> None:
        self.refuses = False
        self.asked: list[tuple[str, list[str]]] = []
        self.lines: list[tuple[str, str]] = []

    async def stream_names(self) -> list[str]:
        return []

    async def api(self, subject: str, config: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((subject, [each["external"]["api"] for each in config["sources"]]))
        if self.refuses:
            raise ApiFailure(10052, "no room")
        return {}

    async def note(self, event: str, by: str, target: str, **more: object) -> None:
        self.lines.append((event, target))


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet("fleet", AlertLimits())
    made.rules["ALL"] = SourceRule(stream="READINGS")
    return made


def sourcing(hub: Hub, fleet: Fleet) -> Sourcing:
    return Sourcing(cast("JetStream", hub), cast("Audit", hub), fleet)


def test_only_domains_of_devices_are_sourced(hub: Hub, fleet: Fleet) -> None:
    fleet.index.put(DeviceRecord(name="pump", domain="pump", heard_at=NOW), NOW)
    fleet.index.put(DeviceRecord(name="impostor", domain="hub", heard_at=NOW), NOW)
    fleet.index.put(DeviceRecord(name="old", domain="a.b", heard_at=NOW), NOW)
    trio.run(sourcing(hub, fleet).step)
    assert hub.asked == [("STREAM.CREATE.ALL-0", ["$JS.pump.API"])]


def test_a_change_that_the_hub_refuses_is_told_once_and_tried_again(hub: Hub, fleet: Fleet) -> None:
    tried = sourcing(hub, fleet)
    fleet.index.put(DeviceRecord(name="pump", domain="pump", heard_at=NOW), NOW)
    hub.refuses = True
    for _ in range(3):
        trio.run(tried.step)
    assert len(hub.asked) == 3
    assert hub.lines == [("stream made", "ALL-0"), ("stream refused", "ALL-0")]
    fleet.index.put(DeviceRecord(name="valve", domain="valve", heard_at=NOW), NOW)
    trio.run(tried.step)
    assert hub.lines[2:] == [("stream made", "ALL-0"), ("stream refused", "ALL-0")]  # another change
    hub.refuses = False
    trio.run(tried.step)
    assert hub.asked[-1] == ("STREAM.CREATE.ALL-0", ["$JS.pump.API", "$JS.valve.API"])
