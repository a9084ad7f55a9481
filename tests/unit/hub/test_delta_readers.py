"""Programs that share nothing with the hub read its Delta tables (docs/hub/formats.md)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake.lake import open_table

SCHEMA = pa.schema([("device", pa.string()), ("day", pa.string()), ("value", pa.float64())])
DAYS = ("2026-01-01", "2026-01-02")


def table_of(folder: Path) -> str:
    """The path of a table with three rows of each of two days, in a commit each, and joined afterwards."""
    table = open_table(Lake(path=str(folder)), "readings", SCHEMA, ("day",))
    for number, day in enumerate(DAYS):
        for part in range(3):
            writer = table.spec.writer()
            rows = pa.table({"device": [f"d{part}"], "value": [number + part / 10]})
            writer.write(rows, (("day", day),))
            table.commit(writer.finish(), {"eyot:S@1": 10 * number + part})
    table.compact()
    return str(folder / "readings")


def test_duckdb_reads_a_table(tmp_path: Path) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    (file,) = Path(str(duckdb_extension_delta.__file__)).parent.rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
    query = (
        f"SELECT device, day, value FROM delta_scan('{table_of(tmp_path)}') WHERE day = '2026-01-02' ORDER BY device"
    )
    assert connection.execute(query).fetchall() == [("d0", DAYS[1], 1.0), ("d1", DAYS[1], 1.1), ("d2", DAYS[1], 1.2)]


def test_pandas_and_arrow_read_a_table(tmp_path: Path) -> None:
    table = DeltaTable(table_of(tmp_path))
    assert sorted(table.to_pandas()["value"]) == [0.0, 0.1, 0.2, 1.0, 1.1, 1.2]
    found = table.to_pyarrow_table(filters=[("day", "=", DAYS[0])])
    assert sorted(found.column("device").to_pylist()) == ["d0", "d1", "d2"]
