"""`/usr/libexec/eyot/eyot-upgrade begin` and `continue`: what the units run, as root."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from eyot_cli.upgrade.install.begin import Settings, begin
from eyot_cli.upgrade.install.dpkg import Dpkg
from eyot_cli.upgrade.install.health import SystemClock
from eyot_cli.upgrade.install.machine import Machine
from eyot_cli.upgrade.install.places import Places
from eyot_cli.upgrade.install.refusal import Refused, Stuck

#: sysexits.h: a mistake on the command line, in the configuration.
_USAGE, _CONFIG = 64, 78
_SYSTEMCTL: Final = ("systemctl",)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}


class Stopping:
    """SIGTERM ends the process, but not while dpkg is at work: then it ends afterwards."""

    def __init__(self) -> None:
        self._is_busy = self._is_asked = False

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)

    def busy(self, is_busy: bool) -> None:
        self._is_busy = is_busy
        if self._is_asked and not is_busy:
            sys.exit(0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
        if not self._is_busy:
            sys.exit(0)


def settings_of(environment: Mapping[str, str]) -> Settings:
    """Read what `/etc/eyot/upgrade.conf` gives to the units. Raises ValueError."""
    ring = environment.get("EYOT_UPGRADE_RING", "")
    if not ring:
        raise ValueError("EYOT_UPGRADE_RING is missing")
    return Settings(
        ring=ring,
        control=Path(environment.get("EYOT_CONTROL", "/run/eyot/control.sock")),
        watch_s=_seconds(environment, "EYOT_UPGRADE_WATCH", "10m"),
        grace_s=_seconds(environment, "EYOT_UPGRADE_GRACE", "5m"),
    )


def _seconds(environment: Mapping[str, str], name: str, default: str) -> float:
    text = environment.get(name, default)
    found = re.fullmatch(r"([0-9]{1,6})([smh]?)", text)
    if found is None:
        raise ValueError(f"{name}={text}: a time is a number and s, m or h")
    return float(found[1]) * _SECONDS[found[2]]


def main() -> int:
    """Run a subcommand; return the exit status."""
    places, clock = Places(), SystemClock()
    dpkg = Dpkg(places.root, places.log_file)
    if len(sys.argv) != 2 or sys.argv[1] not in ("begin", "continue"):
        print("usage: eyot-upgrade begin|continue (eyot-upgrade.service runs it)", file=sys.stderr)
        return _USAGE
    try:
        if sys.argv[1] == "begin":
            print(begin(places, dpkg, settings_of(os.environ), clock, _SYSTEMCTL), flush=True)
        else:
            stopping = Stopping()
            stopping.install()
            Machine(places, dpkg, clock, _SYSTEMCTL, lambda line: print(line, flush=True), stopping.busy).run()
    except ValueError as error:
        print(f"/etc/eyot/upgrade.conf: {error}", file=sys.stderr)
        return _CONFIG
    except (Refused, Stuck, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
