"""Memory of this process and of the machine, as the kernel shows it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

MEMINFO = Path("/proc/meminfo")


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes; null where the kernel does not show them."""

    resident_bytes: int
    machine_bytes: int | None = None
    available_bytes: int | None = None


def memory(resident_bytes: int, meminfo: Path = MEMINFO) -> Memory:
    """Return the memory of this process and of the machine."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        sizes = {key: int(value.split()[0]) * 1024 for key, value in lines.items()}
    except (OSError, ValueError, IndexError):
        sizes = {}
    return Memory(
        resident_bytes=resident_bytes,
        machine_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
    )
