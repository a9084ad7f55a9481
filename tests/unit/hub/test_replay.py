"""`eyot-hub replay`: quarantined rows that pass go to silver once, whatever is killed or comes in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eyot_hub.jobs.bronze.bronze import bronze_table, position_id
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.gold.gold import Aggregator, gold_table
from eyot_hub.jobs.silver import replay as replay_module
from eyot_hub.jobs.silver import replays
from eyot_hub.jobs.silver.replay import Replay, Replayed, condition
from eyot_hub.jobs.silver.replays import REPLAY_ID, SPANS_MAX, replays_table, spans_of, uncounted_spans
from eyot_hub.jobs.silver.silver import QUARANTINE_SCHEMA, Refiner, quarantine_table, silver_table
from eyot_hub.jobs.silver.silver_input import content_hashes
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.jobs.tables.increments import Span
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config
from support.hub.killed_jobs import killed, replay
from support.hub.lake_formats import delete_table

pytestmark = pytest.mark.slow

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
Row = dict[str, Any]


def body(sequence: int, **changed: Any) -> bytes:
    at = int(DAY.timestamp() * 1000) + sequence % 3 * 86_400_000
    return json.dumps(
        {"device": f"d{sequence % 5}", "metric": "m", "at": at, "value": sequence / 4, **changed}
    ).encode()


def poison(sequence: int, payload: bytes | None = None, **changed: Any) -> Row:
    """A row of quarantine, which the present rules take unless it is made otherwise."""
    made = {"silver": "readings", "date": date(2026, 3, 1 + sequence % 2), "reason": "payload is not json"}
    made |= {"subject": "readings.d", "payload": body(sequence) if payload is None else payload}
    made |= {"headers": [("k", str(sequence))], "stored_at": datetime(2026, 3, 9, tzinfo=UTC)}
    made |= {"origin_domain": "edge", "origin_stream": "O", "origin_sequence": sequence + 1000}
    return {**made, "stream": "S", "stream_created_ns": 7, "sequence": sequence, **changed}


def fill(config: Config, rows: list[Row]) -> None:
    table = quarantine_table(config)
    writer = table.spec.writer()
    for partition, part in by_partition(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), table.spec.partition_by):
        writer.write(part, partition)
    table.commit(writer.finish(), {})
    silver_table(config, config.silver[0])


def rows_of(table: LakeTable) -> list[Row]:
    inner = pa.schema([field for field in table.spec.schema if field.name not in table.spec.partition_by])
    found = []
    for file in table.files():
        for rows in row_groups(table.spec.place, [file.path], inner):
            found += [{**row, **file.partition} for row in rows.to_pylist()]
    return sorted(found, key=lambda row: (row["stream"], row["sequence"]))


def silver_rows(config: Config) -> list[Row]:
    return rows_of(silver_table(config, config.silver[0]))


def left(config: Config) -> list[int]:
    return [row["sequence"] for row in rows_of(quarantine_table(config))]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return jobs_config("nats://127.0.0.1", tmp_path)


@pytest.mark.usefixtures("each_lake_format")
def test_rows_that_pass_move_and_the_others_stay(config: Config) -> None:
    """Also: a message that is in quarantine twice, subjects and tables that are not this one's, and a second replay."""
    rows = [poison(sequence) for sequence in range(1, 41)]
    rows += [poison(41, b"{"), poison(42, b"{"), poison(43, body(43, metric=None))]
    rows += [poison(44, subject="other.d"), poison(45, silver="others")]
    rows += [poison(46, body(1), origin_sequence=1001)]  # the message of the first row, by another way
    fill(config, rows[:20])
    fill(config, rows[20:])
    done = Replay(config, config.silver[0]).run()
    reasons = {"payload is not json": 2, "metric is missing": 1}
    assert done == Replayed("readings", 44, 41, 40, 1, 41, reasons)
    found = sorted(silver_rows(config), key=lambda row: row["origin_sequence"])
    assert [(row["origin_sequence"], row["value"]) for row in found] == [(n + 1000, n / 4) for n in range(1, 41)]
    expected = content_hashes(
        pa.array([row["subject"] for row in rows[:40]]).dictionary_encode(),
        pa.chunked_array([[row["payload"] for row in rows[:40]]], pa.binary()),
    )
    assert [row["content_hash"] for row in found] == expected.to_pylist()
    assert [row["device"] for row in found] == [f"d{number % 5}" for number in range(1, 41)]
    assert all(row["event_date"] == row["event_time"].date() for row in found)
    kept = rows_of(quarantine_table(config))
    assert [{**row, "headers": list(row["headers"])} for row in kept] == rows[40:45]
    again = Replay(config, config.silver[0]).run()
    assert again == Replayed("readings", 3, 0, 0, 0, 0, reasons)
    assert len(silver_rows(config)) == len(found)


