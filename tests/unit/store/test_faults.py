"""The disk fails at the n-th write, flush or allocation, for every n of a small workload (`support/store/faults.py`)."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support" / "store"


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SUPPORT / "faults.c", "-ldl"], check=True)
    return library


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("times", "partial"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("committer", ["journal", "lmdb", "beside"])
def test_every_write_fails_once(
    faults: Path, tmp_path: Path, error: int, times: int, partial: bool, committer: str
) -> None:
    done = subprocess.run(
        [sys.executable, SUPPORT / "faults.py", tmp_path, str(error), str(times), str(int(partial)), committer],
        env={**os.environ, "LD_PRELOAD": str(faults), "PYTHONPATH": str(SUPPORT.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs, failed = map(int, done.stdout.split())
    assert runs > 50
    # What failed once beside the loop is tried again, and succeeds.
    assert failed > runs / (4 if committer != "beside" or times > 1 else 20)
