"""Memory of the machine, and wear of the flash that holds the store, as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

SYS = Path("/sys")
MEMINFO = Path("/proc/meminfo")
#: `pre_eol_info` of JEDEC eMMC 5.0: reserved blocks.
_RESERVE = {1: "normal", 2: "80 % of the reserved blocks are used", 3: "90 % of the reserved blocks are used"}


class FlashWear(Struct, frozen=True, kw_only=True):
    """Wear of an eMMC or SD device, as it estimates itself."""

    device: str
    #: used part of the device's life, percent (upper bound of its step of ten); over 100: exceeded
    used_percent: int | None = None
    #: state of the reserved blocks
    reserve: str | None = None


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes; null where the kernel does not show them."""

    resident_bytes: int
    machine_bytes: int | None = None
    available_bytes: int | None = None


def flash_wear(path: str, sys: Path = SYS) -> FlashWear | None:
    """Return the wear of the device that holds a directory; None: the kernel does not show it."""
    try:
        number = os.stat(path).st_dev
        block = (sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return None
    for disk in (block, block.parent):  # a partition lies below its disk
        steps, reserve = _words(disk / "device" / "life_time"), _words(disk / "device" / "pre_eol_info")
        if steps or reserve:
            return FlashWear(
                device=disk.name,
                used_percent=max(steps) * 10 if any(steps) else None,  # 0: not defined
                reserve=_RESERVE.get(reserve[0]) if reserve else None,
            )
    return None


def _words(file: Path) -> list[int]:
    """Return the hexadecimal numbers of a file of the kernel's; [] without one."""
    try:
        return [int(word, 16) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


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
