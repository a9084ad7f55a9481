"""Many seeds of a random check, from the command line."""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """An empty folder for one seed, which needs no disk where that is possible."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def run_seeds(what: str, run: Callable[[int, int], None], steps: int) -> int:
    """Call `run(seed, steps)` for the seeds of the command line, and print each AssertionError; return the exit status."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=steps)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        try:
            run(seed, asked.steps)
        except AssertionError as violation:
            failed += 1
            print(f"seed {seed}: {violation}")
    print(f"{asked.seeds} seeds, {failed} with violations")
    return 1 if failed else 0
