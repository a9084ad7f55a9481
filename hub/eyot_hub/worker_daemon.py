"""Starts Spark's Python workers, as `pyspark.daemon` does, with PySpark from its folder instead of its archive.

Spark has its workers import PySpark from `python/lib/pyspark.zip`. An archive keeps no compiled modules, so each daemon
compiles a hundred of them, most of a second of CPU before its first task. The folder of the same Spark has them compiled.
The jobs' session names this module in `spark.python.daemon.module`.
"""

from __future__ import annotations

import importlib.util
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ARCHIVE: Final = ("python", "lib", "pyspark.zip")  # in Spark's folder
_VERSION: Final = "version.py"


def prefer_folder() -> bool:
    """Import `pyspark` from Spark's folder, if that holds the version of the archive in `sys.path`; return whether it does."""
    archive = next((Path(entry) for entry in sys.path if Path(entry).parts[-3:] == ARCHIVE), None)
    if archive is None:
        return False
    for folder in _folders(archive):
        initial = folder / "__init__.py"
        # The folder alone: what lies beside it is not this Python's.
        spec = importlib.util.spec_from_file_location("pyspark", initial, submodule_search_locations=[str(folder)])
        assert spec is not None
        assert spec.loader is not None
        sys.modules["pyspark"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return True
    return False


def _folders(archive: Path) -> Iterator[Path]:
    """Yield the folders of the same PySpark: a distribution of Spark has it in `python`, and PySpark from PyPI is Spark's folder."""
    home = archive.parents[2]
    try:
        version = zipimport.zipimporter(str(archive)).get_data(f"pyspark/{_VERSION}")
    except OSError:  # no archive there, or not one with that file
        return
    for folder in (home / "python" / "pyspark", home):
        try:
            if (folder / _VERSION).read_bytes() == version:
                yield folder
        except OSError:
            continue


def main() -> None:
    """Run the daemon until Spark ends it."""
    prefer_folder()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