@pytest.mark.usefixtures("each_lake_format")
def test_gold_is_told_once_of_each_replay(config: Config) -> None:
    fill(config, [poison(number) for number in (1, 2, 5)])
    Replay(config, config.silver[0]).run()
    fill(config, [poison(number) for number in (2, 9)])
    Replay(config, config.silver[0]).run()
    silver = silver_table(config, config.silver[0])
    assert silver.position(REPLAY_ID) == 2
    gold = replays_table(config)  # any table: only its position counts
    told = []
    for number in range(3):
        gold.commit([], {REPLAY_ID: number})
        spans = uncounted_spans(config, "readings", silver, gold)
        told.append(sorted({number for span in spans for number in range(span.after + 1, span.until + 1)}))
    assert told == [[1, 2, 5, 9], [2, 9], []]
    assert uncounted_spans(config, "others", silver, replays_table(config)) == []


@pytest.mark.usefixtures("each_lake_format")
def test_a_replay_after_silver_was_deleted(config: Config, tmp_path: Path) -> None:
    """Gold stays and knows the first replay; the next one has another number."""
    fill(config, [poison(1)])
    Replay(config, config.silver[0]).run()
    gold = replays_table(config)
    gold.commit([], {REPLAY_ID: replays.last_replay(silver_table(config, config.silver[0]))})
    delete_table(config, "silver/readings")
    fill(config, [poison(2)])
    Replay(config, config.silver[0]).run()
    silver = silver_table(config, config.silver[0])
    (span,) = uncounted_spans(config, "readings", silver, gold)
    assert (span.after, span.until) == (1, 2)


@pytest.mark.parametrize("when", ["after 1", "before 2", "after 2", "before 3", "after 3"])
@pytest.mark.usefixtures("each_lake_format")
def test_killed_at_each_commit(config: Config, tmp_path: Path, when: str) -> None:
    """The commits are those of replays, silver and quarantine. Each row is in a table meanwhile, and in one in the end."""
    fill(config, [poison(number) for number in range(1, 21)] + [poison(21, b"{")])
    killed(replay, f"LakeTable commit {when}", tmp_path)
    in_silver = [row["sequence"] for row in silver_rows(config)]
    in_quarantine = left(config)
    assert set(in_silver) | set(in_quarantine) == set(range(1, 22))
    assert (len(in_silver), len(in_quarantine)) == {
        "after 1": (0, 21),
        "before 2": (0, 21),
        "after 2": (20, 21),
        "before 3": (20, 21),
        "after 3": (20, 1),
    }[when]
    again = Replay(config, config.silver[0]).run()
    assert (again.added, again.duplicates, again.removed) == {
        (0, 21): (20, 0, 20),
        (20, 21): (0, 20, 20),
        (20, 1): (0, 0, 0),
    }[len(in_silver), len(in_quarantine)]
    assert [row["sequence"] for row in silver_rows(config)] == list(range(1, 21))
    assert left(config) == [21]
    # What gold is told covers all of silver's rows.
    silver = silver_table(config, config.silver[0])
    (span,) = uncounted_spans(config, "readings", silver, quarantine_table(config))
    assert (span.after, span.until) == (0, 20)


