"""The fleet in memory: statuses, forgeries, wrong clocks, alerts that do not tremble, a day of history, plans of sources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eyot_fleet.alerts import AlertLimits, alerts_of
from eyot_fleet.desired import DesiredError, DeviceSettings, Group, SourceRule, document_of, normal_labels
from eyot_fleet.device_record import DeviceRecord, UpgradeRecord
from eyot_fleet.fleet import Fleet
from eyot_fleet.history import STEP_S, STEPS, DayHistory
from eyot_fleet.jetstream import Delivered
from eyot_fleet.source_plan import Shard, plan
from eyot_fleet.status_streams import came_from
from eyot_wire import headers
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream import stream_source
from eyot_wire.status import DeviceStatus
from eyot_wire.trust.enrolment_record import EnrolledDevice

NOW = 1_800_000_000.0
LIMITS = AlertLimits()


def status(name: str = "pump", at: float = NOW, **more: Any) -> bytes:
    made = {"device": name, "at": ns_to_rfc3339(int(at * 1e9)), "every_s": 60.0, "version": "1", "uptime_s": 1.0}
    return msgspec.json.encode(msgspec.convert(made | more, DeviceStatus))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet("fleet", LIMITS)


def pump(fleet: Fleet) -> DeviceRecord:
    found = fleet.index.get("pump")
    assert found is not None
    return found


def test_a_status_of_the_stream_does_not_replace_a_newer_one_of_the_link(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(boot="B", number=9, backlog=9), NOW, live=True)
    fleet.hear_status("fleet.pump.status", status(boot="B", number=8, backlog=8), NOW + 1, live=False)
    fleet.hear_status("fleet.pump.status", status(boot="B", number=9, backlog=9), NOW + 1, live=False)
    fleet.hear_status("fleet.pump.status", status(boot="A", number=70, backlog=7), NOW + 1, live=False)
    assert pump(fleet).backlog == 9
    assert (fleet.counts["late"], fleet.counts["repeated"], fleet.counts["applied"]) == (2, 1, 1)


def test_a_daemon_that_started_anew_counts_from_one_again(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(boot="A", number=70, backlog=7), NOW, live=True)
    fleet.hear_status("fleet.pump.status", status(boot="B", number=1, backlog=1), NOW + 1, live=True)
    assert (pump(fleet).boot, pump(fleet).backlog) == ("B", 1)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b"x" * 300_000, b'{"device": 7}'])
def test_what_is_no_status_is_refused_and_changes_nothing(fleet: Fleet, body: bytes) -> None:
    refusal = fleet.hear_status("fleet.pump.status", body, NOW, live=True)
    assert refusal is not None
    assert (refusal.name, refusal.forged, len(fleet.index)) == ("pump", False, 0)


@pytest.mark.parametrize(
    "subject", ["fleet.status", "fleet.a b.status", "fleet..status", "other.pump.status", "fleet.a.b.status"]
)
def test_subjects_that_name_no_device(fleet: Fleet, subject: str) -> None:
    assert fleet.hear_status(subject, status(), NOW, live=True) is not None
    assert len(fleet.index) == 0


def test_figures_that_cannot_be_are_not_believed(fleet: Fleet) -> None:
    odd = {"backlog": -3, "oldest_s": -1.0, "every_s": 1e300, "never_arrived": 2**62, "version": "v" * 5000}
    assert fleet.hear_status("fleet.pump.status", status(**odd), NOW, live=True) is None
    found = pump(fleet)
    assert (found.backlog, found.oldest_s, len(found.version)) == (0, None, 300)
    assert found.silent_after_s() < 22 * 86_400


@pytest.mark.parametrize("domain", ["a.b", "a b", "*", ">", "a\n", "$JS.x"])
def test_what_can_be_no_domain_is_refused(fleet: Fleet, domain: str) -> None:
    """The hub would refuse the source of this device, and with it the change of a stream that sources others."""
    refusal = fleet.hear_status("fleet.pump.status", status(domain=domain), NOW, live=True)
    assert refusal is not None
    assert "can be no domain" in refusal.reason
    assert len(fleet.index) == 0


def test_a_forger_makes_an_alert_that_ends(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(), NOW, live=True)
    refusal = fleet.hear_status("fleet.pump.status", status("valve"), NOW, live=True)
    assert refusal is not None
    assert refusal.forged
    assert [alert.kind for alert in pump(fleet).alerts] == ["forged"]
    assert fleet.index.get("valve") is None
    fleet.hear_status("fleet.pump.status", status(number=2, at=NOW + 3601), NOW + 3601, live=True)
    fleet.tick(NOW + 3601)
    assert not pump(fleet).alerts


def test_silence_is_written_although_no_message_comes(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(synced=True), NOW, live=True)
    fleet.urgent.clear()
    fleet.tick(NOW + 180)
    assert (pump(fleet).state, fleet.urgent) == ("synced", set())
    fleet.tick(NOW + 181)
    assert (pump(fleet).state, fleet.urgent) == ("silent", {"pump"})


def test_a_sourced_status_counts_for_the_device_it_came_from() -> None:
    def message(value: bytes | None) -> Delivered:
        header = b"" if value is None else headers.set_field(b"", stream_source.HEADER, value)
        return Delivered("fleet.pump.status", b"", header, 1, NOW, 0)

    def source(domain: str) -> bytes:
        name = stream_source.index_name("STATUS", f"$JS.{domain}.API")
        return stream_source.encode(name, 7, "fleet.pump.status")

    assert came_from(message(None), "pump", None)
    assert came_from(message(source("pump")), "pump", None)
    assert came_from(message(source("d7")), "pump", DeviceRecord(name="pump", domain="d7"))
    assert not came_from(message(source("valve")), "pump", None)
    assert not came_from(message(b"STATUS 7 > > fleet.pump.status"), "pump", None)


def test_clocks_in_1970_make_an_alert_and_no_wrong_age(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(at=9.0, oldest_s=5.0, backlog=1), NOW, live=True)
    found = pump(fleet)
    assert [(alert.kind, alert.severity) for alert in found.alerts] == [("clock", "critical")]
    assert found.heard_at == NOW
    assert found.oldest_now_s(NOW + 10) == 15.0
    assert fleet.history("pump", NOW)[-1].backlog == 1


def test_a_device_with_anothers_domain_is_told(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(domain="pump"), NOW, live=True)
    fleet.hear_status("fleet.valve.status", status("valve", domain="pump"), NOW, live=True)
    valve = fleet.index.get("valve")
    assert valve is not None
    assert [alert.kind for alert in valve.alerts] == ["domain"]
    assert not pump(fleet).alerts


def test_an_alert_does_not_tremble_at_its_threshold() -> None:
    record, begun = DeviceRecord(name="pump"), []
    for step, free in enumerate([11, 9, 11, 9, 11, 13, 11, 9]):
        record = msgspec.structs.replace(record, disk_free_bytes=free, disk_total_bytes=100)
        record = msgspec.structs.replace(record, alerts=alerts_of(record, NOW + step, LIMITS))
        begun.append(record.alerts[0].since - NOW if record.alerts else None)
    assert begun == [None, 1, 1, 1, 1, None, None, 7]


def test_every_rule_begins_and_a_well_device_has_no_alert() -> None:
    well = DeviceRecord(
        name="pump", heard_at=NOW, synced=True, clock_offset_s=0.1, disk_free_bytes=9, disk_total_bytes=10
    )
    assert alerts_of(well, NOW, LIMITS) == ()
    ill: dict[str, dict[str, Any]] = {
        "store": {"store_error": "EIO"},
        "disk": {"disk_free_bytes": 0},
        "wear": {"flash_used_percent": 95},
        "memory": {"memory_free_bytes": 1},
        "certificate": {"certificate_expires": NOW - 1},
        "token": {"token_expires": NOW + 3600},
        "clock": {"clock_offset_s": -90.0},
        "behind": {"backlog": 5, "oldest_s": 90_000.0},
        "never_arrived": {"never_arrived": 3},
        "silent": {"heard_at": NOW - 5000},
        "upgrade": {"upgrade": UpgradeRecord(to="2", outcome="returned")},
    }
    for kind, change in ill.items():
        assert [alert.kind for alert in alerts_of(msgspec.structs.replace(well, **change), NOW, LIMITS)] == [kind]


def test_silence_of_the_service_is_not_the_devices(fleet: Fleet) -> None:
    fleet.hear_status("fleet.pump.status", status(synced=True), NOW, live=True)
    fleet.index.listening_since = float("inf")
    fleet.tick(NOW + 9000)
    assert pump(fleet).state == "synced"
    fleet.index.listening_since = NOW + 9000
    fleet.tick(NOW + 9100)
    assert pump(fleet).state == "synced"
    fleet.tick(NOW + 9200)
    assert pump(fleet).state == "silent"
    fleet.index.listening_since = NOW + 9300  # it reconnects: who was silent stays so
    fleet.tick(NOW + 9301)
    assert pump(fleet).state == "silent"


def test_a_day_is_bounded_and_comes_back_from_its_bytes() -> None:
    day = DayHistory()
    for step in range(2 * STEPS):
        assert day.note(NOW + step * STEP_S, step, float(step), linked=True, synced=False)
    assert not day.note(NOW, 1, 1.0, linked=True, synced=True)  # more than a day before the latest
    end = NOW + (2 * STEPS - 1) * STEP_S
    points = day.points(end)
    assert [point.backlog for point in points] == list(range(STEPS, 2 * STEPS))
    again = DayHistory.decode(day.encode())
    assert again is not None
    assert again.points(end) == points
    later = day.points(end + 10 * STEP_S)
    assert [point.heard for point in later[-10:]] == [False] * 10
    assert DayHistory.decode(day.encode()[:-1]) is None
    assert len(day.encode()) < 2000


def test_revoked_devices_are_told_even_if_it_happened_while_nobody_looked(fleet: Fleet) -> None:
    def enrolled(name: str) -> EnrolledDevice:
        return EnrolledDevice(
            name=name, key="U" + name, token="T", role="", device_lifetime_s=0, enrolled_at=1, renewed_at=1, expires=0,
            tags=("site:oslo",),
        )  # fmt: skip

    assert fleet.enrol({"pump": enrolled("pump"), "valve": enrolled("valve")}, NOW) == (["pump", "valve"], [])
    assert pump(fleet).labels == ("site:oslo",)
    other = Fleet("fleet", LIMITS)
    other.load(pump(fleet), NOW)
    assert other.enrol({}, NOW) == ([], ["pump"])
    assert pump(other).state == "revoked"
    assert other.enrol({"pump": enrolled("pump")}, NOW) == (["pump"], [])
    assert pump(other).state == "new"


def test_a_forgotten_device_comes_back_as_a_new_one(fleet: Fleet) -> None:
    device = EnrolledDevice(
        name="pump", key="U", token="T", role="", device_lifetime_s=0, enrolled_at=1, renewed_at=1, expires=0
    )
    fleet.enrol({"pump": device}, NOW)
    fleet.hear_status("fleet.pump.status", status(store={"error": "EIO"}, store_error="EIO"), NOW, live=True)
    fleet.enrol({}, NOW)
    settings = DeviceSettings(labels=("a",), released=True, forgotten=True, reason="scrapped")
    assert fleet.set_desired("device.pump", msgspec.json.encode(settings), NOW) is None
    assert fleet.forgotten() == ["pump"]
    assert pump(fleet).state == "revoked"
    assert fleet.set_desired("device.pump", None, NOW) is None  # the service that leads has done it
    assert fleet.index.get("pump") is None
    assert fleet.history("pump", NOW) == []
    assert fleet.urgent | fleet.waiting | fleet.histories_changed == set()
    assert fleet.enrol({"pump": device}, NOW + 9) == (["pump"], [])
    assert (pump(fleet).state, pump(fleet).heard_at, pump(fleet).labels) == ("new", None, ())


def test_settings_of_groups_are_merged_by_priority_and_the_device_counts_most() -> None:
    groups = {
        "low": Group(priority=0, settings={"sync": {"streams": {"A": {"priority": 1}, "B": {"priority": 1}}}}),
        "high": Group(labels=("x",), priority=5, settings={"sync": {"streams": {"A": {"priority": 5}}}}),
        "other": Group(labels=("y",), priority=9, settings={"flash": {"budget": "1G/day"}}),
    }
    own = DeviceSettings(settings={"sync": {"streams": {"B": {"priority": 9}}}})
    found = document_of("pump", ["x"], groups, own)
    assert found.settings == {"sync": {"streams": {"A": {"priority": 5}, "B": {"priority": 9}}}}
    assert found.revision == document_of("valve", ["x"], groups, own).revision != ""
    assert document_of("pump", [], {}, None).revision == ""


@pytest.mark.parametrize("label", ["<script>", "a b", 'a"b', "a,b", "", "x" * 200, "a\u202eb"])
def test_labels_with_markup_are_refused(label: str) -> None:
    with pytest.raises(DesiredError, match="cannot be a label"):
        normal_labels([label])


def test_settings_beyond_what_a_device_takes_are_refused() -> None:
    with pytest.raises(DesiredError, match="a device takes sync, flash only"):
        Group(settings={"leafnodes": {}}).check()


def apply(rule: SourceRule, wanted: list[str], released: list[str], shards: list[Shard]) -> list[Shard]:
    found = {shard.name: shard for shard in shards}
    for change in plan("S", rule, wanted, released, shards).changes:
        found[change.stream] = Shard(name=change.stream, config=change.config)
    return list(found.values())


def test_sources_are_sharded_stay_where_they_are_and_go_only_when_released() -> None:
    rule = SourceRule(stream="READINGS", shard_size=100)
    devices = [f"d{number:04}" for number in range(1000)]
    shards = apply(rule, devices, [], [])
    assert sorted(len(shard.origins()) for shard in shards) == [100] * 10
    where = {origin.domain: shard.name for shard in shards for origin in shard.origins()}
    assert sorted(where) == devices
    assert plan("S", rule, devices, [], shards).changes == []
    assert plan("S", rule, devices[500:], [], shards).changes == []  # not wanted any more, and not released
    shards = apply(rule, [*devices[1:], "new"], [devices[0]], shards)
    after = {origin.domain: shard.name for shard in shards for origin in shard.origins()}
    assert after == {**{each: where[each] for each in devices[1:]}, "new": where[devices[0]]}


def test_sources_that_somebody_else_made_stay() -> None:
    other = {"name": "LOCAL"}
    config = {"name": "S-0", "sources": [other, {"name": "R", "external": {"api": "$JS.a.API"}}], "max_age": 7}
    [shard] = apply(SourceRule(stream="R"), ["b"], ["a"], [Shard(name="S-0", config=config)])
    assert shard.config["sources"][0] == other
    assert [origin.domain for origin in shard.origins()] == ["b"]
    assert shard.config["max_age"] == 7
