"""The root part of upgrades, with dpkg itself below a root of its own: installs, keeps the present package, and goes back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eyot_cli.upgrade.install import state
from eyot_cli.upgrade.install.machine import INSTALLS_MAX, WATCHES_MAX
from eyot_cli.upgrade.install.places import UNIT, Places
from eyot_cli.upgrade.install.refusal import Refused, Stuck
from eyot_cli.upgrade.status import RefusedPackage, UnderWay, UpgradeStatus, read_status, show_status
from support.devices.upgrade_device import FORMER, NEW, Daemon, Device, build

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def device(tmp_path: Path, daemon: Daemon, key: Ed25519PrivateKey) -> Device:
    """0.2.0 is installed; its scripts tell what dpkg does."""
    made = Device(tmp_path / "device", daemon)
    (tmp_path / "packages").mkdir()
    made.set_up(build(tmp_path / "packages", FORMER, scripts={"postinst": 'echo "$1" >>"$DPKG_ROOT/configured"'}), key)
    return made


def package(tmp_path: Path, version: str = NEW, **more: Any) -> Path:
    return build(tmp_path / "packages", version, **more)


# --- the way forth


def test_a_package_is_installed_and_the_former_one_kept(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path), key)
    assert device.begin() == f"from {FORMER} to {NEW}: {UNIT} goes on"
    assert device.version() == FORMER  # begin changes nothing
    assert device.places.unit_link.resolve() == device.places.unit
    assert (device.folder / "systemctl.log").read_text() == f"daemon-reload\nstart --no-block {UNIT}\n"
    device.go_on()
    assert device.version() == NEW
    ended = device.last()
    assert (ended["outcome"], ended["from"], ended["to"], ended["reason"]) == ("upgraded", FORMER, NEW, "")
    device.is_tidy()
    (kept,) = device.places.kept.iterdir()
    with device.dpkg.locked():
        device.dpkg.install(kept)
    assert device.version() == FORMER


def test_the_kept_package_is_the_installed_one(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """File for file, with the scripts, also of what somebody edited since."""
    made = package(tmp_path, "0.2.1+deb12", scripts={"preinst": "true", "prerm": "true # before"})
    with device.dpkg.locked():
        device.dpkg.install(made)
    edited = device.places.root / "usr/lib/eyot/version"
    edited.chmod(0o750)
    device.arrives(package(tmp_path), key)
    device.begin()
    (kept,) = device.places.kept.iterdir()

    def listed(file: Path) -> list[list[str]]:
        shown = subprocess.run(["dpkg-deb", "-c", file], capture_output=True, text=True, check=True).stdout
        # without their times, and without the root, which is in no package's list
        return sorted([*line.split()[:3], *line.split()[5:]] for line in shown.splitlines() if not line.endswith(" ./"))

    def scripts(file: Path) -> dict[str, tuple[int, list[str]]]:
        folder = tmp_path / f"control-{file.stat().st_ino}"
        subprocess.run(["dpkg-deb", "-e", file, folder], check=True)
        return {
            each.name: (stat.S_IMODE(each.stat().st_mode), sorted(each.read_text().splitlines()))
            for each in folder.iterdir()
        }

    expected = [["-rwxr-x---", *line[1:]] if line[3].endswith("/version") else line for line in listed(made)]
    assert listed(kept) == expected
    found = scripts(kept)
    found.pop("md5sums", None)  # dpkg makes it for packages that have none
    assert {"control", "preinst", "prerm"} == found.keys()
    assert found == scripts(made)


def test_the_copy_of_the_program_runs_by_itself(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """On Debian's Python, without a module of the package: dpkg exchanges those meanwhile."""
    device.arrives(package(tmp_path), key)
    device.begin()
    assert str(device.places.program) in device.places.unit.read_text()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", device.places.program, "none"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split(":")[0]) == (64, "usage")


# --- the way back


