"""The rules of data quality against plain Python, their table, their exit status, and mistakes in them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import to_builtins

from eyot_hub.jobs.config.config import Config, ConfigError
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.reports.quality import Quality, quality_rows
from eyot_hub.jobs.reports.report import render
from eyot_hub.jobs.silver.silver import silver_schema, silver_table
from eyot_hub.jobs.tables import file_rows
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
HOUR = timedelta(hours=1)
Row = dict[str, Any]


def silver_row(sequence: int, device: str = "d1", **changed: Any) -> Row:
    at = NOW - HOUR
    made = {"device": device, "event_time": at, "stored_at": at, "subject": "readings.d", "metric": "m", "value": 1.0}
    origin = {"origin_domain": "hub", "origin_stream": "S", "origin_sequence": sequence, "content_hash": sequence}
    place = {"stream": "S", "stream_created_ns": 7, "sequence": sequence}
    row = {**made, **origin, **place, **changed}
    return {**row, "event_date": row["event_time"].date()}


def with_rules(folder: Path, rules: list[Row], **sections: Any) -> Config:
    """A configuration and its file, hub.json in TOML's place."""
    base = to_builtins(jobs_config("nats://127.0.0.1", folder))
    parsed = {key: base[key] for key in ("nats", "lake", "bronze", "silver")}
    parsed["silver"] = [{**base["silver"][0], "quality": rules}]
    return convert({**parsed, **sections}, "tests")


def fill(config: Config, rows: list[Row]) -> None:
    """Append a file of rows for each day."""
    table = silver_table(config, config.silver[0])
    writer = table.spec.writer()
    made = pa.Table.from_pylist(rows, silver_schema(config.silver[0]))
    for partition, part in by_partition(made, table.spec.partition_by):
        writer.write(part, partition)
    table.commit(writer.finish(), {})


def evaluated(folder: Path, rules: list[Row], *files: list[Row], **sections: Any) -> list[Row]:
    config = with_rules(folder, rules, **sections)
    for rows in files:
        fill(config, rows)
    return Quality(config).run(NOW_US)


@pytest.mark.usefixtures("each_lake_format")
def test_rules_against_plain_python(tmp_path: Path) -> None:
    """Random rows in several files and partitions, with nulls, NaN, repeats and rows older than the period."""
    chance = random.Random(20260310)
    everything = [
        silver_row(
            sequence,
            chance.choice(["d1", "d2", "d3"]),
            event_time=NOW - timedelta(minutes=chance.randrange(60 * 40)),
            stored_at=NOW - timedelta(minutes=chance.randrange(60 * 30)),
            metric=chance.choice(["m", "temperature", "Temp\n", "", None]),
            value=chance.choice([-1.5, 0.0, 20.0, 100.0, 101.0, float("nan"), None]),
        )
        for sequence in range(1, 2001)
    ]
    rules = [
        {"rule": "required", "column": "value"},
        {"rule": "range", "column": "value", "min": 0, "max": 100},
        {"rule": "range", "column": "sequence", "max": 1500.5},
        {"rule": "regex", "column": "metric", "pattern": "m|[a-z]+"},
        {"rule": "unique", "columns": ["device", "event_time", "metric"]},
        {"rule": "rate", "per": "10m", "min": 3, "max": 6},
        {"rule": "freshness", "max_age": "1h"},
    ]
    files = [everything[start : start + 400] for start in range(0, 2000, 400)]
    found = {row["name"]: row for row in evaluated(tmp_path, rules, *files)}
    recent = [row for row in everything if row["stored_at"] >= NOW - 24 * HOUR]
    values = [row for row in recent if row["value"] is not None]
    texts = [row for row in recent if row["metric"] is not None]

    def said(name: str) -> tuple[int, int, int | None]:
        return found[name]["checked"], found[name]["violations"], found[name]["devices"]

    def expected(rows: list[Row], bad: list[Row]) -> tuple[int, int, int]:
        return len(rows), len(bad), len({row["device"] for row in bad})

    assert said("required value") == expected(recent, [row for row in recent if row["value"] is None])
    assert said("range value") == expected(values, [row for row in values if not 0 <= row["value"] <= 100])
    assert said("range sequence") == expected(recent, [row for row in recent if row["sequence"] > 1500])
    unlike = [row for row in texts if not re.fullmatch("m|[a-z]+", row["metric"])]
    assert said("regex metric") == expected(texts, unlike)
    keys = Counter((row["device"], row["event_time"], row["metric"]) for row in texts)
    assert max(keys.values()) > 1
    assert said("unique device event_time metric") == (len(texts), len(texts) - len(keys), None)
    newest = {
        device: max(row["event_time"] for row in everything if row["device"] == device) for device in ["d1", "d2", "d3"]
    }
    assert said("freshness event_time")[:2] == (3, sum(at < NOW - HOUR for at in newest.values()))
    assert said("rate") == rate_of([row for row in everything if row["event_time"] >= NOW - 24 * HOUR], 600, 3, 6)


