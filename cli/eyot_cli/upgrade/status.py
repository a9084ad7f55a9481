"""Where this device stands: the installed version, an upgrade under way, how the last one ended, packages it does not try again.

Everything is read from the files of `install/places.py`; nobody is asked, so it works while the daemon does not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from eyot_cli.terminal.show import Piece, console, print_table
from eyot_cli.upgrade.install import state
from eyot_cli.upgrade.install.dpkg import Dpkg
from eyot_cli.upgrade.install.places import SUFFIX, Places
from eyot_cli.upgrade.install.refusal import Stuck
from eyot_cli.upgrade.manifest import PACKAGE

_PHASES: Final = {
    state.INSTALL: "dpkg installs it",
    state.WATCH: "installed, its health is watched",
    state.BACK: "going back",
    state.RETURNED: "went back, the former version's health is watched",
    state.DONE: "at its end",
}
_OUTCOMES: Final = {
    "upgraded": "upgraded",
    "returned": "went back",
    "superseded": "somebody else installed another version",
}


class UnderWay(Struct, frozen=True, kw_only=True):
    """An upgrade that has begun. All but `problem` is unknown (empty) where only root may read it."""

    from_version: str = ""
    to_version: str = ""
    phase: str = ""
    #: how often dpkg and the watch have begun
    installs: int = 0
    watches: int = 0
    #: why the device goes back
    reason: str = ""
    #: why nothing more can be said
    problem: str = ""


class Ended(Struct, frozen=True, kw_only=True, rename={"from_version": "from", "to_version": "to"}):
    """How the last upgrade ended; `at`: RFC 3339."""

    outcome: str
    from_version: str
    to_version: str
    reason: str = ""
    at: str = ""


class RefusedPackage(Struct, frozen=True, kw_only=True):
    """A package from which this device went back."""

    sha256: str
    version: str
    reason: str


class UpgradeStatus(Struct, frozen=True, kw_only=True):
    """`installed`: the version, or dpkg's state; `arrived`: packages that wait; `kept`: what a way back would install."""

    installed: str
    under_way: UnderWay | None
    last: Ended | None
    arrived: list[str]
    kept: list[str]
    refused: list[RefusedPackage]

    @property
    def was_rolled_back(self) -> bool:
        """The last upgrade was rolled back, and nothing else has been installed since."""
        last = self.last
        return (
            self.under_way is None
            and last is not None
            and (last.outcome, last.from_version) == ("returned", self.installed)
        )


def read_status(places: Places) -> UpgradeStatus:
    return UpgradeStatus(
        installed=_installed(places),
        under_way=_under_way(places.state_file),
        last=read_last(places.last_file),
        arrived=[name.removesuffix(SUFFIX) for name in _names(places.incoming, SUFFIX)],
        kept=_names(places.kept, ".deb"),
        refused=_refused(places.refused_file),
    )


def _installed(places: Places) -> str:
    try:
        found, version = Dpkg(places.root, Path(os.devnull)).installed(PACKAGE)
    except OSError:
        return "not as a package"
    if found == "installed":
        return version
    return f"{version} ({found})" if found else "not as a package"


def _under_way(path: Path) -> UnderWay | None:
    if not path.exists():
        return None
    if not os.access(path, os.R_OK):
        return UnderWay(problem="only root may read how far it is")
    try:
        now = state.load(path)
    except Stuck as error:
        return UnderWay(problem=str(error))
    if now is None:  # it has just ended
        return None
    return UnderWay(
        from_version=now.former,
        to_version=now.version,
        phase=now.phase,
        installs=now.installs,
        watches=now.watches,
        reason=now.reason,
    )


def read_last(path: Path) -> Ended | None:
    """Return how the last upgrade ended; None if there was none, or nobody may read it."""
    try:
        said = json.loads(path.read_bytes())
        texts = {name: str(said.get(name, "")) for name in ("outcome", "from", "to", "reason", "at")}
    except (OSError, ValueError, AttributeError):
        return None
    return Ended(
        outcome=texts["outcome"],
        from_version=texts["from"],
        to_version=texts["to"],
        reason=texts["reason"],
        at=texts["at"],
    )


def _refused(path: Path) -> list[RefusedPackage]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [[*line.split(maxsplit=2), "", ""] for line in lines if line.strip()]
    return [RefusedPackage(sha256=each[0], version=each[1], reason=each[2]) for each in words]


def _names(folder: Path, suffix: str) -> list[str]:
    """Return the names of files; none if the folder is missing or closed to us."""
    try:
        return sorted(each.name for each in folder.iterdir() if each.name.endswith(suffix))
    except OSError:
        return []


def show_status(status: UpgradeStatus) -> None:
    """Print it for people."""
    rows: list[tuple[Piece, Piece]] = [("installed", status.installed)]
    now = status.under_way
    if now is None:
        rows.append(("under way", "nothing"))
    elif now.problem:
        rows.append(("under way", f"an upgrade: {now.problem}"))
    else:
        rows.append(("under way", f"from {now.from_version} to {now.to_version}: {_PHASES[now.phase]}"))
        if now.reason:
            rows.append(("", f"because {now.reason}"))
    if status.last is None:
        rows.append(("last upgrade", "none"))
    else:
        last = status.last
        how = _OUTCOMES.get(last.outcome, last.outcome)
        rows.append(("last upgrade", f"{last.at}, from {last.from_version} to {last.to_version}: {how}"))
        if last.reason:
            rows.append(("", f"because {last.reason}"))
    rows.append(("arrived", ", ".join(status.arrived) or "nothing"))
    rows.append(("kept to go back", ", ".join(status.kept) or "nothing"))
    for name, value in rows:
        console.print(f"{name:<16} ", value)
    if status.refused:
        print_table(
            "Not tried again",
            ("Version", "Why", "SHA-256"),
            [(r.version, r.reason, r.sha256) for r in status.refused],
            "",
        )
