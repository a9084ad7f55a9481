"""Directories that are there after a power cut: made, and flushed with every one above them that was made for them."""

from __future__ import annotations

import os
from pathlib import Path


def make_directories(path: Path, mode: int) -> None:
    """Create `path` and its missing parents durably. Raises OSError.

    A directory is an entry of its parent, which is flushed after the creation. Without that flush, a power cut may
    remove the directory with all flushed files in it.
    """
    path = path.absolute()
    missing = []
    above = path
    while not above.exists():
        missing.append(above)
        above = above.parent
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for made in reversed(missing):
        flush_directory(made.parent)


def flush_directory(path: Path) -> None:
    """Make the names in `path` durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