@pytest.mark.parametrize(
    ("health", "why"),
    [
        ({"answers": False}, "the daemon does not answer"),
        ({"store_error": "disk full"}, "the store: disk full"),
        ({"jetstream": False}, "the store: JetStream does not run"),
        ({"offline": ["$G > READINGS"]}, "the stream $G > READINGS is offline"),
        ({"last_seq": 1}, "the stream $G > READINGS does not have all that it had"),
        ({"link": "waiting"}, "the link hub of $G is waiting, and its address can be reached"),
        ({"clients": 0}, "no client is connected"),
        ({"publishing": False, "last_seq": 10**6}, "no message arrives from clients"),
    ],
)
def test_a_package_that_makes_something_worse_is_left(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey, health: dict[str, Any], why: str
) -> None:
    device.settings = replace(device.settings, watch_s=120.0)
    made = package(tmp_path, **health)
    device.arrives(made, key)
    ended = device.upgrade()
    assert device.version() == FORMER
    assert (ended["outcome"], ended["reason"]) == ("returned", why)
    device.is_tidy()
    # It is not tried again, also not when the hub opens it to another ring; a later version is.
    device.arrives(made, key, rings=["field"])
    with pytest.raises(Refused, match="this device went back from it"):
        device.begin()
    device.arrives(package(tmp_path, "0.3.1+deb12"), key)
    assert device.upgrade()["outcome"] == "upgraded"
    device.is_tidy()


@pytest.mark.parametrize(
    "health", [{"store_error": "disk full"}, {"link": "waiting"}, {"clients": 0}, {"publishing": False}]
)
def test_what_was_no_better_before_is_no_reason(
    tmp_path: Path, daemon: Daemon, key: Ed25519PrivateKey, health: dict[str, Any]
) -> None:
    device = Device(tmp_path / "device", daemon)
    (tmp_path / "packages").mkdir()
    device.set_up(package(tmp_path, FORMER, **health), key)
    device.arrives(package(tmp_path, **health, last_seq=10**6), key)
    assert device.upgrade()["outcome"] == "upgraded"


def test_what_is_worse_with_the_former_version_too_is_told(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    """A store in a newer format, for example."""
    breaks = 'sed -i \'s/"store_error": null/"store_error": "too new"/\' "$DPKG_ROOT/usr/lib/eyot/health.json"'
    device.arrives(package(tmp_path, store_error="broken", scripts={"postrm": breaks}), key)
    ended = device.upgrade()
    assert ended["reason"] == f"the store: broken; and with {FORMER} again: the store: too new"
    assert device.version() == FORMER


@pytest.mark.parametrize("script", ["preinst", "postinst"])
def test_a_package_that_does_not_install_is_left(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey, script: str
) -> None:
    device.arrives(package(tmp_path, scripts={script: "echo no room for this >&2; exit 7"}), key)
    ended = device.upgrade()
    assert device.version() == FORMER
    assert ended["outcome"] == "returned"
    assert "no room for this" in ended["reason"]
    device.is_tidy()


def test_an_installation_that_never_ends_is_left(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """As one does that has the machine's watchdog bite."""
    device.arrives(package(tmp_path), key)
    device.begin()
    found = state.load(device.places.state_file)
    assert found is not None
    state.save(device.places.state_file, replace(found, installs=INSTALLS_MAX))
    device.go_on()
    assert device.last()["reason"] == f"the installation of {NEW} was cut {INSTALLS_MAX} times"
    assert device.version() == FORMER


def test_a_version_with_which_the_machine_does_not_stay_up_is_left(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    device.arrives(package(tmp_path), key)
    device.begin()
    found = state.load(device.places.state_file)
    assert found is not None
    state.save(device.places.state_file, replace(found, phase=state.WATCH, watches=WATCHES_MAX))
    device.go_on()
    assert device.last()["reason"] == f"the machine started {WATCHES_MAX} times while {NEW} was watched"
    assert device.version() == FORMER


def test_going_back_that_fails_is_tried_again(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path, store_error="broken"), key)
    device.begin()
    (kept,) = device.places.kept.iterdir()
    away = kept.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(Stuck, match=rf"dpkg did not install {re.escape(FORMER)} again: (?s:.*)No such file"):
            device.go_on()
        assert device.places.unit.exists()
    away.rename(kept)
    device.go_on()
    assert (device.version(), device.last()["outcome"]) == (FORMER, "returned")
    device.is_tidy()


def test_what_somebody_else_installs_meanwhile_stays(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path, answers=False), key)
    device.begin()
    other = package(tmp_path, "0.2.9+deb12")
    sleep = device.clock.sleep

    def interfere(seconds: float) -> None:
        if device.dpkg.installed("eyot")[1] == NEW:
            with device.dpkg.locked():
                device.dpkg.install(other)
        sleep(seconds)

    device.clock.sleep = interfere  # type: ignore[method-assign]
    device.go_on()
    assert (device.version(), device.last()["outcome"]) == ("0.2.9+deb12", "superseded")
    assert not device.places.refused_file.exists()
    device.is_tidy()


@pytest.mark.parametrize("stays", [True, False])
def test_a_daemon_that_takes_long_to_start_is_waited_for(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey, stays: bool
) -> None:
    """As after a power cut, with a large store. One that starts again and again is not."""
    device.settings = replace(device.settings, grace_s=30.0)
    device.arrives(package(tmp_path, answers=False), key)
    device.begin()
    shown, sleep = device.folder / "shown", device.clock.sleep
    pauses = 0

    def start(seconds: float) -> None:
        nonlocal pauses
        sleep(seconds)
        pauses += 1
        shown.write_text(f"MainPID={7 if stays else pauses}\nSubState=start\n")
        if pauses == 100:
            health = device.places.root / "usr/lib/eyot/health.json"
            health.write_text(json.dumps(json.loads(health.read_text()) | {"answers": True}))

    device.clock.sleep = start  # type: ignore[method-assign]
    device.go_on()
    assert device.version() == (NEW if stays else FORMER)
    assert (pauses >= 100) == stays


# --- what is not installed


def refuses(device: Device, why: str) -> None:
    """Nothing changes, what has arrived is gone, and no unit waits for a boot."""
    with pytest.raises(Refused, match=why):
        device.begin()
    assert device.version() == FORMER
    assert state.load(device.places.state_file) is None
    assert not device.places.unit.exists()
    assert list(device.places.incoming.iterdir()) == []


def test_a_signature_of_another_key_is_refused(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path), Ed25519PrivateKey.generate())
    refuses(device, "which is not pinned here")
    device.arrives(package(tmp_path), key)
    (signed,) = device.places.incoming.glob("*.signed")
    changed = json.loads(signed.read_text())
    changed["signature"] = base64.b64encode(bytes(64)).decode()
    signed.write_text(json.dumps(changed))
    refuses(device, "its signature is not that of the key")


def test_a_package_that_was_exchanged_is_refused(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    made = package(tmp_path)
    for content in (
        bytes([made.read_bytes()[0] ^ 1]) + made.read_bytes()[1:],
        made.read_bytes() + b"more",
        made.read_bytes()[:-1],
        b"",
    ):
        device.arrives(made, key)
        (device.places.incoming / made.name).write_bytes(content)
        refuses(device, "is not the package that was signed")
    device.arrives(made, key)
    (device.places.incoming / made.name).unlink()
    refuses(device, "No such file")
    device.arrives(made, key)
    (device.places.incoming / made.name).unlink()
    (device.places.incoming / made.name).symlink_to(made)
    refuses(device, "symbolic links")


@pytest.mark.parametrize(
    ("version", "members", "why"),
    [
        ("0.1.0+deb12", {}, "which is newer, and the manifest is no rollback from it"),
        (FORMER, {}, "it is installed"),
        (NEW, {"minimum": "0.2.1"}, "it needs 0.2.1 first"),
        (NEW, {"rings": ["canary"]}, "it is open to canary, the device is in field"),
        (NEW, {"expires": "2026-01-02T00:00:00Z"}, "it expired at 2026-01-02 00:00:00 UTC"),
        (NEW, {"issued": "2198-01-01T00:00:00Z"}, "set the device's clock"),
        (NEW, {"release": "deb13"}, "it is for deb13, the device runs deb12"),
    ],
)
def test_a_package_that_is_not_for_this_device_is_refused(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey, version: str, members: dict[str, Any], why: str
) -> None:
    device.arrives(package(tmp_path, version), key, **members)
    refuses(device, why)


def test_a_signed_rollback_is_installed(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path, "0.1.0+deb12"), key, rollback_from=[FORMER])
    assert device.upgrade()["outcome"] == "upgraded"
    assert device.version() == "0.1.0+deb12"


