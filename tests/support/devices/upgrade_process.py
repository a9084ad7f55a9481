"""The root part of an upgrade in a process of its own: `python upgrade_process.py FOLDER CONTROL-SOCKET WHAT`, begin or go-on.

Loads nothing but what the device loads, so that it starts fast.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from eyot_cli.upgrade.install import health
from eyot_cli.upgrade.install.begin import Settings, begin
from eyot_cli.upgrade.install.dpkg import Dpkg
from eyot_cli.upgrade.install.machine import Machine
from eyot_cli.upgrade.install.places import Places

health._ANSWER_S = 60.0  # of a busy machine
SETTINGS = Settings(ring="field", watch_s=10.0, grace_s=10.0)


class PassingClock:
    """A clock that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def places_of(folder: Path) -> Places:
    return Places(
        incoming=folder / "incoming",
        state=folder / "state",
        keys=folder / "keys",
        units=folder / "units",
        os_release=folder / "os-release",
        root=folder / "root",
    )


def dpkg_of(places: Places, *, flushes: bool = False) -> Dpkg:
    """dpkg below a root of its own, where the package's scripts run outside of that root.

    `flushes`: as on a device; else dpkg takes less time, and a power cut would leave nothing of what it wrote.
    """
    options = ["--force-script-chrootless", "--no-triggers"]
    return Dpkg(places.root, places.log_file, options if flushes else [*options, "--force-unsafe-io"])


def systemctl_of(folder: Path) -> list[str]:
    """A systemctl that writes down what it is asked for, and shows what a file says."""
    shows = f'[ "$1" != show ] || cat {folder}/shown 2>/dev/null || true'
    return ["sh", "-c", f'echo "$@" >>{folder}/systemctl.log; {shows}', "systemctl"]


def main() -> None:
    folder, control, what = sys.argv[1:]
    places, clock = places_of(Path(folder)), PassingClock()
    dpkg, systemctl = dpkg_of(places, flushes=True), systemctl_of(Path(folder))
    if what == "begin":
        begin(places, dpkg, replace(SETTINGS, control=Path(control)), clock, systemctl)
    else:
        Machine(places, dpkg, clock, systemctl, lambda line: None).run()


if __name__ == "__main__":
    main()
