"""What a Python worker loads before its first task."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

SPARK = Path(pyspark.__file__).parent
LIBRARIES = SPARK / "python" / "lib"
#: What only the driver needs, or only some tasks (object storage, a registry).
NOT_FOR_TASKS = (
    "deltalake",
    "http.client",
    "eyot_hub.jobs.config.config",
    "eyot_hub.jobs.lake.lake",
    "eyot_hub.options",
    "eyot_hub.planning",
    "pandas",
    "pyarrow.dataset",
)
FOUND = "import pyspark; print(pyspark.__file__, prefer_folder, pyspark.__version__)"


def found(home: Path, *more: Path) -> tuple[str, str, str]:
    """Return where a worker of the Spark at `home` finds PySpark, whether it prefers the folder, and the version."""
    path = os.pathsep.join(map(str, [home / "python" / "lib" / "pyspark.zip", *more]))
    program = f"from eyot_hub.worker_daemon import prefer_folder; prefer_folder = prefer_folder(); {FOUND}"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
    )
    file, preferred, version = done.stdout.decode().split()
    return file, preferred, version


def made(home: Path, *, archive: str, folder: str | None) -> Path:
    """Make a Spark whose archive and folder hold PySpark of these versions."""
    (home / "python" / "lib").mkdir(parents=True)
    initial = "from pyspark.version import __version__"
    with zipfile.ZipFile(home / "python" / "lib" / "pyspark.zip", "w") as zipped:
        zipped.writestr("pyspark/__init__.py", initial)
        zipped.writestr("pyspark/version.py", f'__version__ = "{archive}"')
    if folder is not None:
        package = home / "python" / "pyspark"
        package.mkdir()
        (package / "__init__.py").write_text(initial)
        (package / "version.py").write_text(f'__version__ = "{folder}"')
    return home


def test_pyspark_of_pypi_comes_from_its_folder() -> None:
    (py4j,) = LIBRARIES.glob("py4j-*.zip")
    file, preferred, version = found(SPARK, py4j)
    assert (file, preferred, version) == (str(SPARK / "__init__.py"), "True", pyspark.__version__)


def test_pyspark_of_a_distribution_comes_from_its_folder(tmp_path: Path) -> None:
    home = made(tmp_path / "spark", archive="9.1", folder="9.1")
    assert found(home) == (str(home / "python" / "pyspark" / "__init__.py"), "True", "9.1")


@pytest.mark.parametrize("folder", [None, "9.2"])
def test_a_folder_of_another_version_is_not_taken(tmp_path: Path, folder: str | None) -> None:
    home = made(tmp_path / "spark", archive="9.1", folder=folder)
    assert found(home) == (str(home / "python/lib/pyspark.zip/pyspark/__init__.py"), "False", "9.1")


def test_nothing_beside_the_folder_is_found(tmp_path: Path) -> None:
    """Beside PySpark of PyPI lie the driver's packages, which are not the executor's."""
    home = made(tmp_path / "pyspark", archive="9.1", folder=None)
    for name in ("__init__.py", "version.py"):
        shutil.copy(made(tmp_path / "other", archive="9.1", folder="9.1") / "python" / "pyspark" / name, home / name)
        shutil.rmtree(tmp_path / "other")
    (tmp_path / "beside.py").touch()
    program = (
        "import importlib.util; from eyot_hub.worker_daemon import prefer_folder; "
        "assert prefer_folder(); assert importlib.util.find_spec('beside') is None"
    )
    path = str(home / "python" / "lib" / "pyspark.zip")
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=True)


@pytest.mark.parametrize(
    "module", ["bronze.bronze_task", "silver.silver_task", "gold.gold_task", "maintenance.erasure_task"]
)
def test_tasks_load_nothing_of_the_driver(module: str) -> None:
    program = (
        f"import sys, pyspark.worker, eyot_hub.jobs.{module}; print(*sorted(set(sys.modules) & set({NOT_FOR_TASKS})))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == []
