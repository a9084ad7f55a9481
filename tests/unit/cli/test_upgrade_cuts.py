"""Upgrades that are cut before everything that they change, and in the middle of dpkg, and then go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eyot_cli.upgrade.install import state
from eyot_cli.upgrade.install.refusal import Refused
from support import upgrade_process
from support.upgrade_device import FORMER, NEW, Daemon, Device, build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")
TESTS = Path(__file__).parents[2]
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
#: Kills dpkg and who called it when a file says so, once.
CUT = 'if [ -e "{folder}/cut-{name}" ]; then rm "{folder}/cut-{name}"; kill -9 0; fi'


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


class Bench:
    """A device to which a package has arrived, or whose upgrade has begun; every test case gets a copy of it."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder, self.daemon = folder, daemon
        key = Ed25519PrivateKey.generate()
        (folder / "packages").mkdir()

        def package(version: str, **health: object) -> Path:
            scripts = {name: CUT.format(folder=folder, name=f"{version}-{name}") for name in SCRIPTS}
            return build(folder / "packages", version, scripts=scripts, **health)

        former = package(FORMER)
        for name, health in (("good", {}), ("bad", {"store_error": "broken"})):
            device = Device(folder / f"{name}-arrived", daemon)
            device.set_up(former, key)
            device.arrives(package(NEW, **health), key)
            begun = self.copied(f"{name}-arrived", f"{name}-begun")
            begun.begin()

    def copied(self, name: str, to: str = "device") -> Device:
        target = self.folder / to
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder / name, target, symlinks=True)
        return Device(target, self.daemon)

    def run(self, device: Device, what: str, at: int) -> int | None:
        """Run in a process of its own; return how many changes there were, None if it was killed."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'cli'}"}
        words = [str(device.folder), str(self.daemon.control), what, str(at)]
        done = subprocess.run(
            [sys.executable, "-S", "-B", upgrade_process.__file__, *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            start_new_session=True,
        )
        if done.returncode == -9:
            return None
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, daemon: Daemon) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), daemon)


def boots(device: Device) -> None:
    """The machine starts again: the unit goes on if there is one, and what it runs is whole."""
    if not device.places.unit_link.is_symlink() or not device.places.unit.exists():
        return
    assert (device.places.program / "__main__.py").exists()
    for module in Path(state.__file__).parent.glob("*.py"):
        assert (device.places.program / "eyot_cli/upgrade/install" / module.name).read_bytes() == module.read_bytes()
    device.go_on()


def test_a_beginning_that_is_cut_anywhere_has_happened_or_not(bench: Bench) -> None:
    whole = bench.run(bench.copied("good-arrived"), "begin", 0)
    assert whole is not None
    assert whole >= 12
    for at in range(1, whole + 1):
        device = bench.copied("good-arrived")
        assert bench.run(device, "begin", at) is None
        assert device.version() == FORMER
        has_begun = device.places.state_file.exists()
        boots(device)
        assert device.version() == (NEW if has_begun else FORMER)
        # systemd sees the manifest again, unless it was the last to go.
        is_there = bool(list(device.places.incoming.glob("*.signed")))
        if has_begun and is_there:
            with pytest.raises(Refused, match="it is installed"):
                device.begin()
        elif is_there:
            device.upgrade()
        assert (device.version(), device.last()["outcome"]) == (NEW, "upgraded"), at


@pytest.mark.parametrize(("kind", "ends"), [("good", (NEW, "upgraded")), ("bad", (FORMER, "returned"))])
def test_an_upgrade_that_is_cut_anywhere_comes_to_its_end(bench: Bench, kind: str, ends: tuple[str, str]) -> None:
    whole = bench.run(bench.copied(f"{kind}-begun"), "go-on", 0)
    assert whole is not None
    assert whole >= 15
    for at in range(1, whole + 1):
        device = bench.copied(f"{kind}-begun")
        assert bench.run(device, "go-on", at) is None
        boots(device)
        assert (device.version(), device.last()["outcome"]) == ends, at
        assert not device.places.state_file.exists()
        assert not device.places.unit_link.is_symlink()


@pytest.mark.parametrize("script", [f"{version}-{name}" for version in (FORMER, NEW) for name in SCRIPTS])
def test_dpkg_that_is_cut_in_a_script_is_completed(bench: Bench, script: str) -> None:
    """On the way forth and, where the former package's scripts run, on the way back."""
    device = bench.copied("bad-begun")
    cut = bench.folder / f"cut-{script}"
    cut.touch()
    assert bench.run(device, "go-on", 0) is None
    assert not cut.exists()
    boots(device)
    assert (device.version(), device.last()["outcome"]) == (FORMER, "returned")
    device.is_tidy()