@pytest.mark.usefixtures("each_lake_format")
def test_other_jobs_that_commit_in_between(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replay of the same rows reaches silver first; then new poison, and new files, reach the quarantine."""
    fill(config, [poison(number) for number in range(1, 11)])
    real_note, real_without = replays.note_replay, Replay._without

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(replay_module, "note_replay", real_note)
        first = Replay(config, config.silver[0], [condition("sequence<=6")])
        monkeypatch.setattr(first, "_remove", lambda *_: 0)  # killed before it removes them
        assert first.run().added == 6
        real_note(*given)

    def appended(self: Replay, *given: Any) -> Any:
        found = real_without(self, *given)
        monkeypatch.setattr(Replay, "_without", real_without)
        quarantine_table(config).compact()
        fill(config, [poison(11, b"{"), poison(12, b"{")])
        quarantine_table(config).compact()
        return found

    monkeypatch.setattr(replay_module, "note_replay", overtaken)
    monkeypatch.setattr(Replay, "_without", appended)
    done = Replay(config, config.silver[0]).run()
    assert (done.added, done.duplicates, done.removed) == (4, 6, 10)
    assert [row["sequence"] for row in silver_rows(config)] == list(range(1, 11))
    assert left(config) == [11, 12]


@pytest.mark.usefixtures("each_lake_format")
def test_an_aggregation_that_a_replay_overtook_is_refused(config: Config) -> None:
    """Its rows were compared with a silver that lacked the replayed ones."""
    fill(config, [poison(1)])
    session: Any = None  # no task runs
    refiner = Refiner(session, config, config.silver[0], bronze_table(config))
    Replay(config, config.silver[0]).run()
    span = Span("S", 7, 0, 5)
    with pytest.raises(Fenced):
        refiner.table.commit([], refiner._filled([span]))
    refiner.table.refresh()
    refiner.table.commit([], refiner._filled([span]))
    assert (refiner.table.position(position_id("S", 7)), refiner.table.position(REPLAY_ID)) == (5, 1)


def test_gold_is_never_computed_from_a_silver_without_the_replay_that_it_counted(config: Config) -> None:
    fill(config, [poison(1)])
    session: Any = None
    aggregator = Aggregator(session, config, config.gold[0], silver_table(config, config.silver[0]))
    Replay(config, config.silver[0]).run()
    gold_table(config, config.gold[0]).commit([], {REPLAY_ID: 1})  # by another job
    aggregator.round([])
    assert replays.last_replay(aggregator.silver) == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["reason=payload is not json"], [3, 4]),
        (["reason=* is missing"], [5]),
        (["subject=readings.a+b.*"], [4]),
        (["date=2026-03-02"], [3, 5, 7]),
        (["date>=2026-03-02", "sequence<=5"], [3, 5]),
        (["origin_stream=O", "origin_sequence>=1007"], [7]),
        (["stream=T"], []),
        (["origin_domain=*", "sequence=6"], [6]),
    ],
)
def test_conditions(config: Config, where: list[str], expected: list[int]) -> None:
    rows = [poison(number, reason="x y") for number in range(3, 8)]
    rows[0]["reason"] = rows[1]["reason"] = "payload is not json"
    rows[1]["subject"] = "readings.a+b.c"
    rows[2]["reason"] = "metric is missing"
    fill(config, rows)
    done = Replay(config, config.silver[0], [condition(text) for text in where]).run()
    assert (done.read, done.added) == (len(expected), len(expected))
    assert [row["sequence"] for row in silver_rows(config)] == expected
    assert left(config) == [number for number in range(3, 8) if number not in expected]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is none of COLUMN=VALUE"),
        ("reason", "is none of COLUMN=VALUE"),
        ("reason>=x", "reason is a text"),
        ("payload=x", "there is no column 'payload'"),
        ("sequence=x", "'x' is no number"),
        ("sequence>=-1", "'-1' is no number"),
        ("sequence<=10000000000000000000", "is beyond every sequence"),
        ("date=yesterday", "'yesterday' is no date"),
        ("other=1", "there is no column 'other'"),
    ],
)
def test_mistakes_in_conditions(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        condition(text)


TOML = """
[nats]
servers = "nats://127.0.0.1"
[lake]
path = "%LAKE%"
[bronze]
streams = ["READINGS"]
[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
event_time_unit = "ms"
columns = { metric = "string", value = "double" }
"""


def test_the_command(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(TOML.replace("%LAKE%", str(tmp_path / "lake")))
    asked = ["replay", "-c", str(path), "--table"]
    assert main([*asked, "readings"]) == 1
    assert "aggregate has not run yet" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
    fill(config, [poison(1), poison(2), poison(3, b"\x1b{")])
    assert main([*asked, "other"]) == 2
    assert "there is no silver table 'other'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*asked, "readings", "--where", "value=1"])
    assert "there is no column 'value'" in capsys.readouterr().err
    assert main([*asked, "readings", "--json", "--dry-run"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["passed"], row["added"], row["dry_run"], row["left"]) == (2, 0, True, {"payload is not json": 1})
    assert (silver_rows(config), left(config)) == ([], [1, 2, 3])
    assert main([*asked, "readings", "--where", "sequence=2"]) == 0
    assert "1 row parsed again, 1 of them good; 1 row added, 0 duplicates, 1 removed" in capsys.readouterr().out
    assert left(config) == [1, 3]


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_ranges_hold_every_row(step: int) -> None:
    places = [("A", 1), ("A", 2), ("B", 1)]
    numbers = np.arange(5, 5 + 3000 * step, step)
    rows = pa.concat_tables(
        pa.table({"stream": [name] * 3000, "stream_created_ns": [epoch] * 3000, "sequence": numbers})
        for name, epoch in places
    )
    spans = spans_of(rows)
    assert len(spans) <= SPANS_MAX
    found = Counter(
        (span.stream, span.created_ns, number)
        for span in spans
        for number in numbers.tolist()
        if span.holds(span.stream, span.created_ns, number)
    )
    assert found == Counter((name, epoch, number) for name, epoch in places for number in numbers.tolist())
    if step == 1:
        assert [(span.after, span.until) for span in spans] == [(4, 3004)] * 3


def test_portions(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are moved at once, and a stop after the first portion."""
    monkeypatch.setattr(replay_module, "PORTION_ROWS", 10)
    for first in (1, 11, 21):
        fill(config, [poison(number, date=date(2026, 3, 1)) for number in range(first, first + 10)])
    stops: Callable[[], bool] = iter([True]).__next__
    assert Replay(config, config.silver[0]).run(stop=stops).added == 10
    assert len(left(config)) == 20
    assert Replay(config, config.silver[0]).run().added == 20
    assert ([row["sequence"] for row in silver_rows(config)], left(config)) == (list(range(1, 31)), [])
    assert silver_table(config, config.silver[0]).position(REPLAY_ID) == 3
