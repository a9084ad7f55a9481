"""Programs and libraries of JavaScript that tests use, fetched from npm once and kept beside the Python environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

_CLIENTS = Path(__file__).parents[2] / "interop" / "clients"


def javascript_folder(name: str = "") -> Path:
    """Return a folder where node finds what `interop/clients/NAME/package.json` lists. Raises CalledProcessError without npm's registry."""
    packages = _CLIENTS / name / "package.json"
    folder = Path(sys.prefix) / (name or "javascript")
    listed, modules = folder / "package.json", folder / "node_modules"
    is_same = listed.exists() and listed.read_bytes() == packages.read_bytes()
    if not is_same or not all((modules / each).exists() for each in json.loads(packages.read_bytes())["dependencies"]):
        folder.mkdir(exist_ok=True)
        shutil.copy(packages, folder)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
