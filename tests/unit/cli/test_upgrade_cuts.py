"""Upgrades that a power cut ends before everything that they and dpkg change, and that then go on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eyot_cli.upgrade.install import state
from eyot_cli.upgrade.install.refusal import Refused
from support.devices import upgrade_process
from support.devices.upgrade_device import FORMER, NEW, Daemon, Device, build
from support.store.memory_folder import memory_folder
from support.store.power_cuts_of_files import Cut, PowerCuts

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")]
TESTS = Path(__file__).parents[2]
ROOM = 512 << 20
#: Maintainer scripts change something: a power cut ends dpkg inside of each.
SCRIPTS = {
    name: f'echo >"$DPKG_ROOT/{name}"; rm "$DPKG_ROOT/{name}"' for name in ("preinst", "postinst", "prerm", "postrm")
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.fixture(scope="module")
def power_cuts(tmp_path_factory: pytest.TempPathFactory) -> PowerCuts:
    return PowerCuts(tmp_path_factory.mktemp("power-cuts"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder(ROOM) as made:
        yield made


class Bench:
    """A device to which a package has arrived, and every state in which a power cut leaves it."""

    def __init__(self, folder: Path, daemon: Daemon, power_cuts: PowerCuts, **health: object) -> None:
        self._daemon, self._power_cuts, self._snapshots = daemon, power_cuts, folder / "snapshots"
        key = Ed25519PrivateKey.generate()
        (folder / "packages").mkdir()
        former, new = (
            build(folder / "packages", version, scripts=SCRIPTS, **each)
            for version, each in ((FORMER, {}), (NEW, health))
        )
        self.device = Device(folder / "device", daemon)
        self.device.set_up(former, key)
        self.device.arrives(new, key)

    def cuts(self, what: str) -> list[Cut]:
        """Run a step of the upgrade to its end, in a process of its own."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'cli'}"}
        command = [sys.executable, "-S", "-B", upgrade_process.__file__, self.device.folder, self._daemon.control, what]
        return self._power_cuts.of(command, self.device.folder, self._snapshots, environment)

    @contextmanager
    def after(self, cut: Cut) -> Iterator[Device]:
        """The device as the cut left it."""
        cut.put(self.device.folder)
        try:
            yield Device(self.device.folder, self._daemon)
        except BaseException as error:
            error.add_note(str(cut))
            raise


def boots(device: Device) -> None:
    """The machine starts again: the unit goes on if there is one, and what it runs is whole."""
    if not device.places.unit_link.is_symlink() or not device.places.unit.exists():
        return
    assert (device.places.program / "__main__.py").exists()
    for module in Path(state.__file__).parent.glob("*.py"):
        assert (device.places.program / "eyot_cli/upgrade/install" / module.name).read_bytes() == module.read_bytes()
    device.go_on()


def test_a_beginning_that_is_cut_anywhere_has_happened_or_not(
    folder: Path, daemon: Daemon, power_cuts: PowerCuts
) -> None:
    bench = Bench(folder, daemon, power_cuts)
    cuts = bench.cuts("begin")
    assert len(cuts) >= 40
    for cut in cuts:
        with bench.after(cut) as device:
            assert device.version() == FORMER
            has_begun = device.places.state_file.exists()
            boots(device)
            assert device.version() == (NEW if has_begun else FORMER)
            assert not has_begun or device.last()["outcome"] == "upgraded"
            # systemd sees the manifest again, unless it was the last to go.
            is_there = bool(list(device.places.incoming.glob("*.signed")))
            assert has_begun or is_there
            if has_begun and is_there:
                with pytest.raises(Refused, match="it is installed"):
                    device.begin()
            elif is_there:
                device.begin()
                assert device.places.state_file.exists()


@pytest.mark.parametrize(
    ("health", "ends", "before"),
    [({}, (NEW, "upgraded"), []), ({"store_error": "broken"}, (FORMER, "returned"), [state.INSTALL])],
    ids=["good", "bad"],
)
def test_an_upgrade_that_is_cut_anywhere_comes_to_its_end(
    health: dict[str, object],
    ends: tuple[str, str],
    before: list[str],
    folder: Path,
    daemon: Daemon,
    power_cuts: PowerCuts,
) -> None:
    """`before`: the phases in which the cuts are those of another case."""
    bench = Bench(folder, daemon, power_cuts, **health)
    bench.device.begin()
    cuts = [cut for cut in bench.cuts("go-on") if _phase(cut) not in before]
    assert len(cuts) >= 100
    for cut in cuts:
        with bench.after(cut) as device:
            boots(device)
            assert (device.version(), device.last()["outcome"]) == ends
            assert not device.places.state_file.exists()
            assert not device.places.unit_link.is_symlink()
            assert not device.places.staged.exists()


def _phase(cut: Cut) -> str | None:
    """The phase of the upgrade; None: it has ended."""
    file = cut.copy / "state/state.json"
    return json.loads(file.read_bytes())["phase"] if file.exists() else None
