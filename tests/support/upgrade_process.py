"""The root part of an upgrade in a process of its own, which kills itself before the `at`-th thing that it changes.

    python upgrade_process.py FOLDER CONTROL-SOCKET WHAT AT     WHAT: begin or go-on; AT: 0 for never

It prints how many changes there were. A change is what Python's audit events tell of: files opened for writing, renamed and removed,
and programs that are run. Loads nothing but what the device loads, so that it starts fast.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from eyot_cli.upgrade.install import health
from eyot_cli.upgrade.install.begin import Settings, begin
from eyot_cli.upgrade.install.dpkg import Dpkg
from eyot_cli.upgrade.install.machine import Machine
from eyot_cli.upgrade.install.places import Places

health._ANSWER_S = 60.0  # of a busy machine
SETTINGS = Settings(ring="field", watch_s=10.0, grace_s=10.0)
#: Programs and options that only tell something.
_TELLING = ("dpkg-query", "openssl", "--compare-versions", "--print-architecture", "-f", "--fsys-tarfile")
#: Of the modules that are copied, the one that stands for the others.
_MODULE = "health.py"


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


def dpkg_of(places: Places) -> Dpkg:
    """dpkg below a root of its own, where the package's scripts run outside of that root."""
    return Dpkg(places.root, places.log_file, ["--force-script-chrootless", "--force-unsafe-io", "--no-triggers"])


def systemctl_of(folder: Path) -> list[str]:
    """A systemctl that writes down what it is asked for, and shows what a file says."""
    shows = f'[ "$1" != show ] || cat {folder}/shown 2>/dev/null || true'
    return ["sh", "-c", f'echo "$@" >>{folder}/systemctl.log; {shows}', "systemctl"]


def is_change(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    if event == "subprocess.Popen":
        return not set(arguments[1]).intersection(_TELLING)
    if event == "open":
        # What is written beside a file replaces it afterwards, and that counts.
        path = str(arguments[0])
        writes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR)) and not path.endswith(".part")
    elif event in ("os.rename", "os.remove", "os.rmdir", "os.symlink"):
        # Below an open folder, a name stands alone.
        path, writes = str(arguments[0]), not str(arguments[0]).endswith(".part") or event == "os.rename"
        path = path if path.startswith("/") else f"{folder}/{path}"
    else:
        return False
    return writes and path.startswith(folder) and (not path.endswith(".py") or path.endswith(_MODULE))


def main() -> None:
    folder, control, what, at = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    places, clock = places_of(Path(folder)), PassingClock()
    dpkg, systemctl = dpkg_of(places), systemctl_of(Path(folder))
    seen: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if is_change(event, arguments, folder):
            seen.append(event)
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if what == "begin":
        begin(places, dpkg, replace(SETTINGS, control=control), clock, systemctl)
    else:
        Machine(places, dpkg, clock, systemctl, lambda line: None).run()
    count = len(seen)
    print(count)


if __name__ == "__main__":
    main()
