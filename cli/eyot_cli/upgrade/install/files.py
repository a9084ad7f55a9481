"""Files that survive a power cut: written whole, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from eyot_cli.upgrade.install.refusal import Refused

#: A symbolic link is not followed, and a fifo stops nobody.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file, or replace it, so that a power cut leaves the old content or the new. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(handle)
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have what was created, renamed and removed in a folder on flash. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Have a folder and everything below it on flash. Raises OSError."""
    for place, _, names in os.walk(folder):
        for name in names:
            handle = os.open(Path(place, name), _FLAGS)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(place))


def private_folder(path: Path) -> Path:
    """Make a folder that its owner alone may use, if there is none; return it. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def open_regular(folder: int, name: str) -> int:
    """Open a file of an open folder for reading; return its descriptor. Raises Refused, OSError."""
    handle = os.open(name, _FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused(f"{name} is no regular file")
    return handle


def read_trusted(folder: Path, suffix: str, most: int) -> dict[str, bytes]:
    """Return the files of a folder whose names have a suffix, at most `most` bytes of each.

    The folder and the files belong to root, or to the caller, and nobody else may write them. Raises Refused.
    """
    found: dict[str, bytes] = {}
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_owner(folder, os.fstat(handle))
            for name in sorted(os.listdir(handle)):
                if name.endswith(suffix):
                    with os.fdopen(open_regular(handle, name), "rb") as file:
                        _check_owner(folder / name, os.fstat(file.fileno()))
                        found[name] = file.read(most)
        finally:
            os.close(handle)
    except OSError as error:
        raise Refused(f"{error.filename or folder}: {error.strerror}") from error
    return found


def empty(folder: Path, suffixes: tuple[str, ...]) -> None:
    """Remove the files of a folder whose names have one of the suffixes; the folder may belong to anybody."""
    with suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(handle):
                if name.endswith(suffixes):
                    with suppress(FileNotFoundError, IsADirectoryError):
                        os.unlink(name, dir_fd=handle)
        finally:
            os.close(handle)


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise Refused if somebody else than root and the caller can change a file or folder."""
    if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022:
        raise Refused(f"{path}: others may change it: chown root {path}; chmod go-w {path}")