def test_the_highest_version_is_taken(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    for version in ("0.10.0+deb12", "0.9.0+deb12"):
        device.arrives(package(tmp_path, version), key)
    (device.places.incoming / "x.deb.signed").write_text("{")
    device.upgrade()
    assert device.version() == "0.10.0+deb12"
    device.is_tidy()


def test_without_a_daemon_that_answers_nothing_begins(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.settings = replace(device.settings, control=tmp_path / "none.sock")
    device.arrives(package(tmp_path), key)
    refuses(device, "there is no health to compare with")


def test_while_an_upgrade_is_under_way_no_other_begins(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    device.arrives(package(tmp_path), key)
    device.begin()
    device.arrives(package(tmp_path, "0.4.0+deb12"), key)
    with state.lock(device.places.lock_file, wait=False):
        assert device.begin() == "an upgrade is under way"
    device.arrives(package(tmp_path, "0.4.0+deb12"), key)
    assert device.begin() == f"from {FORMER} to {NEW}: {UNIT} goes on"
    device.go_on()
    assert device.version() == NEW
    device.is_tidy()


def test_a_state_file_that_nobody_can_read_changes_nothing(device: Device) -> None:
    device.places.state_file.write_text("{}")
    with pytest.raises(Stuck, match="remove this file"):
        device.go_on()
    assert device.version() == FORMER


# --- what the operator is told


def test_the_status_follows_an_upgrade(device: Device, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    assert read_status(device.places) == UpgradeStatus(
        installed=FORMER, under_way=None, last=None, arrived=[], kept=[], refused=[]
    )
    made = package(tmp_path)
    device.arrives(made, key)
    assert read_status(device.places).arrived == [made.name]
    device.begin()
    begun = read_status(device.places)
    assert begun.under_way == UnderWay(from_version=FORMER, to_version=NEW, phase=state.INSTALL)
    assert (begun.installed, begun.arrived, len(begun.kept), begun.was_rolled_back) == (FORMER, [], 1, False)
    device.go_on()
    ended = read_status(device.places)
    assert (ended.installed, ended.under_way, ended.was_rolled_back) == (NEW, None, False)
    assert ended.last is not None
    assert (ended.last.outcome, ended.last.from_version, ended.last.to_version) == ("upgraded", FORMER, NEW)


def test_the_status_of_an_upgrade_that_was_was_rolled_back(
    device: Device, tmp_path: Path, key: Ed25519PrivateKey, capsys: pytest.CaptureFixture[str]
) -> None:
    made = package(tmp_path, scripts={"postinst": "exit 1"})
    device.arrives(made, key)
    device.upgrade()
    found = read_status(device.places)
    assert found.was_rolled_back
    (refused,) = found.refused
    assert (refused.version, refused.sha256) == (NEW, hashlib.sha256(made.read_bytes()).hexdigest())
    assert found.last is not None
    assert refused.reason == " ".join(found.last.reason.split()) != ""
    show_status(found)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"from {FORMER} to {NEW}: went back because" in shown
    assert refused.sha256 in shown
    with device.dpkg.locked():
        device.dpkg.install(package(tmp_path, "0.3.0+deb12"))
    assert not read_status(device.places).was_rolled_back


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1, "phase": "install"}', '{"format": 2}'])
def test_a_status_of_damaged_files(tmp_path: Path, text: str) -> None:
    places = Places(state=tmp_path, incoming=tmp_path / "none", root=tmp_path)
    places.state_file.write_text(text)
    places.last_file.write_text(text)
    places.refused_file.write_text("x\n\n")
    found = read_status(places)
    assert found.under_way is not None
    assert found.under_way.problem
    assert found.refused == [RefusedPackage(sha256="x", version="", reason="")]
    assert found.installed == "not as a package"
    show_status(found)
