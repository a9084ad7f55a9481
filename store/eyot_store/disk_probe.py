"""Asking the disk whether it answers, without wearing it: a read that the system's memory cannot serve."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

_BLOCK = 4096


def ask_disk(path: Path) -> None:
    """Read the beginning of the file at `path` from the disk; returns when the disk answers, even with an error.

    On file systems without direct reads its directory is flushed instead, which costs nothing when nothing has changed.
    """
    with suppress(OSError):
        try:
            _read_past_memory(path)
        except OSError:
            _flush(path.parent)


def _read_past_memory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, _BLOCK) as block:  # aligned as direct reads have to be
            os.preadv(fd, [block], 0)
    finally:
        os.close(fd)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
