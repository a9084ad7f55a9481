"""From files of bronze to blocks of silver's rows: which rows come, with which identity, to which task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.silver.silver import ROWS_PER_TASK, balanced, quarantine_table, silver_schema
from eyot_hub.jobs.silver.silver_input import Division, Piece, SilverInput, Written, content_hashes, unpacked
from eyot_hub.jobs.tables.file_rows import Range
from support.hub.jobs_config import jobs_config

DAY = datetime(2026, 3, 1, tzinfo=UTC)
DAY_MS = 86_400_000
ALL = Range(7, 0, 1000)
ONE_TASK = Division(1, by_day=True)
Row = dict[str, Any]


def bronze_row(sequence: int, **changed: Any) -> Row:
    at = DAY + timedelta(days=sequence % 5)
    body = {"device": f"d{sequence % 7}", "metric": "m", "at": int(at.timestamp() * 1000), "value": float(sequence)}
    made = {"stream_created_ns": 7, "sequence": sequence, "subject": f"readings.d{sequence % 7}", "domain": "hub"}
    return {**made, "stored_at": DAY + timedelta(days=9), "payload": json.dumps(body).encode(), **changed}


class Bronze:
    """A file of bronze with row groups of three rows, and what a task makes of it."""

    def __init__(self, folder: Path, rows: list[Row]) -> None:
        self.config = jobs_config("nats://127.0.0.1", folder)
        self.table = bronze_table(self.config)
        schema = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
        self.path = "stream=S/date=2026-03-10/part-1.parquet"
        (folder / "lake/bronze" / self.path).parent.mkdir(parents=True)
        pa.parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "lake/bronze" / self.path, row_group_size=3)

    def piece(self, wanted: Range = ALL, held: Range = ALL, part: int = 0, parts: int = 1) -> Piece:
        return Piece(self.path, "S", "2026-03-10", part, parts, 3, (wanted,), (held,))

    def blocks(self, pieces: list[Piece], division: Division = ONE_TASK) -> list[tuple[int, Row]]:
        silver = self.config.silver[0]
        self.quarantine = quarantine_table(self.config)
        source = SilverInput(
            self.table.spec.place,
            silver.shape(by_month=False),
            silver.name,
            parsing.subject_pattern(silver.subjects),
            silver_schema(silver),
            self.quarantine.spec,
            division,
        )
        found: list[tuple[int, Row]] = []
        for task, block in source.blocks(pieces):
            if isinstance(block, Written):
                self.quarantine.commit(block.bad, {})
            else:
                found += [(task, row) for row in unpacked(block).to_pylist()]
        return found

    def poison(self) -> list[Row]:
        tables = [pa.parquet.read_table(file.uri, partitioning=None) for file in self.quarantine.files()]
        return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["sequence"])


def test_origins_and_hashes(tmp_path: Path) -> None:
    rows = [
        bronze_row(1),
        bronze_row(2, origin_domain="edge", origin_stream="O", origin_sequence=40),
        bronze_row(3, origin_stream="O", origin_sequence=41),
        bronze_row(4, domain=None),
        bronze_row(5, subject="other.d1"),
    ]
    found = [row for _, row in Bronze(tmp_path, rows).blocks([Bronze(tmp_path / "x", rows).piece()])]
    origins = [(row["origin_domain"], row["origin_stream"], row["origin_sequence"]) for row in found]
    assert origins == [("hub", "S", 1), ("edge", "O", 40), ("", "O", 41), ("", "S", 4)]
    assert [(row["stream"], row["sequence"], row["device"]) for row in found[:2]] == [("S", 1, "d1"), ("S", 2, "d2")]
    expected = content_hashes(
        pa.array([row["subject"] for row in found]).dictionary_encode(),
        pa.chunked_array([[row["payload"] for row in rows[:4]]], pa.binary()),
    )
    assert [row["content_hash"] for row in found] == expected.to_pylist()


def test_a_hash_depends_on_subject_and_payload_alone() -> None:
    subjects = pa.array(["a", "b", "a", "a", None]).dictionary_encode()
    payloads = pa.chunked_array([[b"1", b"1", b"2", b"1", None]], pa.binary())
    first, second, third, fourth, fifth = content_hashes(subjects, payloads).to_pylist()
    assert first == fourth
    assert len({first, second, third, fifth}) == 4
    assert content_hashes(subjects.slice(3, 1), payloads.slice(3, 1)).to_pylist() == [first]
    # Tables keep hashes: another release must compute the same.
    of_payload, of_subject = (int.from_bytes(blake2b(text, digest_size=8).digest(), "little") for text in (b"1", b"a"))
    assert first % 2**64 == (of_payload + of_subject * 0x9E3779B97F4A7C15) % 2**64


def test_rows_of_the_spans_alone_and_poison_with_its_headers(tmp_path: Path) -> None:
    headers = [("k", "v5")]
    rows = [bronze_row(number) for number in range(1, 5)]
    rows += [bronze_row(5, payload=b"{", headers=headers), bronze_row(6, payload=b"[]"), bronze_row(7, payload=b"")]
    rows += [bronze_row(8, stream_created_ns=8), bronze_row(9)]
    bronze = Bronze(tmp_path, rows)
    found = bronze.blocks([bronze.piece(wanted=Range(7, 2, 8), held=Range(7, 0, 6))])
    assert [row["sequence"] for _, row in found] == [3, 4]
    poison = bronze.poison()
    assert [(row["sequence"], row["reason"], row["payload"]) for row in poison] == [
        (5, "payload is not json", b"{"),
        (6, "payload is no json object", b"[]"),
    ]
    assert [dict(row["headers"] or []) for row in poison] == [dict(headers), {}]


def test_parts_of_a_file_are_the_whole(tmp_path: Path) -> None:
    bronze = Bronze(tmp_path, [bronze_row(number) for number in range(1, 20)])
    parts = [bronze.blocks([bronze.piece(Range(7, 4, 17), part=part, parts=3)]) for part in range(3)]
    assert all(parts)
    assert sorted(row["sequence"] for part in parts for _, row in part) == list(range(5, 18))


@pytest.mark.parametrize("by_day", [True, False])
def test_repeats_meet_in_one_task(tmp_path: Path, by_day: bool) -> None:
    rows = [bronze_row(number) for number in range(1, 200)]
    rows += [{**row, "sequence": row["sequence"] + 199} for row in rows]  # the same messages from another place
    found = Bronze(tmp_path, rows).blocks([Bronze(tmp_path / "x", rows).piece()], Division(4, by_day, 2))
    assert len(found) == len(rows)
    tasks: dict[int, set[int]] = {}
    days: dict[Any, set[int]] = {}
    for task, row in found:
        tasks.setdefault(row["content_hash"], set()).add(task)
        days.setdefault(row["event_date"], set()).add(task)
    assert all(len(one) == 1 for one in tasks.values())
    assert {task for task, _ in found} == {0, 1, 2, 3}
    if by_day:
        assert max(len(one) for one in days.values()) == 2


def test_tasks_of_equal_size() -> None:
    big = [Piece(f"b{number}", "S", "d", 0, 1, ROWS_PER_TASK, (), ()) for number in range(3)]
    small = [Piece(f"s{number}", "S", "d", 0, 1, 1, (), ()) for number in range(1000)]
    groups = balanced([*big, *small], cores=2)
    loads = [sum(piece.rows for piece in group) for group in groups]
    assert (sum(map(len, groups)), len(groups)) == (1003, 6)
    # A file counts as some rows of its own: the small ones are not all in one task.
    assert max(loads) <= ROWS_PER_TASK + 1000
    assert max(map(len, groups)) < 500
    assert balanced(small[:30], cores=2) == [small[:30]]
    assert balanced([], cores=2) == []
