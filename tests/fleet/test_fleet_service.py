"""`eyot-fleet` beside real hubs, with real devices: what it knows, makes, refuses, and what it keeps over restarts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.devices.fleet_service import Service, eventually, fleet_service, publish_locally, status
from support.servers.eyotd import Eyotd

EYOT = str(Path(sys.executable).with_name("eyot"))


@pytest.fixture(params=["eyotd", "2.14.6"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with fleet_service(request.param, tmp_path) as made:
        made.hub.start()
        made.start()
        yield made


def streams_of(service: Service, device: str) -> list[tuple[str, int | None, int | None]]:
    """Name, confirmed sequence and backlog of a device's streams, as far as it has told."""
    shown = service.json("show", device).get("streams", [])
    return [(each["name"], each.get("confirmed_seq"), each.get("backlog")) for each in shown]


def test_devices_come_are_sourced_and_go(service: Service) -> None:
    assert service.json("check")["system"] == "ok"
    pump, valve = service.device("pump"), service.device("valve")
    try:
        publish_locally(pump, 3)
        publish_locally(valve, 2)
        service.run("sources", "set", "ALL", "--stream", "READINGS", "--shard-size", "1", "--reason", "all of it")
        service.run("label", "pump", "Site:Berlin")
        eventually(lambda: {"ALL-0", "ALL-1"} <= set(service.api("STREAM.NAMES").get("streams") or []))
        held = eventually(
            lambda: sorted(
                service.api(f"STREAM.INFO.ALL-{number}")["state"]["messages"] for number in (0, 1)
            ) == [2, 3]
        )  # fmt: skip
        assert held
        eventually(lambda: sorted(service.devices()) == ["pump", "valve"])
        # What the devices said before they were asked for their messages may say synced, too.
        eventually(lambda: streams_of(service, "pump") == [("READINGS", 3, 0)])
        eventually(lambda: all(each["state"] == "synced" for each in service.devices().values()))
        found = service.json("ls", "berlin")
        assert [each["name"] for each in found["devices"]] == ["pump"]
        assert found["devices"][0]["labels"] == ["site:berlin"]
        valve.kill()
        eventually(lambda: service.devices()["valve"]["state"] in ("not linked", "silent"))
        # what is not released stays: its messages may still be needed
        assert len(service.api("STREAM.INFO.ALL-1")["config"]["sources"]) == 1
        assert "say why" in service.run("release", "valve", "--reason", " ", status=1)
        service.run("release", "valve", "--reason", "scrapped")
        eventually(lambda: not service.api("STREAM.INFO.ALL-1")["config"].get("sources"))
        assert service.api("STREAM.INFO.ALL-1")["state"]["messages"] == 2
        events = [line["event"] for line in service.json("audit")]
        assert events.count("stream made") == 2
        assert {"device", "sources", "stream changed"} <= set(events)
        if service.kind == "2.14.6":  # nothing of it depends on the kind of hub
            forgets(service, valve)
    finally:
        pump.kill()
        valve.kill()


def forgets(service: Service, valve: Eyotd) -> None:
    """Forget a device that is gone; one of its name comes back as a new one."""
    assert "is linked" in service.run("forget", "pump", "--reason", "a mistake", status=1)
    assert "say why" in service.run("forget", "valve", "--reason", "", status=1)
    assert "no device nobody" in service.run("forget", "nobody", "--reason", "x", status=1)
    service.run("label", "valve", "site:oslo")
    assert "valve is forgotten" in service.run("forget", "valve", "--reason", "scrapped")
    assert set(service.devices()) == {"pump"}
    assert "valve" not in {each["key"].rpartition(".")[2] for each in service.json("desired")}
    [line] = [line for line in service.json("audit") if line["event"] == "forgotten"]
    assert (line["by"], line["target"], line["detail"]) == ("command line", "valve", {"reason": "scrapped"})
    valve.start()  # a device of that name is a new one
    found = eventually(lambda: service.devices().get("valve"))
    assert "labels" not in found
    eventually(lambda: len(service.api("STREAM.INFO.ALL-1")["config"].get("sources") or []) == 1)


