"""What an upgrade has reached, in a file that a power cut leaves whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from eyot_cli.upgrade.install.files import write_whole
from eyot_cli.upgrade.install.health import Before
from eyot_cli.upgrade.install.refusal import Stuck

#: dpkg installs the new package.
INSTALL: Final = "install"
#: The new package is installed, and its health is watched.
WATCH: Final = "watch"
#: dpkg installs the package that was kept.
BACK: Final = "back"
#: The kept package is installed again, and its health is looked at.
RETURNED: Final = "returned"
#: All is done but for what the upgrade leaves behind.
DONE: Final = "done"
PHASES: Final = (INSTALL, WATCH, BACK, RETURNED, DONE)


@dataclass
class State:
    """An upgrade under way. It exists from the moment at which all that it needs is on flash."""

    phase: str
    #: names of files in `Places.staged` and `Places.kept`, and their versions
    staged: str
    version: str
    sha256: str
    kept: str
    former: str
    before: Before
    #: the daemon's control socket
    control: str
    #: how long the new version is watched, and for how long it may be worse, seconds
    watch_s: float
    grace_s: float
    #: how often the installation and the watch have begun
    installs: int = 0
    watches: int = 0
    #: why the device goes back; "": it does not
    reason: str = ""
    #: how it ended: `upgraded`, `returned` or `superseded`
    outcome: str = ""
    format: int = 1


def load(path: Path) -> State | None:
    """Return what an upgrade has reached; None: there is no upgrade under way. Raises Stuck."""
    try:
        members: dict[str, Any] = json.loads(path.read_bytes())
        if members.get("format") != 1 or members.get("phase") not in PHASES:
            raise ValueError("it is of another release")
        known = {each.name for each in fields(State)}
        return State(
            **{name: value for name, value in members.items() if name in known}
            | {"before": Before(**members["before"])}
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Stuck(
            f"{path}: {error}: look at dpkg -l eyot, install a package by hand, and remove this file"
        ) from error


def save(path: Path, state: State) -> None:
    """Write what an upgrade has reached. Raises OSError."""
    write_whole(path, json.dumps(asdict(state)).encode())


def refused_packages(path: Path) -> list[str]:
    """Return the SHA-256 of the packages from which this device went back."""
    try:
        return [line.split(maxsplit=1)[0] for line in path.read_text().splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def refuse(path: Path, state: State) -> None:
    """Note that the package is not to be tried again. Raises OSError."""
    if state.sha256 not in refused_packages(path):
        before = path.read_text() if path.exists() else ""
        line = " ".join(f"{state.sha256} {state.version} {state.reason}".split())
        write_whole(path, f"{before}{line}\n".encode(), mode=0o644)


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Keep a second process out; give whether nobody else had the lock. `wait`: until nobody has."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
