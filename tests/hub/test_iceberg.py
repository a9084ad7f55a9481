"""Lakes of Iceberg: in SQL and REST catalogs, on disk and on object storage, and read by others than the hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
import pytest
from msgspec import to_builtins
from pyiceberg.catalog import Catalog, load_catalog

from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table, position_id
from eyot_hub.jobs.config.config import Config, ConfigError
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.lake.iceberg_catalog import catalog_properties
from eyot_hub.jobs.lake.lake import existing_table
from eyot_hub.jobs.tables.catalog_errors import CatalogFailed
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from support.hub.jobs_config import jobs_config
from support.hub.object_storage import ObjectStorage
from support.hub.rest_catalog import RestCatalog

ODD = "Größe=1 #%"  # a stream whose name is no plain folder


def config(folder: Path, **lake: Any) -> Config:
    parsed = to_builtins(jobs_config("nats://127.0.0.1", folder))
    return convert({**parsed, "lake": {"path": str(folder / "lake"), "format": "iceberg", **lake}}, "tests")


@pytest.fixture(params=["sql", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    """A lake on disk in each kind of catalog."""
    if request.param == "sql":
        yield config(tmp_path)
        return
    with RestCatalog(str(tmp_path / "catalog.db"), {"warehouse": str(tmp_path)}) as served:
        yield config(tmp_path, catalog={"type": "rest", "uri": served.uri})
        assert served.requests > 0


def append(table: LakeTable, first: int, count: int, stream: str = ODD) -> None:
    inside = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
    rows = [
        {"stream_created_ns": 1, "sequence": number, "subject": "s", "payload": b"%d" % number, "headers": [("a", "b")]}
        for number in range(first, first + count)
    ]
    writer = table.spec.writer()
    writer.write(pa.Table.from_pylist(rows, inside), (("stream", stream), ("date", "2026-01-01")))
    table.commit(writer.finish(), {position_id(stream, 1): first + count - 1})


def as_others(lake: Config) -> Catalog:
    """The catalog as any program opens it by the properties that the page names."""
    wanted = {name: value for name, value in catalog_properties(lake.lake).items() if name != "py-io-impl"}
    return load_catalog("eyot", **wanted)


def read_by_duckdb(metadata: str) -> list[tuple[Any, ...]]:
    """What DuckDB's own reader of Iceberg finds, which shares nothing with pyiceberg."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (file,) = Path(str(package.__file__)).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    query = f"SELECT stream, strftime(date, '%Y-%m-%d'), sequence, payload, headers FROM iceberg_scan('{metadata}') ORDER BY sequence"
    return connection.execute(query).fetchall()


def test_other_programs_read_the_table(lake: Config) -> None:
    table = bronze_table(lake)
    for first in range(1, 31, 10):
        append(table, first, 10)
    append(table, 31, 10, "T")
    table.compact()
    assert len(table.files()) == 2
    read = as_others(lake).load_table("eyot.bronze")
    assert sorted(read.scan().to_arrow().column("sequence").to_pylist()) == list(range(1, 41))
    pandas = read.scan(row_filter=f"stream == '{ODD}' and sequence > 28").to_pandas()
    assert sorted(pandas["sequence"]) == [29, 30]
    # Statistics and partitions are such that others leave out files.
    assert len(list(read.scan(row_filter="sequence > 30").plan_files())) == 1
    assert len(list(read.scan(row_filter="stream == 'T'").plan_files())) == 1
    assert list(read.scan(row_filter="sequence > 40").plan_files()) == []
    rows = read_by_duckdb(read.metadata_location)
    assert [row[2] for row in rows] == list(range(1, 41))
    assert rows[0] == (ODD, "2026-01-01", 1, b"1", {"a": "b"})
    assert rows[-1][0] == "T"


def test_commits_in_each_catalog(lake: Config) -> None:
    one, other = bronze_table(lake), bronze_table(lake)
    append(one, 1, 10)
    append(other, 1, 10, "T")  # follows the first one: other positions
    with pytest.raises(Fenced):
        append(one, 1, 10, "T")
    one.refresh()
    assert [one.position(position_id(stream, 1)) for stream in (ODD, "T", "U")] == [10, 10, None]
    before = one.version
    one.compact()
    one.remove_files(0)
    append(one, 11, 5)
    assert one.version == before + 1
    assert (one.rows(), len(one.files())) == (25, 3)
    assert one.table_id == other.table_id


def test_a_catalog_that_assigns_places_and_keeps_snapshots(tmp_path: Path) -> None:
    """As Lakana does. The files are where the catalog says, and stay for as long as it keeps the snapshots."""
    with RestCatalog(str(tmp_path / "catalog.db"), {"warehouse": str(tmp_path / "own")}, sovereign=True) as served:
        lake = config(tmp_path, catalog={"type": "rest", "uri": served.uri, "places": "catalog"})
        one, other = bronze_table(lake), bronze_table(lake)
        assert one.root == other.root
        assert one.root.startswith(str(tmp_path / "own"))
        append(one, 1, 10)
        append(one, 11, 10)
        with pytest.raises(Fenced):
            append(other, 1, 10)
        one.compact()
        one.remove_files(0)
        other.refresh()
        assert (other.rows(), len(other.files())) == (20, 1)
        table = as_others(lake).load_table("eyot.bronze")
        assert len(table.metadata.snapshots) == 3
        for snapshot in table.metadata.snapshots[1:]:
            assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 20
        assert len(read_by_duckdb(table.metadata_location)) == 20
        found = existing_table(lake.lake, "bronze")
        assert found is not None
        assert (found.root, found.rows()) == (one.root, 20)
    with RestCatalog(str(tmp_path / "catalog.db"), {"warehouse": str(tmp_path / "own")}, sovereign=True) as served:
        lake = config(tmp_path, catalog={"type": "rest", "uri": served.uri, "namespace": "else"})
        with pytest.raises(CatalogFailed, match="the catalog assigns places"):
            bronze_table(lake)


def test_a_commit_whose_answer_is_lost(tmp_path: Path) -> None:
    """The writer does not know whether the commit was made; nothing of it is removed, and the position tells."""
    with RestCatalog(str(tmp_path / "catalog.db"), {"warehouse": str(tmp_path)}) as served:
        lake = config(tmp_path, catalog={"type": "rest", "uri": served.uri})
        table = bronze_table(lake)
        append(table, 1, 10)
        served.lose_answers = 1
        with pytest.raises(CatalogFailed, match="lost; the commit may have been made, which the next start finds"):
            append(table, 11, 10)
        table.refresh()
        assert table.position(position_id(ODD, 1)) == 20
        found = as_others(lake).load_table("eyot.bronze").scan().to_arrow()
        assert sorted(found.column("sequence").to_pylist()) == list(range(1, 21))


def test_on_object_storage(tmp_path: Path) -> None:
    with ObjectStorage("lake") as storage:
        made = config(
            tmp_path,
            path="s3://lake/fleet",
            storage_options=storage.options,
            catalog={"uri": f"sqlite:///{tmp_path}/catalog.db"},
        )
        table, other = bronze_table(made), bronze_table(made)
        assert "geheim" not in repr(table.spec)
        for first in (1, 11):
            append(table, first, 10)
        with pytest.raises(Fenced):
            append(other, 1, 10)
        table.compact()
        table.remove_files(0)
        assert (len(table.files()), table.rows()) == (1, 20)
        read = as_others(made).load_table("eyot.bronze").scan().to_arrow()
        assert sorted(read.column("sequence").to_pylist()) == list(range(1, 21))


def test_a_table_elsewhere_is_refused(tmp_path: Path) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db"}
    bronze_table(config(tmp_path, catalog=catalog))
    with pytest.raises(Exception, match=r"eyot\.bronze of the catalog is at .*/lake/bronze, not at .*/other/bronze"):
        bronze_table(config(tmp_path, catalog=catalog, path=str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ({"catalog": {"type": "rest"}}, r"lake\.catalog\.uri: is missing"),
        ({"path": "s3://lake/x"}, r"lake\.catalog\.uri: is missing"),
        ({"path": "/tmp/a#b"}, r"lake\.path: must not hold #"),
        ({"catalog": {"namespace": "a..b"}}, r"lake\.catalog: namespace and name must not be empty"),
        ({"catalog": {"typ": "sql"}}, r"lake\.catalog\.typ: there is no such key, did you mean type"),
        ({"catalog": {"properties": {"token": {"env": "NO_SUCH"}}}}, r"lake\.catalog\.properties\.token: .* NO_SUCH"),
    ],
)
def test_mistakes(tmp_path: Path, lake: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(tmp_path, **lake)


def test_secrets_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", "postgresql://me:geheim@db/eyot")
    monkeypatch.setenv("TOKEN", "geheim")
    made = config(tmp_path, catalog={"uri": {"env": "DATABASE"}, "properties": {"token": {"env": "TOKEN"}}})
    assert catalog_properties(made.lake) == {
        "type": "sql",
        "uri": "postgresql://me:geheim@db/eyot",
        "token": "geheim",
        "py-io-impl": "eyot_hub.jobs.lake.iceberg_catalog.DurableFileIO",
    }


def test_without_pyiceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    for name in [name for name in sys.modules if name.startswith("eyot_hub.jobs.") and ".iceberg_" in name]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(HubError, match=r"lake\.format: iceberg needs pyiceberg\.catalog: install eyot\[hub,iceberg\]"):
        bronze_table(config(tmp_path))
