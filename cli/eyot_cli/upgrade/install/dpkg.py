"""dpkg: what is installed, installing, and completing what a power cut interrupted."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eyot_cli.upgrade.install.refusal import Refused

#: Nobody is there to be asked about a changed configuration file: what the operator wrote stays. Images of Debian that were made from
#: containers have dpkg flush nothing, and a power cut would leave an installed package with empty files.
_FORCED: Final = ("--force-confdef", "--force-confold", "--no-force-unsafe-io")
#: The end of what dpkg printed that is told, characters.
_TOLD: Final = 600
#: dpkg's state of a package that is whole.
INSTALLED: Final = "installed"


def incomplete(package: str, status: str) -> str:
    """Say that dpkg has the package in another state than `INSTALLED`, and what completes the installation."""
    # What dpkg was unpacking when it was cut, dpkg alone takes again: apt finds no archive of it.
    if status in ("", "not-installed", "config-files", "half-installed"):
        remedy = f"dpkg -i {package}_VERSION.deb"
    else:
        remedy = "dpkg --configure -a"
    return f"dpkg has {package} as {status or 'unknown'}: {remedy} completes an installation"


class Dpkg:
    """dpkg on this machine, or below another root with a database of its own."""

    def __init__(self, root: Path, log: Path, options: Sequence[str] = ()) -> None:
        self.root, self._log = root, log
        self._admin = root / "var/lib/dpkg"
        self._options = [*_FORCED, *options]
        if root != Path("/"):
            self._options.append(f"--root={root}")

    # -- what is there ---------------------------------------------------------------------------------------------

    def installed(self, package: str) -> tuple[str, str]:
        """Return dpkg's state of a package and its version; two empty texts if dpkg does not know the package."""
        done = self._query("-W", "-f=${db:Status-Status} ${Version}", package)
        state, _, version = done.partition(" ")
        return state, version

    def record(self, package: str) -> str:
        """Return the paragraph of a package in dpkg's database."""
        return self._query("-s", package)

    def files(self, package: str) -> list[str]:
        """Return the paths of a package, folders included."""
        return [line for line in self._query("-L", package).splitlines() if line.startswith("/")]

    def control_files(self, package: str) -> dict[str, Path]:
        """Return the scripts and lists of a package by their names; `control` is not among them."""
        paths = map(Path, self._query("--control-path", package).splitlines())
        return {path.name.rpartition(".")[2]: path for path in paths}

    def field(self, file: Path, name: str) -> str:
        """Return a field of a package file. Raises Refused."""
        done = subprocess.run(["dpkg-deb", "-f", str(file), name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"{file}: {done.stderr.strip()}")
        return done.stdout.strip()

    def architecture(self) -> str:
        return self._said("dpkg", "--print-architecture").strip()

    def compare(self, version: str, relation: str, other: str) -> bool:
        """`relation`: `lt`, `eq`, `gt` and so on."""
        command = ["dpkg", "--compare-versions", version, relation, other]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _query(self, *words: str) -> str:
        return self._said("dpkg-query", f"--admindir={self._admin}", *words)

    def _said(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        return done.stdout if done.returncode == 0 else ""

    # -- what changes it -------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep apt and other frontends of dpkg away; waits for one that is at work. Raises OSError."""
        handle = os.open(self._admin / "lock-frontend", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def install(self, file: Path) -> str:
        """Install a package file; return the end of what dpkg printed. Whether it worked says `installed`."""
        return self._run("-i", str(file))

    def configure(self) -> str:
        """Complete what was interrupted, as far as that is possible."""
        return self._run("--configure", "-a")

    def _run(self, *words: str) -> str:
        """Run dpkg. What it prints goes into a file: a pipe without its reader would end dpkg."""
        with self._log.open("wb") as log:
            subprocess.run(
                ["dpkg", *self._options, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                env=_environment(),
            )
        return self._log.read_text(errors="replace").strip()[-_TOLD:]


def _environment() -> dict[str, str]:
    """For maintainer scripts that ask nothing, under the lock that `locked` holds."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "DPKG_FRONTEND_LOCKED": "1"}
