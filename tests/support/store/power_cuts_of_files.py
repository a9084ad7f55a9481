"""What a power cut leaves of a folder at every moment of a command: `power_cut.c` makes the copies."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("power_cut.c")


@dataclass(frozen=True)
class Cut:
    """A state of the folder.

    Files with data that the command had not flushed are empty, as file systems with delayed allocation leave them. Names and removals
    reach a journalling file system in their order: they end with the cut.
    """

    number: int
    copy: Path
    unflushed: tuple[str, ...]

    def put(self, folder: Path) -> None:
        """Replace the folder by the state."""
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", self.copy, folder], check=True)
        for name in self.unflushed:
            os.truncate(folder / name, 0)

    def __str__(self) -> str:
        return f"cut {self.number} ({self.copy}), unflushed: {', '.join(self.unflushed) or 'nothing'}"


class PowerCuts:
    """Builds the tracer once, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "power_cut"
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", self._program, SOURCE], check=True)

    def of(self, command: Sequence[str | Path], folder: Path, copies: Path, env: dict[str, str]) -> list[Cut]:
        """Run the command to its end; return every state of the folder on the way that differs from all before."""
        copies.mkdir()
        done = subprocess.run(
            [self._program, folder, copies, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=env,
        )
        assert done.returncode == 0, done.stdout
        return list(_distinct(copies))


def _distinct(copies: Path) -> Iterator[Cut]:
    seen = set()
    for copy in sorted(path for path in copies.iterdir() if path.is_dir()):
        unflushed = tuple(copy.with_name(f"{copy.name}.unflushed").read_text().splitlines())
        digest = _digest(copy, unflushed)
        if digest not in seen:
            seen.add(digest)
            yield Cut(int(copy.name), copy, unflushed)


def _digest(folder: Path, empty: tuple[str, ...]) -> bytes:
    """Of all names, kinds, modes and contents; the files of `empty` count as empty."""
    made = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(place, name)
            relative = str(path.relative_to(folder))
            status = path.lstat()
            content = b""
            if path.is_symlink():
                content = os.readlink(path).encode()
            elif path.is_file() and relative not in empty:
                content = path.read_bytes()
            made.update(f"{relative}\0{status.st_mode}\0{len(content)}\0".encode() + content)
    return made.digest()
