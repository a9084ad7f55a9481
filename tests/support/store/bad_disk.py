"""`eyotd` on a disk that hangs, fails or is full when a test wants it to."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from support.servers.eyotd import Eyotd

_SUPPORT = Path(__file__).parent


def disk_library(folder: Path) -> Path:
    """`disk.c`, compiled."""
    return compiled("disk.c", folder)


def compiled(source: str, folder: Path) -> Path:
    """A library to preload, of a source beside this file."""
    library = (folder / source).with_suffix(".so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, _SUPPORT / source, "-ldl"], check=True)
    return library


class BadDiskEyotd(Eyotd):
    """All is well until `hang` or `fail`, and after `heal`."""

    library: Path

    @property
    def _orders(self) -> Path:
        return self.workdir / "disk"

    def command(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self.library}", f"EYOT_DISK={self._orders}", *super().command()]

    def hang(self) -> None:
        self._order("hang")

    def fail(self, error: int) -> None:
        self._order(str(error))

    def be_plain(self, *, flushes: bool = True) -> None:
        """Know no flags of `pwritev2`, or fail every flush besides."""
        self._order("plain" if flushes else "plain unflushed")

    def heal(self) -> None:
        self._order("")

    def _order(self, word: str) -> None:
        """At one stroke: who reads in the midst of a write reads all or nothing."""
        new = self.workdir / "disk.new"
        new.write_text(word)
        new.replace(self._orders)


class SmallDiskEyotd(BadDiskEyotd):
    """Its store is on a file system of its own of some megabytes, where one can be made; else the disk only says that it is full."""

    megabytes = 48

    def __init__(self, config: str, workdir: Path) -> None:
        super().__init__(config, workdir)
        self.mount = workdir / "small"
        self.mount.mkdir()
        self.unshare = self._way_to_mount()

    def _way_to_mount(self) -> list[str]:
        """The command that gives the daemon mounts of its own: by a user namespace, as root without one; [] where neither may be."""
        ways = (["unshare", "-rm"], ["unshare", "-m"])
        return next((way for way in ways if not subprocess.run([*way, "true"], capture_output=True).returncode), [])

    def command(self) -> list[str]:
        if not self.unshare:
            return super().command()
        make = f'mount -t tmpfs -o size={self.megabytes}m small {self.mount} && exec "$@"'
        return [*self.unshare, "sh", "-c", make, "sh", *super().command()]

    def fill(self) -> None:
        """Nothing is left on the disk."""
        if not self.unshare:
            self.fail(errno.ENOSPC)
            return
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        if self.unshare:
            self._filler.unlink()
        else:
            self.heal()

    @property
    def _filler(self) -> Path:
        """As it is seen from outside of the daemon's namespace."""
        return Path(f"/proc/{self.pid}/root") / os.fspath(self.mount).lstrip("/") / "filler"


class FullDiskEyotd(SmallDiskEyotd):
    """Where nothing may be mounted: its disk says that it is full."""

    def _way_to_mount(self) -> list[str]:
        return []
