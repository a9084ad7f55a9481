"""What a commit to an Iceberg table costs: pyiceberg copies the metadata with all of its snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pyiceberg.table
import pytest

from eyot_hub.jobs.config import Lake
from eyot_hub.jobs.lake import open_table

SCHEMA = pa.schema([("number", pa.int64())])


def test_a_commit_copies_the_snapshots_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each look at the metadata: a table that many commits were made to would slow all later ones down."""
    table = open_table(Lake(path=str(tmp_path), format="iceberg"), "table", SCHEMA)
    writer = table.spec.writer()
    writer.write(pa.table({"number": [1, 2]}, SCHEMA), ())
    table.commit(writer.finish(), {"eyot:S@1": 1})
    copies: list[int] = []
    for module in (pyiceberg.table, pyiceberg.catalog):
        real = module.update_table_metadata

        def counted(base_metadata: Any, *given: Any, real: Any = real, **more: Any) -> Any:
            copies.append(len(base_metadata.snapshots))
            return real(base_metadata, *given, **more)

        monkeypatch.setattr(module, "update_table_metadata", counted)
    table.commit([], {"eyot:S@1": 2})
    assert copies == [1, 1]
    copies.clear()
    table.commit([], {"eyot:S@1": 3}, table.files())
    assert copies == [2, 2]
    assert (table.position("eyot:S@1"), table.rows()) == (3, 0)
