"""A manifest opens one package to the devices of some rings; the rules by which a device accepts it.

A device accepts what a manifest says only after the signature over the manifest's bytes is verified (`signing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from eyot_cli.upgrade.versions import VERSION, compare

#: The package that is upgraded.
PACKAGE: Final = "eyot"
#: The end of the name of a manifest's object; before it stands the name of the package's object.
SUFFIX: Final = ".signed"
#: How far a device's clock may be behind the signer's.
CLOCK_SKEW: Final = timedelta(hours=1)
_NAME: Final = r"\A[a-z0-9][a-z0-9._-]{0,63}\Z"
NAME_RULE: Final = "1 to 64 of a-z, 0-9, '.', '_' and '-'; the first is a letter or a digit"

Version = Annotated[str, Meta(pattern=VERSION)]
Name = Annotated[str, Meta(pattern=_NAME)]
Time = Annotated[datetime, Meta(tz=True)]


class Manifest(Struct, forbid_unknown_fields=True, frozen=True):
    """What is signed. A member that is not known is refused: it may be a condition that this release cannot check."""

    format: Literal[1]
    package: Name
    version: Version
    architecture: Name
    #: Debian's release as in the package's version: `deb12`
    release: Name
    #: of the package file, hexadecimal
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    #: bytes of the package file
    size: Annotated[int, Meta(gt=0)]
    #: the rings whose devices may install the package
    rings: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    issued: Time
    expires: Time
    #: the oldest installed version from which a device may go to this one; empty: any
    minimum: Annotated[str, Meta(pattern=f"\\A\\Z|{VERSION}")] = ""
    #: versions from which a device goes to this one although it is older; nobody goes to them any more
    rollback_from: Annotated[list[Version], Meta(max_length=100)] = []

    @property
    def object_name(self) -> str:
        """The name of the package's object in the bucket."""
        return f"{self.package}_{self.version}_{self.architecture}.deb"


@dataclass(frozen=True)
class Device:
    """Where a package is to be installed: installed version, Debian's architecture and release, ring."""

    version: str
    architecture: str
    release: str
    ring: str


@dataclass(frozen=True)
class Choice:
    """The manifest to install, if there is one, and why each of the others is not installed."""

    manifest: Manifest | None
    refused: list[tuple[Manifest, str]]


def choose(manifests: Sequence[Manifest], device: Device, now: datetime) -> Choice:
    """Return the highest version that the device may install. `now`: aware of its zone."""
    refused: list[tuple[Manifest, str]] = []
    open_here: list[Manifest] = []
    for each in manifests:
        why = _not_for(each, device, now)
        if why is None:
            open_here.append(each)
        else:
            refused.append((each, why))
    best: Manifest | None = None
    for each in open_here:
        why = _not_from(each, device, open_here)
        if why is not None:
            refused.append((each, why))
        elif best is None or compare(each.version, best.version) > 0:
            if best is not None:
                refused.append((best, f"{each.version} is newer"))
            best = each
        else:
            refused.append((each, f"{best.version} is newer"))
    return Choice(best, refused)


def shown_time(time: datetime) -> str:
    """Format a time for people: `2026-01-31 12:00:00 UTC`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _not_for(manifest: Manifest, device: Device, now: datetime) -> str | None:
    """Return why a manifest is not open to this device now; None: it is."""
    if manifest.package != PACKAGE:
        return f"it is for the package {manifest.package}"
    if manifest.architecture != device.architecture:
        return f"it is for {manifest.architecture}, the device is {device.architecture}"
    if manifest.release != device.release:
        return f"it is for {manifest.release}, the device runs {device.release}"
    if device.ring not in manifest.rings:
        return f"it is open to {', '.join(manifest.rings)}, the device is in {device.ring}"
    if now + CLOCK_SKEW < manifest.issued:
        return f"it was signed at {shown_time(manifest.issued)}, later than now: set the device's clock"
    if now >= manifest.expires:
        return f"it expired at {shown_time(manifest.expires)}: sign it again"
    return None


def _not_from(manifest: Manifest, device: Device, open_here: Sequence[Manifest]) -> str | None:
    """Return why the device does not go from its version to the manifest's; None: it does."""
    order = compare(manifest.version, device.version)
    if order == 0:
        return "it is installed"
    for each in open_here:
        if _names(each.rollback_from, manifest.version):
            return f"the rollback to {each.version} withdrew it"
    if order < 0 and not _names(manifest.rollback_from, device.version):
        return f"{device.version} is installed, which is newer, and the manifest is no rollback from it"
    if manifest.minimum and compare(device.version, manifest.minimum) < 0:
        return f"{device.version} is installed, and it needs {manifest.minimum} first"
    return None


def _names(versions: Sequence[str], version: str) -> bool:
    return any(compare(each, version) == 0 for each in versions)