def test_a_restarted_service_knows_what_it_knew(service: Service) -> None:
    service.publish([("fleet.pump.status", status("pump", synced=True, version="7.7.7"))])
    eventually(lambda: service.devices().get("pump", {}).get("version") == "7.7.7")
    service.run("label", "pump", "site:oslo")
    service.stop()
    # Another service, or this one started again, leads at once.
    assert service.leader() == ""
    service.start()
    found = service.devices()["pump"]
    assert (found["version"], found["state"]) == ("7.7.7", "synced")
    # the label was stored at once, and joins the device's record when the service writes it next
    eventually(lambda: service.devices()["pump"].get("labels") == ["site:oslo"])


def test_statuses_that_a_stream_held_while_the_service_was_away(service: Service) -> None:
    service.api("STREAM.CREATE.STATUSES", {"name": "STATUSES", "subjects": ["fleet.*.status"]})
    service.publish([("fleet.pump.status", status("pump", boot="B", number=1, backlog=1))])
    eventually(lambda: service.devices().get("pump", {}).get("backlog") == 1)
    service.stop()
    service.publish([("fleet.pump.status", status("pump", boot="B", number=2, backlog=22))])
    service.start()
    eventually(lambda: service.devices()["pump"].get("backlog") == 22)


def test_forged_and_unreadable_statuses_are_refused_counted_and_audited(service: Service) -> None:
    service.publish([("fleet.pump.status", status("pump", version="1"))])
    eventually(lambda: "pump" in service.devices())
    service.publish(
        [
            ("fleet.pump.status", status("valve", version="2")),
            ("fleet.pump.status", b"{"),
            ("fleet.pump.status", b'{"device": "pump", "every_s": "x"}'),
            ("fleet.<b>.status", status("<b>")),
            ("fleet.pump.status", status("pump", version="3", at="1970-01-01T00:00:09Z", backlog=-5)),
        ]
    )
    found = eventually(lambda: (each := service.devices()["pump"]).get("version") == "3" and each)
    assert {each["kind"] for each in found["alerts"]} >= {"forged", "clock"}
    assert found["backlog"] == 0
    assert set(service.devices()) == {"pump"}
    assert service.metric('eyot_fleet_statuses_total{outcome="forged"}') == 1
    assert service.metric('eyot_fleet_statuses_total{outcome="unreadable"}') == 3
    lines = eventually(lambda: [each for each in service.json("audit") if each["event"] == "refused"])
    assert any("'valve' on the subject of pump" in each["error"] for each in lines)


def test_two_services_keep_one_state_and_one_takes_over(service: Service, tmp_path: Path) -> None:
    second = Service("eyotd", tmp_path / "second")
    second.hub = service.hub
    second.folder.mkdir(exist_ok=True)
    second.write_config()
    second.start()
    try:
        service.publish([("fleet.pump.status", status("pump"))])
        eventually(lambda: "pump" in service.devices())
        assert (service.metric("eyot_fleet_leader"), second.metric("eyot_fleet_leader")) == (1, 0)
        service.stop()
        eventually(lambda: second.metric("eyot_fleet_leader") == 1)
        service.publish([("fleet.valve.status", status("valve"))])
        eventually(lambda: set(service.devices()) == {"pump", "valve"})
    finally:
        second.stop()


def test_the_hub_goes_and_comes_back_and_a_bucket_vanishes(service: Service) -> None:
    service.publish([("fleet.pump.status", status("pump", synced=True))])
    eventually(lambda: "pump" in service.devices())
    service.hub.kill()
    eventually(lambda: service.health() == 503)
    service.hub.start()
    eventually(lambda: service.health() == 200)
    assert service.devices()["pump"]["state"] == "synced"  # the hub was away, not the device
    service.api("STREAM.DELETE.KV_EYOT_FLEET_DEVICES")
    service.publish([("fleet.valve.status", status("valve"))])
    eventually(lambda: set(service.devices()) == {"pump", "valve"})
    service.api("STREAM.DELETE.KV_EYOT_FLEET_DEVICES")
    assert set(service.devices()) in (set(), {"pump", "valve"})  # whoever asks makes the bucket anew, and empty
    eventually(lambda: set(service.devices()) == {"pump", "valve"})


