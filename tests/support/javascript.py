"""Libraries of JavaScript that tests use, fetched from npm once and kept beside the Python environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

_PACKAGES = Path(__file__).parents[1] / "interop" / "clients" / "package.json"


def javascript_folder() -> Path:
    """Return a folder where node finds the libraries that `interop/clients/package.json` lists."""
    folder = Path(sys.prefix) / "javascript"
    listed, modules = folder / "package.json", folder / "node_modules"
    is_same = listed.exists() and listed.read_bytes() == _PACKAGES.read_bytes()
    if not is_same or not all((modules / name).exists() for name in json.loads(_PACKAGES.read_bytes())["dependencies"]):
        folder.mkdir(exist_ok=True)
        shutil.copy(_PACKAGES, folder)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
