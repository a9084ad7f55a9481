"""What streams in memory may take up where no limit is configured: three quarters of the machine's memory, as with nats-server.

Of the machine, or of the control group (systemd's `MemoryMax=`) that the daemon runs in. What a message takes in this process beside
its bytes counts, too: of small messages that is most of it. Adding up all streams for every message would be slow, so that a part of
the room is handed out before it is looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: What a message in memory takes up beside subject, header and payload.
MESSAGE_OVERHEAD: Final = 640
_CGROUPS: Final = Path("/sys/fs/cgroup")


class MemoryBound:
    """`bytes_max`: what may be taken up, below 0: without bound. `taken`: what is, when somebody has to look."""

    def __init__(self, bytes_max: int, taken: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._taken = taken
        self._handed_out = 0

    def has_room(self, size: int, messages: int) -> bool:
        """Whether so many bytes in so many messages may be stored, which then are."""
        if self.bytes_max < 0:
            return True
        size += messages * MESSAGE_OVERHEAD
        if size > self._handed_out:
            room = self.bytes_max - self._taken()
            if room < size:
                return False
            self._handed_out = max(room // 16, size)
        self._handed_out -= size
        return True


def machine_memory(proc: Path = Path("/proc/self/cgroup"), cgroups: Path = _CGROUPS) -> int:
    """Bytes of memory that this process may use at most."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits(proc, cgroups)])


def _group_limits(proc: Path, cgroups: Path) -> list[int]:
    """`memory.max` of the process's control group and of those above it (cgroup v2)."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group, limits = cgroups / path, []
    while group != cgroups and cgroups in group.parents:
        try:
            text = (group / "memory.max").read_text().strip()
        except OSError:
            text = ""
        if text.isdigit():
            limits.append(int(text))
        group = group.parent
    return limits
