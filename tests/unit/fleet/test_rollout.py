"""Rollouts: rings open one after the other, halt by what devices say, and go on or back; what each device may install."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eyot_fleet.alerts import AlertLimits
from eyot_fleet.desired import DesiredError, DeviceSettings, Group
from eyot_fleet.device_record import Alert, DeviceRecord, UpgradeRecord
from eyot_fleet.fleet import Fleet
from eyot_fleet.rollout import DONE, HALTED, NOT_COUNTED, ROLLED_BACK, RUNNING, Ring, Rollout, next_step, progress_of
from eyot_wire.desired import ConfigReport, UpgradeReport

NOW = 1_800_000_000.0
GROUPS = {"canary": Group(labels=("canary",)), "field": Group(), "empty": Group(labels=("none",))}
HOUR = 3600.0
PLAN = Rollout(version="2.0", rings=(Ring(group="canary", wait_s=HOUR), Ring(group="field", wait_s=0.0)))


def device(number: int, version: str = "1.0", **members: Any) -> DeviceRecord:
    labels = ("canary",) if number < 10 else ()
    return DeviceRecord(name=f"d{number}", labels=labels, version=version, state="synced", **members)


class Played:
    """A rollout in a fleet of 10 canaries and 30 others, at a time of its own."""

    def __init__(self, rollout: Rollout = PLAN) -> None:
        self.rollout = rollout
        self.now = NOW
        self.devices = {number: device(number, heard_at=NOW) for number in range(40)}

    def put(self, numbers: range | list[int], **members: Any) -> None:
        for number in numbers:
            self.devices[number] = msgspec.structs.replace(self.devices[number], **members)

    def hear(self, later_s: float = 60.0, but: tuple[int, ...] = ()) -> None:
        self.now += later_s
        self.put([number for number in self.devices if number not in but], heard_at=self.now)

    def step(self) -> Rollout:
        progress = progress_of(self.rollout, GROUPS, self.devices.values(), self.now)
        for _ in range(5):
            found = next_step(self.rollout, progress, self.now)
            if found is None:
                break
            found.check()
            self.rollout = found
            progress = progress_of(self.rollout, GROUPS, self.devices.values(), self.now)
        return self.rollout


def test_rings_open_after_their_wait_and_late_devices_are_served_afterwards() -> None:
    played = Played()
    assert len(played.step().opened) == 1
    played.hear()
    played.put(range(8), version="2.0")
    assert played.step().opened[0].reached_at is None  # 8 of 10 are not enough
    played.put([8], version="2.0")
    assert played.step().opened[0].reached_at == played.now
    played.hear(HOUR - 1)
    assert len(played.step().opened) == 1
    played.hear(1)
    assert len(played.step().opened) == 2
    assert played.step().state == RUNNING
    played.hear()
    played.put(range(10, 40), version="2.0")
    assert played.step().state == DONE
    assert played.rollout.release_for(0) == "2.0"


def test_devices_that_say_nothing_do_not_hold_a_ring_and_an_empty_ring_is_passed() -> None:
    played = Played(Rollout(version="2.0", rings=(Ring(group="empty", wait_s=0), *PLAN.rings)))
    assert [each.reached_at is None for each in played.step().opened] == [False, True]
    played.hear(but=(0, 1, 2))
    played.put(range(3, 10), version="2.0")
    assert played.step().opened[1].reached_at == played.now


WORSE: dict[str, dict[str, Any]] = {
    "it went back": {"upgrade": UpgradeRecord(to="2.0+deb12", outcome="returned", reason="no link", heard_at=NOW + 60)},
    "its store": {
        "version": "2.0",
        "alerts": (Alert(kind="store", severity="critical", text="EIO", since=NOW + 30),),
    },
    "its backlog": {
        "version": "2.0",
        "alerts": (Alert(kind="behind", severity="warning", text="the hub lacks", since=NOW + 30),),
    },
}


@pytest.mark.parametrize("what", WORSE)
def test_a_device_that_is_worse_halts_its_ring(what: str) -> None:
    played = Played()
    played.step()
    played.hear()
    played.put([3], **WORSE[what])
    found = played.step()
    assert (found.state, found.release_for(0)) == (HALTED, "")
    assert "ring canary: worse: 1 of 10 devices (d3: " in found.reason


def test_what_was_so_before_the_ring_opened_does_not_halt_it() -> None:
    played = Played()
    old = Alert(kind="store", severity="critical", text="EIO", since=NOW - 5)
    played.put([3], version="2.0", alerts=(old,))
    played.put([4], upgrade=UpgradeRecord(to="2.0", outcome="returned", heard_at=NOW - 5))
    played.put([5], upgrade=UpgradeRecord(to="1.9", outcome="returned", heard_at=NOW + 60))
    played.step()
    played.hear()
    assert played.step().state == RUNNING


def test_links_halt_a_ring_only_beyond_those_that_were_down_before() -> None:
    played = Played()
    played.put([0, 1], state="not linked", linked_since=NOW - 90.0)
    assert played.step().opened[0].unlinked_before == 20.0
    played.hear()
    played.put([0, 1], linked_since=NOW + 30.0)  # they came, and went again
    played.hear(PLAN.grace_s + 60.0)
    assert played.step().state == RUNNING
    played.put([2], state="not linked", linked_since=NOW + 40.0)
    played.hear(1)
    found = played.step()
    assert found.state == HALTED
    assert "3 of 10" not in found.reason
    assert "d2: no link" in found.reason


def test_a_device_that_falls_silent_in_the_middle_is_worse_after_the_grace() -> None:
    played = Played()
    played.step()
    played.hear()
    played.put([7], state="silent")
    played.hear(PLAN.grace_s - 1, but=(7,))
    assert played.step().state == RUNNING
    played.hear(2, but=(7,))
    assert played.step().state == HALTED


def test_who_resumes_accepts_what_is_worse_and_further_ones_halt_again() -> None:
    played = Played()
    played.step()
    played.hear()
    played.put([3], **WORSE["it went back"])
    assert played.step().state == HALTED
    opened = tuple(msgspec.structs.replace(each, accepted=NOT_COUNTED) for each in played.rollout.opened)
    played.rollout = msgspec.structs.replace(played.rollout, state=RUNNING, opened=opened, reason="")
    found = played.step()
    assert (found.state, found.opened[0].accepted) == (RUNNING, 1)
    played.put([4], **WORSE["its store"])
    assert played.step().state == HALTED


def test_what_a_device_may_install() -> None:
    fleet = Fleet("fleet", AlertLimits())
    fleet.groups.update(GROUPS)
    for number in (1, 20):
        fleet.load(device(number), NOW)
    fleet.set_desired("device.d1", msgspec.json.encode(DeviceSettings(labels=("canary",))), NOW)

    def installs(rollout: Rollout, name: str = "now") -> tuple[str, str]:
        assert fleet.set_desired(f"rollout.{name}", msgspec.json.encode(rollout), NOW) is None
        return fleet.document("d1").release, fleet.document("d20").release

    played = Played()
    assert installs(PLAN) == ("", "")
    assert installs(played.step()) == ("2.0", "")
    assert installs(msgspec.structs.replace(played.rollout, state=HALTED)) == ("", "")
    assert installs(msgspec.structs.replace(played.rollout, state=ROLLED_BACK, back_to="1.0")) == ("1.0", "")
    later = msgspec.structs.replace(played.rollout, version="3.0", started_at=NOW)
    assert installs(later, "later") == ("3.0", "")
    assert fleet.set_desired("rollout.later", None, NOW) is None
    assert fleet.document("d1").release == "1.0"


def test_a_group_that_is_removed_in_the_middle_halts() -> None:
    played = Played()
    rollout = played.step()
    progress = progress_of(rollout, {"field": Group()}, played.devices.values(), NOW)
    found = next_step(rollout, progress, NOW)
    assert found is not None
    assert (found.state, found.reason) == (HALTED, "ring canary: there is no such group any more")


def test_a_device_tells_how_its_upgrade_ended_and_when_it_was_heard_first() -> None:
    fleet = Fleet("fleet", AlertLimits())
    said = UpgradeReport(to="2.0+deb12", outcome="returned", reason="<b>no link", at="2026-11-25T12:00:00Z")
    for now in (NOW, NOW + 600):
        fleet.take_report("fleet.d1.config", msgspec.json.encode(ConfigReport(device="d1", upgrade=said)), now)
    record = fleet.index.get("d1")
    assert record is not None
    assert (record.upgrade.outcome, record.upgrade.heard_at) == ("returned", NOW)
    assert [alert.kind for alert in record.alerts] == ["upgrade"]
    fleet.take_report("fleet.d1.config", msgspec.json.encode(ConfigReport(device="d1")), NOW + 900)
    record = fleet.index.get("d1")
    assert record is not None
    assert record.alerts == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "2.0+deb12"}, "without Debian's release"),
        ({"version": ""}, "cannot be a version"),
        ({"rings": ()}, "1 to 20 rings"),
        ({"rings": (Ring(group="a", wait_s=0), Ring(group="a", wait_s=0))}, "another group"),
        ({"rings": (Ring(group="a b", wait_s=0),)}, "cannot be the name of a group"),
        ({"rings": (Ring(group="a", wait_s=-1),)}, "waits for"),
        ({"halt_percent": 101.0}, "0 to 100"),
        ({"grace_s": float("nan")}, "a day"),
        ({"state": "flying"}, "expected one of"),
        ({"back_to": "1.0"}, "rolled back"),
        ({"state": ROLLED_BACK}, "rolled back"),
    ],
)
def test_what_no_rollout_can_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DesiredError, match=said):
        msgspec.structs.replace(PLAN, **change).check()
