"""The unit that goes on with an upgrade, also at boot: it belongs to no package, so that no package can take it away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import eyot_cli
from eyot_cli.upgrade.install.files import remove, sync_folder, sync_tree, write_whole
from eyot_cli.upgrade.install.places import UNIT, Places
from eyot_cli.upgrade.install.refusal import Stuck

_TEXT: Final = """\
# Written by eyot-upgrade.service for one upgrade, which removes it at its end.
[Unit]
Description=Eyot upgrade: install a package, watch the daemon's health, go back if it is worse
Documentation=man:eyot-upgrade(8)
RequiresMountsFor={state}
# What a power cut or a full disk stopped is tried again without end: nobody visits the device.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=/usr/bin/python3 -I -B {program} continue
Restart=on-failure
RestartSec=120
# At a shutdown dpkg may end what it has begun.
KillMode=mixed
TimeoutStopSec=300
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
"""
_PROGRAM: Final = """\
\"\"\"Goes on with an upgrade, whatever dpkg does to the package that it came from.\"\"\"

import sys

from eyot_cli.upgrade.install.main import main

sys.exit(main())
"""
#: The packages of this module, outermost first, and the folder that they lie in.
_PACKAGES: Final = ("eyot_cli", "eyot_cli/upgrade")
_TOP: Final = Path(eyot_cli.__file__).parents[1]


def write_program(places: Places) -> None:
    """Put these modules into a folder of their own. Raises OSError."""
    program = places.program
    remove(program)
    inner = program / "eyot_cli/upgrade/install"
    inner.mkdir(mode=0o700, parents=True)
    for package in _PACKAGES:
        (program / package / "__init__.py").write_bytes((_TOP / package / "__init__.py").read_bytes())
    for module in sorted((_TOP / "eyot_cli/upgrade/install").glob("*.py")):
        (inner / module.name).write_bytes(module.read_bytes())
    (program / "__main__.py").write_text(_PROGRAM)
    sync_tree(program)


def write_unit(places: Places) -> None:
    """Have systemd start the unit at every boot. Raises OSError."""
    places.unit_link.parent.mkdir(parents=True, exist_ok=True)
    write_whole(places.unit, _TEXT.format(state=places.state, program=places.program).encode(), mode=0o644)
    if not places.unit_link.is_symlink():
        os.symlink(places.unit, places.unit_link)
        sync_folder(places.unit_link.parent)


def start_unit(systemctl: Sequence[str]) -> None:
    """Have systemd read the unit and start it. Raises Stuck."""
    for words in (("daemon-reload",), ("start", "--no-block", UNIT)):
        try:
            done = subprocess.run([*systemctl, *words], capture_output=True, text=True, check=False)
        except OSError as error:
            raise Stuck(f"systemctl: {error.strerror}") from error
        if done.returncode != 0:
            raise Stuck(f"systemctl {words[0]}: {done.stderr.strip()}")


def remove_unit(places: Places) -> None:
    """Undo `write_unit`. The process that systemd started goes on. Raises OSError."""
    for path in (places.unit_link, places.unit):
        if path.is_symlink() or path.exists():
            path.unlink()
            sync_folder(path.parent)


def reload_units(systemctl: Sequence[str]) -> None:
    """Have systemd forget the unit; without a systemd that answers there is nothing to forget."""
    with suppress(OSError):
        subprocess.run([*systemctl, "daemon-reload"], capture_output=True, check=False)


def starting_process(systemctl: Sequence[str]) -> str | None:
    """Return the id of the daemon's process that is starting, for example while it recovers a large store; None: none is."""
    command = [*systemctl, "show", "eyotd.service", "--property=SubState,MainPID"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    return found.get("MainPID") if found.get("SubState") == "start" else None
