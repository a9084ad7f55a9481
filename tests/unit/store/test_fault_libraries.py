"""The preloaded disks of the tests: none lets a write of the store pass that it should see.

A disk that fails `pwrite` only is no full disk: LMDB writes a single page with `pwrite` and several with `writev`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import lmdb.cpython
import pytest

SUPPORT = Path(__file__).parents[2] / "support" / "store"
#: Those without a `main`, which are preloaded; `power_cut.c` traces system calls.
LIBRARIES = [path for path in sorted(SUPPORT.glob("*.c")) if "int main(" not in path.read_text()]
#: What changes a file, or has it on flash.
WRITING = {"write", "writev", "pwrite", "pwrite64", "pwritev", "pwritev64", "pwritev2", "pwritev64v2",
           "fsync", "fdatasync", "sync_file_range", "fallocate", "posix_fallocate"}  # fmt: skip
#: What a library need not see, and why.
UNSEEN = {
    "capture.c": {"fsync", "fdatasync"},  # it notes what is written; the test says what had been flushed
    "disk.c": {"write"},  # LMDB's `write` makes copies only, and a log must not fail
    "faults.c": {"write"},
    "unreadable.c": WRITING,  # it fails reads alone
}


def symbols(file: Path | str, *options: str) -> set[str]:
    done = subprocess.run(["nm", "-D", *options, file], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("source", LIBRARIES, ids=lambda path: path.name)
def test_all_that_writes_is_seen(source: Path, tmp_path: Path) -> None:
    built = tmp_path / "library.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    seen = symbols(built, "--defined-only")
    used = symbols(lmdb.cpython.__file__, "--undefined-only") & WRITING
    assert used & {"writev", "pwritev", "pwritev64"}
    assert used - seen <= UNSEEN[source.name]


def test_each_library_is_looked_at() -> None:
    assert {path.name for path in LIBRARIES} == set(UNSEEN)
