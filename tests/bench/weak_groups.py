"""Control groups of a weak machine: a tenth of one core and 256 MB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PERIOD_US, SHARE, MEMORY = 100_000, 0.1, 256 << 20


@contextmanager
def groups() -> Iterator[list[Path]]:
    """Control groups of version 2 or 1 with the limits, for a broker to enter."""
    root = Path("/sys/fs/cgroup")
    quota = int(PERIOD_US * SHARE)
    if (root / "cgroup.controllers").exists():
        limits = {root: {"cpu.max": f"{quota} {PERIOD_US}", "memory.max": str(MEMORY)}}
        (root / "cgroup.subtree_control").write_text("+cpu +memory")
    else:
        limits = {
            root / "cpu": {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)},
            root / "memory": {"memory.limit_in_bytes": str(MEMORY)},
        }
    made: list[Path] = []
    try:
        for folder, values in limits.items():
            group = folder / f"eyot-bench-{os.getpid()}"
            group.mkdir()
            made.append(group)
            for name, value in values.items():
                (group / name).write_text(value)
        yield made
    finally:
        for group in made:
            group.rmdir()


def within(groups: list[Path]) -> list[str]:
    """The beginning of a command that runs in these groups."""
    enter = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec chrt --other 0 "$@"'  # a quota does not hold for real time
    return ["sh", "-c", enter, "sh", *map(str, groups), "--"]
