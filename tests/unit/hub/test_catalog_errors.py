"""A catalog of Iceberg that fails: one line names it and says why, nothing hangs, and the next run works by itself."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs
from sqlalchemy import event

from eyot_hub.errors import HubError
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.config.config import IcebergCatalog, Lake
from eyot_hub.jobs.lake import iceberg_catalog
from eyot_hub.jobs.lake.iceberg_catalog import catalog_of
from eyot_hub.jobs.lake.lake import existing_table, open_table, table_exists
from eyot_hub.jobs.tables.catalog_errors import CatalogFailed, place
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.main import main
from support.hub.aged_lake import DAYS, SPARK, store, stored
from support.hub.jobs_config import jobs_config
from support.hub.rest_catalog import RestCatalog
from support.servers.server_process import free_port

SCHEMA = pa.schema([("number", pa.int64())])


def lake(folder: Path, **catalog: Any) -> Lake:
    return Lake(path=str(folder / "lake"), format="iceberg", catalog=IcebergCatalog(**catalog))


def append(table: LakeTable, number: int) -> None:
    writer = table.spec.writer()
    writer.write(pa.table({"number": [number]}, schema=SCHEMA), ())
    table.commit(writer.finish(), {"eyot:n": number})


def numbers(at: Lake) -> list[int]:
    table = existing_table(at, "numbers")
    assert table is not None
    return sorted(row["number"] for row in table.to_pylist())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(str(tmp_path / "catalog.db"), {"warehouse": str(tmp_path)}) as running:
        yield running


def test_a_database_whose_disk_is_full(tmp_path: Path) -> None:
    at = lake(tmp_path)
    engine: Any = catalog_of(at).engine  # type: ignore[attr-defined]
    pages = [0]

    @event.listens_for(engine, "checkout")
    def limit(connection: sqlite3.Connection, *_: object) -> None:
        """As a disk that is full: the database keeps its pages and gets no more."""
        connection.execute(f"PRAGMA max_page_count = {pages[0] or 2**30}")

    append(open_table(at, "numbers", SCHEMA), 1)
    pages[0] = 1
    path = re.escape(f"{at.path}/catalog.db")
    names = iter([f"more{number}" for number in range(1000)])
    with pytest.raises(CatalogFailed, match=rf"^catalog sqlite:///{path}: database or disk is full$"):
        [open_table(at, name, SCHEMA) for name in names]
    assert numbers(at) == [1]
    pages[0] = 0
    open_table(at, next(names), SCHEMA)
    append(open_table(at, "numbers", SCHEMA), 2)
    assert numbers(at) == [1, 2]


def test_a_database_that_may_only_be_read(tmp_path: Path) -> None:
    append(open_table(lake(tmp_path), "numbers", SCHEMA), 1)
    at = lake(tmp_path, uri=f"sqlite:///file:{tmp_path}/lake/catalog.db?mode=ro&uri=true")
    table = open_table(at, "numbers", SCHEMA)
    with pytest.raises(CatalogFailed, match="attempt to write a readonly database"):
        append(table, 2)
    assert numbers(at) == [1]
    assert len(list(Path(at.path).rglob("part-*.parquet"))) == 1  # what was not committed takes no room
    append(open_table(lake(tmp_path), "numbers", SCHEMA), 3)
    assert numbers(at) == [1, 3]


def test_a_database_that_is_locked(tmp_path: Path) -> None:
    at = lake(tmp_path, uri=f"sqlite:///{tmp_path}/catalog.db?timeout=0.1")
    table = open_table(at, "numbers", SCHEMA)
    append(table, 1)
    other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CatalogFailed, match=r"/catalog\.db: database is locked"):
        append(table, 2)
    with pytest.raises(CatalogFailed, match="database is locked"):
        table_exists(at, "numbers")
    iceberg_catalog._catalogs.clear()
    with pytest.raises(CatalogFailed, match="database is locked"):
        table_exists(at, "numbers")
    other.execute("ROLLBACK")
    other.close()
    append(open_table(at, "numbers", SCHEMA), 3)
    assert numbers(at) == [1, 3]


def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(CatalogFailed, match=r"/catalog\.db: file is not a database"):
        table_exists(lake(tmp_path, uri=f"sqlite:///{tmp_path}/catalog.db"), "numbers")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, '{"error": {"message": "no token", "type": "NotAuthorized", "code": 401}}', "NotAuthorized: no token"),
        (403, '{"error": {"message": "not yours", "type": "Forbidden", "code": 403}}', "Forbidden: not yours"),
        (500, "<html>\n<h1>Bad</h1>", "RESTError 500: .*<html>"),
        (503, "", "ServiceUnavailableError: RestError: Service Unavailable"),
        (200, "<html>", "its answer is none of an Iceberg catalog"),
        (200, "{}", "its answer is none of an Iceberg catalog"),
    ],
)
def test_a_server_that_refuses(tmp_path: Path, served: RestCatalog, status: int, body: str, said: str) -> None:
    at = lake(tmp_path, type="rest", uri=served.uri)
    table = open_table(at, "numbers", SCHEMA)
    append(table, 1)
    served.refusal = status, body
    for what in (table.refresh, lambda: append(table, 2), lambda: open_table(at, "numbers", SCHEMA)):
        with pytest.raises(CatalogFailed, match=rf"^catalog {served.uri}: .*{said}") as failed:
            what()
        assert "\n" not in str(failed.value)
    served.refusal = None
    append(open_table(at, "numbers", SCHEMA), 3)
    assert numbers(at) == [1, 3]


def test_a_server_that_refuses_every_commit(tmp_path: Path, served: RestCatalog) -> None:
    """Nobody else commits: the jobs do not plan again for ever."""
    config = jobs_config("nats://127.0.0.1", tmp_path)
    config = structs.replace(config, lake=lake(tmp_path, type="rest", uri=served.uri))
    store(config, [stored(number, DAYS[0]) for number in range(1, 5)])
    job = Aggregate(SPARK, config)
    served.refuse_commits = True
    with pytest.raises(Fenced, match="not today"):
        job.round()
    served.refuse_commits = False
    assert job.round().silver[0].added == 4


def test_a_server_that_does_not_answer(tmp_path: Path, served: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lake(tmp_path, type="rest", uri=served.uri)
    table = open_table(at, "numbers", SCHEMA)
    monkeypatch.setattr(iceberg_catalog, "TIMEOUTS_S", (5.0, 0.2))
    served.answering.clear()
    with pytest.raises(CatalogFailed, match=rf"^catalog {served.uri}: no answer in time"):
        table.refresh()
    iceberg_catalog._catalogs.clear()
    with pytest.raises(CatalogFailed, match="no answer in time"):
        table_exists(at, "numbers")
    served.answering.set()
    monkeypatch.undo()
    append(open_table(at, "numbers", SCHEMA), 1)
    assert numbers(at) == [1]


def test_a_server_that_is_away(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(CatalogFailed, match=f"^catalog http://127.0.0.1:{port}/x: Connection refused$"):
        table_exists(lake(tmp_path, type="rest", uri=f"http://me:geheim@127.0.0.1:{port}/x"), "numbers")


def test_a_table_that_was_dropped(tmp_path: Path) -> None:
    at = lake(tmp_path)
    table = open_table(at, "numbers", SCHEMA)
    catalog_of(at).drop_table(("eyot", "numbers"))
    with pytest.raises(CatalogFailed, match=r"Table does not exist: eyot\.numbers"):
        table.refresh()


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("postgresql+psycopg2://me:geheim@db/eyot?sslmode=require", "catalog postgresql+psycopg2://me:***@db/eyot"),
        ("https://me:geheim@catalog:8181/api?token=geheim", "catalog https://catalog:8181/api"),
        ("geheim", "the catalog"),
    ],
)
def test_no_secret_is_named(uri: str, named: str) -> None:
    assert place(uri) == named


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, toml = free_port(), tmp_path / "hub.toml"
    toml.write_text(f"""
        [nats]
        servers = "nats://127.0.0.1"
        [lake]
        path = "{tmp_path}/lake"
        format = "iceberg"
        catalog = {{ type = "rest", uri = "http://127.0.0.1:{port}" }}
        [bronze]
        streams = ["S"]
    """)
    assert main(["maintain", "-c", str(toml), "--once"]) == 1
    assert capsys.readouterr().err == f"eyot-hub: catalog http://127.0.0.1:{port}: Connection refused\n"
    assert issubclass(CatalogFailed, HubError)
