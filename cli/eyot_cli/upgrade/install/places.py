"""Where the root part of upgrades reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The unit that an upgrade writes for itself, and removes at its end.
UNIT: Final = "eyot-upgrade-install.service"
#: The end of a signed manifest's name; before it stands the name of the package file.
SUFFIX: Final = ".signed"


@dataclass(frozen=True)
class Places:
    """Files and folders; the defaults are those of a device."""

    #: where packages arrive: written by an account without rights, nothing in it is trusted
    incoming: Path = Path("/var/cache/eyot-upgrade")
    #: what root keeps
    state: Path = Path("/var/lib/eyot-upgrade")
    #: the signers' public keys
    keys: Path = Path("/etc/eyot/upgrade-keys")
    #: systemd's units of this machine
    units: Path = Path("/etc/systemd/system")
    os_release: Path = Path("/etc/os-release")
    #: below this dpkg installs
    root: Path = Path("/")

    @property
    def state_file(self) -> Path:
        """What an upgrade under way has reached; there is none at other times."""
        return self.state / "state.json"

    @property
    def last_file(self) -> Path:
        """How the last upgrade ended; everybody may read it."""
        return self.state / "last.json"

    @property
    def refused_file(self) -> Path:
        """The packages from which this device went back: lines of a SHA-256, a version and why. Everybody may read it."""
        return self.state / "refused"

    @property
    def lock_file(self) -> Path:
        return self.state / "lock"

    @property
    def log_file(self) -> Path:
        """What dpkg printed last."""
        return self.state / "dpkg.log"

    @property
    def staged(self) -> Path:
        """The package that is being installed."""
        return self.state / "staged"

    @property
    def kept(self) -> Path:
        """The package that was installed before, for going back."""
        return self.state / "kept"

    @property
    def program(self) -> Path:
        """The modules of this folder as they were when the upgrade began."""
        return self.state / "program"

    @property
    def unit(self) -> Path:
        return self.units / UNIT

    @property
    def unit_link(self) -> Path:
        """What has systemd start the unit at boot."""
        return self.units / "multi-user.target.wants" / UNIT
