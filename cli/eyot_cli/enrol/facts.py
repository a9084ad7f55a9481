"""What a device says of itself when it enrols: for the operator to see, and vouched for by nobody."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

_MODELS: Final = ("/proc/device-tree/model", "/sys/class/dmi/id/product_name")
_SERIALS: Final = ("/proc/device-tree/serial-number", "/sys/class/dmi/id/product_serial")
#: machine-id(5) is confidential: what leaves the machine is derived from it for this purpose alone.
_PURPOSE: Final = b"eyot enrolment"
_MAX_CHARS: Final = 200


def hardware_facts(root: Path = Path("/")) -> dict[str, str]:
    """Return model, serial number, machine, architecture, memory, system and version, those that can be told.

    `root`: the folder in which `proc`, `sys` and `etc` are.
    """
    found = {
        "model": _first(root, _MODELS),
        "serial": _first(root, _SERIALS),
        "machine": _machine(root),
        "architecture": platform.machine(),
        "memory": _memory(),
        "system": _system(root),
        "version": metadata.version("eyot"),
    }
    return {name: value[:_MAX_CHARS] for name, value in found.items() if value}


def _first(root: Path, paths: tuple[str, ...]) -> str:
    for path in paths:
        text = _read(root, path)
        if text:
            return text
    return ""


def _read(root: Path, path: str) -> str:
    try:
        return (root / path.lstrip("/")).read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def _machine(root: Path) -> str:
    text = _read(root, "/etc/machine-id")
    return hmac.new(text.encode(), _PURPOSE, hashlib.sha256).hexdigest()[:32] if text else ""


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 2**20} MiB"


def _system(root: Path) -> str:
    for line in _read(root, "/etc/os-release").splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip("\"'")
    return ""
