"""The package of this checkout, built once for all tests of the appliance."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def package() -> Path:
    """dist/eyot_VERSION_ARCH.deb, built anew."""
    built = subprocess.run([TOP / "packaging" / "build-deb"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    shown = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    (package,) = (TOP / "dist").glob(f"eyot_*_{shown.stdout.strip()}.deb")
    return package
