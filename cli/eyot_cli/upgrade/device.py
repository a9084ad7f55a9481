"""The device that a package is for, as dpkg and Debian know it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.upgrade.install.dpkg import INSTALLED, incomplete
from eyot_cli.upgrade.manifest import PACKAGE, Device

OS_RELEASE: Final = Path("/etc/os-release")


def read_device(ring: str) -> Device:
    """Ask dpkg for the installed version and the architecture. Raises Failure."""
    status, _, version = _said("dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", PACKAGE).partition(" ")
    if status != INSTALLED or not version:
        raise Failure(incomplete(PACKAGE, status))
    return Device(version, _said("dpkg", "--print-architecture"), _release(), ring)


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}: packages are installed on Debian only") from error
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip() or f"exit status {error.returncode}"
        raise Failure(f"{why}: install {PACKAGE} as a package first (apt-get install ./{PACKAGE}_*.deb)") from error
    return done.stdout.strip()


def _release() -> str:
    """Return Debian's release as the packages' versions name it: `deb12`."""
    try:
        found = re.search(r'^VERSION_ID="?([0-9.]+)"?$', OS_RELEASE.read_text(), re.MULTILINE)
    except OSError as error:
        raise Failure(f"{OS_RELEASE}: {error.strerror}") from error
    if found is None:
        raise Failure(f"{OS_RELEASE} names no VERSION_ID: packages are for Debian's stable releases")
    return f"deb{found[1]}"
