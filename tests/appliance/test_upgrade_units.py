"""The daemon's unit and those for upgrades, renewals, configuration and the fleet, and the package that a device makes again of what is installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from eyot_cli.upgrade.install.dpkg import Dpkg
from eyot_cli.upgrade.install.repack import repack

UNITS = (
    "eyotd.service",
    *("eyot-upgrade.path", "eyot-upgrade.service", "eyot-upgrade-fetch.service", "eyot-upgrade-fetch.timer"),
    *("eyot-renew.service", "eyot-renew.timer"),
    *("eyot-configure.service", "eyot-configure.timer", "eyot-fleet.service"),
)


@pytest.fixture(scope="module")
def units(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The units by their names, with what they start where it was unpacked."""
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    found = {path.name: path for path in root.glob("**/systemd/system/eyot*") if path.is_file()}
    for path in (*found.values(), *root.glob("**/systemd/system/eyot*.d/*.conf")):
        path.write_text(re.sub(r"(?m)^(Exec\w+)=/usr/", rf"\1={root}/usr/", path.read_text()))
    return found


def test_systemd_reads_every_line_of_the_units(units: dict[str, Path]) -> None:
    assert sorted(units) == sorted(UNITS)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units.values()], capture_output=True, text=True, check=False
    )
    ours = [line for line in (checked.stdout + checked.stderr).splitlines() if "eyot" in line]
    assert ours == []


@pytest.mark.parametrize("name", [each for each in UNITS if each.endswith(".service")])
def test_the_services_are_closed_to_all_but_what_they_need(units: dict[str, Path], name: str) -> None:
    """By systemd's own measure, from 0 (nothing is open) to 10."""
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=12", units[name]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_the_units_start_runs_on_debians_python(units: dict[str, Path]) -> None:
    for unit, words, said in (
        ("eyot-upgrade.service", ["none"], "usage: eyot-upgrade begin|continue"),
        ("eyot-upgrade-fetch.service", ["--help"], "--refused"),
        ("eyot-renew.service", ["--help"], "--if-due"),
        ("eyot-configure.service", ["--help"], "eyot configure"),
        ("eyot-fleet.service", ["--help"], "eyot-fleet"),
    ):
        command = re.search(r"(?m)^ExecStart=(\S+)((?: [a-z]+)*)", units[unit].read_text())
        assert command is not None
        known = [] if words == ["none"] else command[2].split()
        done = subprocess.run([command[1], *known, *words], capture_output=True, text=True, check=False)
        assert said in done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")
def test_the_installed_package_is_packed_again(package: Path, tmp_path: Path) -> None:
    """File for file, with owners and modes, from what dpkg installed."""
    admin = tmp_path / "root/var/lib/dpkg"
    for name in ("info", "updates"):
        (admin / name).mkdir(parents=True)
    (admin / "status").touch()
    forced = ["--force-script-chrootless", "--force-depends", "--force-unsafe-io"]
    dpkg = Dpkg(tmp_path / "root", tmp_path / "log", forced)
    with dpkg.locked():
        said = dpkg.install(package)
    assert dpkg.installed("eyot")[0] == "installed", said
    kept = repack(dpkg, "eyot", tmp_path / "kept")
    assert kept.name == package.name

    def listed(file: Path) -> dict[str, tuple[str, ...]]:
        shown = subprocess.run(["dpkg-deb", "-c", file], capture_output=True, text=True, check=True).stdout
        lines = [line.split(maxsplit=5) for line in shown.splitlines()]
        return {path.rstrip("/"): (mode, owner, size) for mode, owner, size, _, _, path in lines if path != "./"}

    expected, found = listed(package), listed(kept)
    # What this machine's dpkg leaves out of every package.
    lacking = {path for path in expected.keys() - found.keys() if path.startswith("./usr/share/")}
    for path in lacking:
        del expected[path]
    # The daemon's group may read the configuration, as tmpfiles and the postinst say.
    assert {path: each for path, each in found.items() if not path.startswith("./etc")} == expected
    with dpkg.locked():
        said = dpkg.install(kept)
    assert dpkg.installed("eyot")[0] == "installed", said
