"""Figures of a server process from the kernel."""

from __future__ import annotations

import time
from pathlib import Path

from support.servers.server_process import ServerProcess

_CPUCLOCK_SCHED = 2
"""Of a process, in the number of its clock (clock_getcpuclockid(3)); the process's number is above three bits, inverted."""


def cpu_s(server: ServerProcess) -> float:
    """Processor time so far, in all threads, seconds; finer than the ticks of 10 ms in `/proc`."""
    return time.clock_gettime(~server.pid << 3 | _CPUCLOCK_SCHED)


def resident_bytes(server: ServerProcess) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def wakeups(server: ServerProcess) -> int:
    """How often its threads have waited and gone on."""
    found = 0
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                found += int(line.split()[1])
    return found


def written_bytes(server: ServerProcess) -> int:
    """Bytes that the process had written to disks."""
    for line in Path(f"/proc/{server.pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise RuntimeError("no write_bytes")
