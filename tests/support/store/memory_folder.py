"""A temporary folder in memory, for tests that write thousands of small files and wait for nothing else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextmanager
def memory_folder(room: int) -> Iterator[Path]:
    """Give a folder, on disk where the memory's file system has less than `room` bytes free. It goes at the end."""
    is_roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > room
    with tempfile.TemporaryDirectory(prefix="eyot-cuts-", dir=MEMORY if is_roomy else None) as name:
        yield Path(name)
