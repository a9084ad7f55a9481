"""Object storage that is away: a task that failed does not wait for it again for each of its files."""

from __future__ import annotations

from typing import Any, ClassVar

import deltalake.fs
import pyarrow as pa
import pytest

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.tables import files
from eyot_hub.jobs.tables.files import PATIENCE, TASK_PATIENCE, DataFile, FileWriter, Place, filesystem

SCHEMA = pa.schema([("day", pa.string()), ("number", pa.int64())])
ROWS = pa.table({"number": [1]})


class Sink:
    """A file that is being written."""

    closed: ClassVar[list[str]] = []

    def __init__(self, path: str) -> None:
        self.path = path

    def close(self) -> None:
        self.closed.append(self.path)


class Storage:
    """Object storage in memory; `away`: no request succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Sink.closed.clear()
        self.away = False
        self.asked: list[str] = []
        self.options: list[dict[str, str]] = []
        monkeypatch.setattr(files, "filesystem", self.filesystem)

    def filesystem(self, place: Place) -> tuple[Any, str]:
        self.options.append(dict(place.storage))
        return self, ""

    def create_dir(self, _path: str, *, recursive: bool) -> None: ...

    def open_output_stream(self, path: str) -> Any:
        return Sink(path)

    def delete_file(self, path: str) -> None:
        self.asked.append(path)
        if self.away:
            raise OSError("Generic S3 error")


def writer(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> FileWriter:
    """Return a task with one finished file and two open ones."""

    class Parquet:
        def __init__(self, _sink: Sink, *_: object, **__: object) -> None:
            self.is_open = True

        def write_table(self, _rows: pa.Table) -> None: ...

        def close(self) -> None:
            self.is_open = False

    monkeypatch.setattr(files.pq, "ParquetWriter", Parquet)
    made = FileWriter(Place("s3://lake/t", tuple(PATIENCE.items())), SCHEMA, ("day",), "zstd")
    for day in ("1", "2"):
        made.write(ROWS, (("day", day),))
    made._done = [DataFile(f"day=0/{number}.parquet", 1, 1, (("day", "0"),), 0) for number in range(5)]
    return made


def test_one_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(monkeypatch)
    storage.away = True
    made = writer(storage, monkeypatch)
    opened = [file.writer for file in made._open.values()]
    made.abandon()
    assert len(storage.asked) == 1
    assert not any(one.is_open for one in opened)  # or each would be tried again when it is collected
    assert (Sink.closed, storage.options[-1]["retry_timeout"]) == ([], "5s")
    made.discard([DataFile("day=0/6.parquet", 1, 1, (("day", "0"),), 0)])
    assert len(storage.asked) == 1


def test_all_files_leave_storage_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(monkeypatch)
    made = writer(storage, monkeypatch)
    paths = {file.path for file in made._open.values()} | {file.path for file in made._done}
    opened = {file.path for file in made._open.values()}
    made.abandon()
    assert set(storage.asked) == paths
    assert set(Sink.closed) == opened


@pytest.mark.parametrize(
    ("given", "inside", "waits"),
    [
        ({}, True, TASK_PATIENCE["retry_timeout"]),
        ({}, False, PATIENCE["retry_timeout"]),
        ({"retry_timeout": "7s"}, True, "7s"),
    ],
)
def test_tasks_are_less_patient(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], inside: bool, waits: str
) -> None:
    """Spark runs them again."""
    seen: list[dict[str, str]] = []

    real = deltalake.fs.DeltaStorageHandler

    def handler(root: str, options: dict[str, str]) -> Any:
        seen.append(options)
        return real(root, options)

    monkeypatch.setattr(deltalake.fs, "DeltaStorageHandler", handler)
    monkeypatch.setattr(files.TaskContext, "get", lambda: object() if inside else None)
    keys = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "geheim"}
    storage = Lake(path="s3://lake/hub", storage_options={**keys, **given}).storage
    filesystem(Place("s3://lake/hub", tuple(storage.items())))
    assert [options["retry_timeout"] for options in seen] == [waits]
