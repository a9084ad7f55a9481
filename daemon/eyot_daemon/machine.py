"""What of the machine this process may use: its memory and processors, or the share that its control groups leave.

Source: the kernel's documentation of cgroup v2 (`memory.max`, `cpu.max`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eyot_wire.digits import is_digits

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")


def memory_bytes(proc: Path = _OWN_CGROUP, cgroups: Path = _CGROUPS) -> int:
    """Bytes of memory that this process may use at most."""
    limits = [int(text) for text in _of_groups("memory.max", proc, cgroups) if is_digits(text)]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limits])


def processors(proc: Path = _OWN_CGROUP, cgroups: Path = _CGROUPS) -> float:
    """How many processors this process may use at most; 0.1 is a tenth of one."""
    shares = [share for text in _of_groups("cpu.max", proc, cgroups) if (share := _share(text)) is not None]
    return min([float(len(os.sched_getaffinity(0))), *shares])


def _share(cpu_max: str) -> float | None:
    """Return the processors that `QUOTA PERIOD` leaves; None: no limit."""
    quota, _, period = cpu_max.partition(" ")
    if not (is_digits(quota) and is_digits(period) and int(period)):
        return None
    return int(quota) / int(period)


def _of_groups(file: str, proc: Path, cgroups: Path) -> Iterator[str]:
    """Yield what a file of the process's control group says, and of those above it. In a container the topmost is its own."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group = cgroups / path
    for folder in (group, *group.parents):
        try:
            yield (folder / file).read_text().strip()
        except OSError:
            pass  # the controller is not enabled for this group
        if folder == cgroups:
            return
