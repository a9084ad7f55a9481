"""Limit of streams in memory where none is configured: three quarters of the machine's memory, as in nats-server.

A control group of the daemon (systemd's `MemoryMax=`) bounds the machine's memory. The overhead of a message
in this process counts, too: it is most of a small message. Adding up all streams for every message would be slow: a part of
the room is handed out before the streams are added up again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Overhead of a message in memory beside subject, header and payload, bytes.
MESSAGE_OVERHEAD: Final = 640
_CGROUPS: Final = Path("/sys/fs/cgroup")


class MemoryBound:
    """`bytes_max`: limit in bytes; below 0: none. `taken` counts the bytes used; it is called when the last allowance is used up."""

    def __init__(self, bytes_max: int, taken: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._taken = taken
        self._handed_out = 0

    def has_room(self, size: int, messages: int) -> bool:
        """Return whether `size` bytes in `messages` messages may be stored, and count them as stored."""
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