def rate_of(rows: list[Row], per_s: int, least: int, most: int) -> tuple[int, int, int]:
    """Windows from each device's first row to its last, and how many of them break the rule."""
    counts = Counter((row["device"], int(row["event_time"].timestamp()) // per_s) for row in rows)
    windows = bad = 0
    devices = set()
    for device in {name for name, _ in counts}:
        own = [window for name, window in counts if name == device]
        for window in range(min(own), max(own) + 1):
            windows += 1
            inner = min(own) < window < max(own)
            if counts[device, window] > most or (inner and counts[device, window] < least):
                bad += 1
                devices.add(device)
    return windows, bad, len(devices)


def test_silence_between_two_readings_breaks_a_rate(tmp_path: Path) -> None:
    """Also: examples name device, place and value."""
    at = NOW - 5 * HOUR
    rows = [silver_row(number, event_time=at + timedelta(minutes=number)) for number in (0, 1, 2, 6, 7)]
    rows += [silver_row(10 + number, "d2", event_time=at, value=300.0) for number in range(3)]
    rules = [
        {"rule": "rate", "min": 1, "max": 2, "name": "one or two a minute"},
        {"rule": "range", "column": "value", "max": 100.0},
        {"rule": "unique", "columns": ["device", "event_time"], "severity": "warning"},
        {"rule": "freshness", "max_age": "3h", "allow": 0.5},
    ]
    rate, plausible, unique, fresh = evaluated(tmp_path, rules, rows)
    assert (rate["checked"], rate["violations"], rate["devices"], rate["status"]) == (9, 4, 2, "failed")
    assert rate["examples"] == "d1: 3 windows without a row; d2: 3 rows in 1m from 2026-03-10T07:00:00.000Z"
    assert plausible["examples"] == "d2: 300.0 (S 10); d2: 300.0 (S 11); d2: 300.0 (S 12)"
    assert (unique["violations"], unique["status"]) == (2, "warned")
    assert unique["examples"] == "device d2, event_time 2026-03-10T07:00:00.000Z: 3 times"
    assert (fresh["checked"], fresh["violations"], fresh["status"]) == (2, 2, "failed")
    assert fresh["examples"].startswith("d2: last at 2026-03-10T07:00:00.000Z; d1: last at")


def test_a_rate_takes_whole_windows(tmp_path: Path) -> None:
    """The window in which the period begins would lack rows."""
    config = with_rules(tmp_path, [{"rule": "rate", "per": "10m", "max": 1}])
    begin = NOW - 24 * HOUR
    times = [begin + timedelta(minutes=minute) for minute in (6, 7, 10, 11, 25)]
    fill(config, [silver_row(number, event_time=at) for number, at in enumerate(times)])
    (row,) = Quality(config).run(NOW_US + 5 * 60 * 1_000_000)
    assert (row["checked"], row["violations"], row["period_start"]) == (2, 1, begin + timedelta(minutes=10))


@pytest.mark.usefixtures("each_lake_format")
def test_files_without_rows_of_the_period_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        {"rule": "required", "column": "value"},
        {"rule": "freshness", "max_age": "1h", "forget": "48h", "column": "stored_at"},
    ]
    old = [silver_row(1, "gone", value=None, event_time=NOW - 72 * HOUR, stored_at=NOW - 72 * HOUR)]
    away = [silver_row(2, "away", value=None, event_time=NOW - 36 * HOUR, stored_at=NOW - 36 * HOUR)]
    read: list[str] = []
    real = file_rows.row_groups

    def noting(place: Any, paths: list[str], *more: Any) -> Any:
        read.extend(path for path in paths if path.startswith("event_date"))
        return real(place, paths, *more)

    monkeypatch.setattr("eyot_hub.jobs.reports.quality.row_groups", noting)
    required, fresh = evaluated(tmp_path, rules, old, away, [silver_row(3, stored_at=NOW - HOUR / 2)])
    assert (required["checked"], required["violations"]) == (1, 0)
    assert (fresh["checked"], fresh["violations"], fresh["examples"][:13]) == (2, 1, "away: last at")
    assert sorted(path.partition("/")[0] for path in read) == ["event_date=2026-03-09", "event_date=2026-03-10"]
    required, fresh = evaluated(tmp_path, rules, quality={"period": "0s"})
    assert (required["checked"], required["violations"], required["period_start"]) == (3, 2, None)


def test_since_lasts_until_the_rule_passes_again(tmp_path: Path) -> None:
    """Also: the table survives maintenance, and a silver table that is not there has no data."""
    config = with_rules(tmp_path, [{"rule": "freshness", "max_age": "2h"}])
    job = Quality(config)
    assert [(row["status"], row["share"], row["since"]) for row in job.run(NOW_US)] == [("no_data", None, None)]
    fill(config, [silver_row(1)])
    hour_us = 3600 * 1_000_000
    since = []
    for number in range(5):
        if number == 4:
            fill(config, [silver_row(2, event_time=NOW + 3 * HOUR)])
        (row,) = job.run(NOW_US + number * hour_us)
        assert quality_rows(config) == [row]
        since.append(row["since"])
    assert since == [None, None, NOW + 2 * HOUR, NOW + 2 * HOUR, None]
    # Years ahead for one run: the rule fails, and the next run says since when by the right clock.
    years_us = 5 * 365 * 24 * hour_us
    assert [job.run(NOW_US + years_us)[0]["status"], job.run(NOW_US + 4 * hour_us)[0]["status"]] == ["failed", "passed"]
    assert [job.run(at)[0]["since"] for at in (NOW_US + years_us, NOW_US + 9 * hour_us)][1] == NOW + 9 * HOUR
    assert job.run(NOW_US - years_us)[0]["status"] == "no_data"
    # A row that the hub stored by such a clock keeps no device fresh.
    fill(config, [silver_row(3, event_time=NOW + timedelta(days=5 * 365))])
    assert job.run(NOW_US + 9 * hour_us)[0]["violations"] == 1
    assert "quality" in {one.table for one in Maintenance(config).round()}
    assert quality_rows(config)[0]["checked"] == 1


def test_the_page_names_rules_that_fail(tmp_path: Path) -> None:
    rules = [
        {"rule": "range", "column": "value", "max": 0, "name": "<b>low</b>"},
        {"rule": "required", "column": "metric", "name": "named"},
    ]
    rows = evaluated(tmp_path, rules, [silver_row(1, "<script>")])
    gaps: dict[str, Any] = {"gaps": [], "gap_counts": {}, "gap_rows": 0}
    nothing = {**gaps, "fleet": [], "devices": 0, "silent": 0, "slow": [], "expired": {}}
    tables = [{"table": "bronze", "rows": 1, "files": 1}]
    page = render({"tables": tables, "per_day": [], "origins": [], "quality": rows, **nothing})
    assert "1 of 2 rules of data quality fails: readings: &lt;b&gt;low&lt;/b&gt;." in page
    assert "<span class='chip failed'>failed</span>" in page
    assert "<script>" not in page
    assert "100.00%" in page
    assert "Data quality" not in render({"tables": tables, "per_day": [], "origins": [], "quality": [], **nothing})


TOML = """
[nats]
servers = "nats://127.0.0.1"
[lake]
path = "%LAKE%"
[bronze]
streams = ["READINGS"]
[quality]
period = "0s"
[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
columns = { metric = "string", value = "double" }
[[silver.quality]]
rule = "range"
column = "value"
max = %MAX%
severity = "%SEVERITY%"
"""


@pytest.mark.parametrize(
    ("most", "severity", "status", "word"),
    [(1, "error", 0, "passed"), (0, "warning", 0, "warned"), (0, "error", 1, "failed")],
)
def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], most: int, severity: str, status: int, word: str
) -> None:
    path = tmp_path / "hub.toml"
    text = TOML.replace("%LAKE%", str(tmp_path / "lake")).replace("%MAX%", str(most)).replace("%SEVERITY%", severity)
    path.write_text(text)
    fill(jobs_config("nats://127.0.0.1", tmp_path), [silver_row(1)])
    assert main(["quality", "-c", str(path), "--json"]) == status
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["silver"], row["name"], row["status"], row["checked"]) == ("readings", "range value", word, 1)
    assert main(["quality", "-c", str(path)]) == status
    assert word in capsys.readouterr().out.splitlines()[1]
    path.write_text(text.partition("[[silver.quality]]")[0])
    assert main(["quality", "-c", str(path)]) == 2
    assert "quality needs rules" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"rule": "range", "column": "metric", "min": 1}, r"quality\[0\].column: 'metric' is not a number"),
        ({"rule": "range", "column": "value"}, "min: give min, max or both"),
        ({"rule": "range", "column": "value", "min": 2, "max": 1}, "max: 1 is less than min"),
        ({"rule": "range", "column": "value", "min": float("nan")}, "min: nan is no bound"),
        ({"rule": "range", "column": "sequence", "max": 1e300}, "is no bound"),
        ({"rule": "range", "column": "value", "max": 10**400}, "is no bound"),
        ({"rule": "regex", "column": "value", "pattern": "x"}, "column: 'value' is no text"),
        ({"rule": "regex", "column": "metric", "pattern": "("}, "pattern: Invalid regular expression"),
        ({"rule": "required", "column": "none"}, "column: 'none' is no column"),
        ({"rule": "unique", "columns": ["value", "value"]}, "columns: names a column twice"),
        ({"rule": "unique", "columns": []}, "columns"),
        ({"rule": "freshness", "max_age": "soon"}, "max_age: 'soon' is not a duration"),
        ({"rule": "freshness", "max_age": "1h", "forget": "1h"}, "forget: 1h is not longer than max_age"),
        ({"rule": "rate", "per": "1ms", "max": 1}, "per: 1ms is shorter than 1s"),
        ({"rule": "rate"}, "min: give min, max or both"),
        ({"rule": "rate", "mux": 1}, "mux: there is no such key of this rule"),
        ({"rule": "unlike"}, "unlike"),
        ({"rule": "required", "column": "value", "allow": 1.5}, "allow"),
    ],
)
def test_mistakes_in_rules(tmp_path: Path, rule: Row, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        with_rules(tmp_path, [rule])


def test_two_rules_of_one_name(tmp_path: Path) -> None:
    rule = {"rule": "required", "column": "value"}
    with pytest.raises(ConfigError, match=r"quality\[1\].name: there is another rule 'required value'"):
        with_rules(tmp_path, [rule, rule])
    assert with_rules(tmp_path, [rule, {**rule, "name": "other"}]).silver[0].quality[1].title == "other"
