"""Taking a fetched package: verified again, the present one kept, and all of it on flash before anything changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eyot_cli.upgrade.install import rules, state, unit
from eyot_cli.upgrade.install.dpkg import INSTALLED, Dpkg, incomplete
from eyot_cli.upgrade.install.files import empty, open_regular, private_folder, remove, sync_folder
from eyot_cli.upgrade.install.health import Clock, measure
from eyot_cli.upgrade.install.places import SUFFIX, UNIT, Places
from eyot_cli.upgrade.install.refusal import Refused
from eyot_cli.upgrade.install.repack import repack

_PIECE: Final = 1024 * 1024
#: Room that stays free beside what the upgrade needs, bytes.
_ROOM: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What the operator decides."""

    ring: str
    #: the daemon's control socket
    control: Path = Path("/run/eyot/control.sock")
    #: how long the new version is watched, seconds
    watch_s: float = 600.0
    #: for how long something may be worse than before, seconds
    grace_s: float = 300.0


def begin(places: Places, dpkg: Dpkg, settings: Settings, clock: Clock, systemctl: Sequence[str]) -> str:
    """Take the highest version that has arrived, and hand it to the unit that installs it; return what is to be told.

    Whatever has arrived is gone afterwards: `eyot upgrade fetch` brings it again. Raises Refused, Stuck, OSError.
    """
    places.state.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        with state.lock(places.lock_file, wait=False) as is_free:
            if not is_free:
                return "an upgrade is under way"
            found = state.load(places.state_file)
            if found is None:
                found = _prepare(places, dpkg, settings, clock)
            else:
                unit.write_unit(places)  # a cut at the end may have removed it, and not the state
    finally:
        # Also what was refused: systemd starts this again as long as a manifest is there.
        empty(places.incoming, (SUFFIX, ".deb"))
    unit.start_unit(systemctl)
    return f"from {found.former} to {found.version}: {UNIT} goes on"


def _prepare(places: Places, dpkg: Dpkg, settings: Settings, clock: Clock) -> state.State:
    """Bring all that the upgrade needs to flash, the state file last; return the state. Raises Refused, OSError."""
    unit.remove_unit(places)  # before what it runs
    for folder in (places.staged, places.program):
        remove(folder)
    installed_as, installed = dpkg.installed(rules.PACKAGE)
    if installed_as != INSTALLED:
        raise Refused(incomplete(rules.PACKAGE, installed_as))
    offer = _chosen(places, dpkg, settings, installed)
    staged = _stage(places, offer)
    for name, expected in (
        ("Package", offer.package),
        ("Version", offer.version),
        ("Architecture", offer.architecture),
    ):
        if dpkg.field(staged, name) != expected:
            raise Refused(f"{staged.name}: its {name} is {dpkg.field(staged, name)}, and its manifest says otherwise")
    _check_room(places, dpkg, staged)
    before = measure(settings.control, clock)
    if before is None:
        raise Refused(f"the daemon does not answer at {settings.control}: there is no health to compare with")
    kept = repack(dpkg, rules.PACKAGE, places.kept)
    unit.write_program(places)
    unit.write_unit(places)  # without a state file it removes itself
    made = state.State(
        phase=state.INSTALL, staged=staged.name, version=offer.version, sha256=offer.sha256, kept=kept.name, former=installed,
        before=before, control=str(settings.control), watch_s=settings.watch_s, grace_s=settings.grace_s,
    )  # fmt: skip
    state.save(places.state_file, made)
    for other in places.kept.iterdir():
        if other != kept:
            remove(other)
    return made


def _chosen(places: Places, dpkg: Dpkg, settings: Settings, installed: str) -> rules.Offer:
    """Return the highest version that has arrived and that this device accepts. Raises Refused."""
    keys, release = rules.pinned_keys(places.keys), rules.release_of(places.os_release)
    refused = state.refused_packages(places.refused_file)
    best: rules.Offer | None = None
    reasons = []
    for name, data in _arrived(places.incoming).items():
        try:
            offer = rules.open_signed(data, keys)
            if f"{offer.file_name}{SUFFIX}" != name:
                raise Refused(f"it is the manifest of {offer.file_name}")
            rules.check(offer, dpkg, installed, release, settings.ring, refused)
        except Refused as error:
            reasons.append(f"{name}: {error}")
        else:
            if best is None or dpkg.compare(offer.version, "gt", best.version):
                best = offer
    if best is None:
        raise Refused("; ".join(reasons) or f"nothing has arrived in {places.incoming}")
    return best


def _arrived(incoming: Path) -> dict[str, bytes]:
    """Return the signed manifests of a folder that anybody may have written. Raises Refused."""
    found: dict[str, bytes] = {}
    try:
        folder = os.open(incoming, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in sorted(each for each in os.listdir(folder) if each.endswith(SUFFIX)):
                with os.fdopen(open_regular(folder, name), "rb") as file:
                    found[name] = file.read(rules.SIGNED_MAX)
        finally:
            os.close(folder)
    except OSError as error:
        raise Refused(f"{incoming}: {error.strerror}") from error
    return found


def _stage(places: Places, offer: rules.Offer) -> Path:
    """Copy the package into root's own folder, and verify what was copied. Raises Refused, OSError."""
    path = private_folder(places.staged) / offer.file_name
    folder = os.open(places.incoming, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        source = open_regular(folder, offer.file_name)
    except OSError as error:
        raise Refused(f"{offer.file_name} cannot be read in {places.incoming}: {error.strerror}") from error
    finally:
        os.close(folder)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(source, "rb") as arrived, path.open("xb") as file:
        while (piece := arrived.read(_PIECE)) and size <= offer.size:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
        file.flush()
        os.fsync(file.fileno())
    if size != offer.size or digest.hexdigest() != offer.sha256:
        raise Refused(f"{offer.file_name} is not the package that was signed")
    sync_folder(places.staged)
    return path


def _check_room(places: Places, dpkg: Dpkg, staged: Path) -> None:
    """Refuse an upgrade that would fill the disk: dpkg unpacks beside what is installed, and the present package is kept. Raises Refused."""
    kibibytes = dpkg.field(staged, "Installed-Size")
    unpacked = int(kibibytes) * 1024 if re.fullmatch("[0-9]{1,15}", kibibytes) else 8 * staged.stat().st_size
    for folder in (places.state, dpkg.root / "usr"):
        free = shutil.disk_usage(folder).free
        if free < unpacked + _ROOM:
            raise Refused(
                f"{folder} has {free >> 20} MiB free, and the upgrade needs {(unpacked + _ROOM) >> 20} MiB: make room"
            )
