"""Iceberg's metadata on a disk that is full: what cannot be written is removed, and the next run works by itself."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.table import LakeTable

SCHEMA = pa.schema([("number", pa.int64())])


class Disk:
    """Writes metadata, until it is full: in the middle of the write, or as the file is closed."""

    def __init__(self) -> None:
        self.writes_left: int | None = None  # None: any number
        self.at_close = False
        self.hit: list[str] = []  # files that did not fit
        self.real = PyArrowFile.create

    def create(self, file: PyArrowFile, overwrite: bool = False) -> Any:
        return LimitedStream(self, self.real(file, overwrite), file._path)

    def is_full(self) -> bool:
        if self.writes_left is None:
            return False
        self.writes_left -= 1
        return self.writes_left < 0


class LimitedStream:
    def __init__(self, disk: Disk, stream: OutputStream, path: str) -> None:
        self._disk, self._stream, self._path = disk, stream, path
        self._full = False

    def write(self, data: bytes) -> int:
        if not self._full and self._disk.is_full():
            self._full = True
            self._disk.hit.append(self._path)
        if not self._full:
            return self._stream.write(data)
        written = self._stream.write(data[: len(data) // 2])
        if self._disk.at_close:
            return written
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        if self._full and self._disk.at_close:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(PyArrowFile, "create", lambda file, overwrite=False: disk.create(file, overwrite))
    return disk


def filled(lake: Lake, number: int) -> LakeTable:
    table = open_table(lake, "numbers", SCHEMA)
    writer = table.spec.writer()
    writer.write(pa.table({"number": [number]}, schema=SCHEMA), ())
    table.commit(writer.finish(), {"eyot:n": number})
    return table


@pytest.mark.parametrize("at_close", [False, True])
def test_a_full_disk(tmp_path: Path, disk: Disk, at_close: bool) -> None:
    """At every single write: of the table's creation, of its first commit, and of a commit to it."""
    disk.at_close = at_close
    hit = 0
    for after in range(100):
        lake = Lake(path=str(tmp_path / str(after)), format="iceberg")
        disk.hit.clear()
        disk.writes_left = after
        with suppress(OSError):
            filled(lake, 1)
            filled(lake, 2)
        disk.writes_left = None
        hit += bool(disk.hit)
        assert [path for path in disk.hit if Path(path).exists()] == []
        table = filled(lake, 3)
        rows = sorted(row["number"] for row in table.to_pylist())
        assert rows in ([3], [1, 3], [1, 2, 3])
        assert table.position("eyot:n") == 3
        if not disk.hit:
            assert rows == [1, 2, 3]
            break
    assert hit > 3
