"""Private files: written whole or not at all, and readable by the owner alone from the first byte."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from eyot_cli.terminal.failure import Failure

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
#: Characters of a name that would leave its folder or hide it.
_NO_NAMES: Final = ("", ".", "..")


def write_private(path: Path, data: bytes, mode: int = FILE_MODE, *, owner: tuple[int, int] | None = None) -> None:
    """Replace a file in one step; after a power cut it has the old content or the new. Raises Failure.

    `mode`: of the file, whatever the process's umask. `owner`: user and group, where not those of the process. A device or
    a fifo (`-o /dev/null`) is written to and stays what it is.
    """
    if is_special(path):
        _write_to(path, data)
        return
    if not path.name:
        raise Failure(f"{path}: Is a directory: name a file")
    make_folder(path.parent)
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
        try:
            os.fchmod(handle, mode)
            if owner is not None:
                os.fchown(handle, *owner)
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(made, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        raise Failure(f"{path}: {error.strerror}: check the folder's owner and free space") from error


def is_special(path: Path) -> bool:
    """Return whether it is a device or a fifo: something to write to, and not to replace."""
    try:
        return path.is_char_device() or path.is_fifo()
    except OSError:
        return False


def _write_to(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}: name a file") from error


def write_new(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a private file that is not there yet, or `replace` it. Raises Failure."""
    if path.exists() and not replace:
        raise Failure(f"{path} exists: replace it with --force, or name another one")
    write_private(path, data)


def read_text(path: Path) -> str:
    """Read a file of the store. Raises Failure."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


def remove(path: Path) -> bool:
    """Remove a file and its folder if that is empty then; return whether there was a file. Raises Failure."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    try:
        path.parent.rmdir()
    except OSError:
        pass  # it holds more
    return True


def make_folder(path: Path) -> None:
    """Make a private folder, and its parents. Raises Failure."""
    try:
        for each in (*reversed(path.parents), path):
            if not each.exists():
                each.mkdir(FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}: name another place with --all-dirs") from error


def check_name(name: str, what: str) -> str:
    """Return a name that can be a file's, without spaces around it. Raises Failure."""
    clean = name.strip()
    if clean in _NO_NAMES or "/" in clean or "\\" in clean or not clean.isprintable() or len(clean.encode()) > 200:
        raise Failure(f"{name!r} cannot be the name of {what}: it becomes a file's name, so no slashes or dots alone")
    return clean


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