def test_a_device_applies_what_is_desired_and_takes_back_what_it_cannot(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "pump"
    pump = service.device("pump", f'include "{folder}/desired*.conf"')
    settings = tmp_path / "settings.json"

    def configure(status: int = 0) -> str:
        words = [EYOT, "--control", str(folder / "control.sock"), "-s", pump.client_url(), "configure"]
        words += ["--config", str(pump.config_path), "--fragment", str(folder / "desired.conf")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def config() -> dict[str, Any]:
        return dict(service.json("show", "pump").get("config") or {})

    try:
        eventually(lambda: "pump" in service.devices())
        settings.write_text(json.dumps({"sync": {"streams": {"LOGS": {"priority": 2}}}}))
        service.run("group", "set", "all", "--settings", str(settings), "--reason", "logs wait")
        eventually(lambda: config().get("desired"))
        assert "applied" in configure()
        assert '"priority": 2' in (folder / "desired.conf").read_text()
        eventually(lambda: config().get("outcome") == "applied" and config()["reported"] == config()["desired"])
        assert configure()  # nothing to do, and no other answer
        if service.kind == "eyotd":  # nothing of it depends on the kind of hub
            rolls_out(service, configure, folder / "release")

        settings.write_text(json.dumps({"sync": {"streams": {"LOGS": {"priority": 77}}}}))
        service.run("set", "pump", "--settings", str(settings))
        eventually(lambda: config()["desired"] != config()["reported"])
        assert "refused" in configure(status=1)
        assert '"priority": 2' in (folder / "desired.conf").read_text()
        found = eventually(lambda: (each := config()).get("outcome") == "refused" and each)
        assert "priority" in found["error"]
        assert "config" in {each["kind"] for each in service.devices()["pump"]["alerts"]}

        settings.write_text(json.dumps({"http": {"page": True}}))
        assert "a device takes sync, flash only" in service.run("set", "pump", "--settings", str(settings), status=1)
        service.run("remove", "device", "pump")
        service.run("remove", "group", "all")
        eventually(lambda: not config().get("desired"))
        configure()
        assert not (folder / "desired.conf").exists()
        values = [each["value"] for each in service.json("history", "group", "all")]
        assert values[0] is None
        assert values[1]["reason"] == "logs wait"
    finally:
        pump.kill()


def rolls_out(service: Service, configure: Callable[[], str], release: Path) -> None:
    """Walk a release through the ring `all`, in which there is one device."""
    version = service.devices()["pump"]["version"]
    assert "no group nobody" in service.run("rollout", "start", "one", "--version", "1", "--ring", "nobody", status=1)
    assert "+deb12" in service.run("rollout", "start", "one", "--version", "1+deb12", "--ring", "all", status=1)
    service.run("rollout", "start", "next", "--version", "99.1", "--ring", "all:1h", "--reason", "try it")
    eventually(lambda: service.json("rollout", "show", "next")["rollout"].get("opened"))
    eventually(lambda: (configure(), release.exists())[1])
    assert release.read_text() == "99.1\n"
    service.run("rollout", "halt", "next", "--reason", "wait")
    eventually(lambda: (configure(), not release.exists())[1])
    service.run("rollout", "resume", "next")
    service.run("rollout", "back", "next", "--to", "0.0.9", "--reason", "it is bad")
    assert "cannot become" in service.run("rollout", "halt", "next", status=1)
    eventually(lambda: (configure(), release.exists())[1])
    assert release.read_text() == "0.0.9\n"
    service.run("rollout", "start", "own", "--version", version, "--ring", "all")
    done = eventually(lambda: (each := service.json("rollout", "ls")["own"]).get("state") == "done" and each)
    assert done["by"] == "eyot-fleet"
    [ring] = service.json("rollout", "show", "own")["rings"]
    assert (ring["devices"], ring["upgraded"], ring["worse"]) == (1, 1, {})
    [group] = service.json("group", "ls")
    assert (group["name"], group["devices"], group["worst"]) == ("all", 1, service.devices()["pump"]["state"])
    assert "rollout" in {line["event"] for line in service.json("audit")}


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
