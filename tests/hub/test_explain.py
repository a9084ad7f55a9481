"""`eyot-hub explain`: each reading of a window leads to the message at its origin, which the origin still returns."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.main import main
from support.hub.jobs_config import GOLD, jobs_config
from support.hub.streams import Streams
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Hub, Reading, message, series

MINUTE_MS = 60_000
WAIT_S = 60.0


def two_gold_tables(url: str, folder: Path, partition: str) -> tuple[Config, Path]:
    """A configuration and its file: windows by a column with the metric's name, and by a column that is the metric."""
    base = to_builtins(jobs_config(url, folder))
    parsed = {
        **{key: base[key] for key in ("nats", "silver")},
        "lake": {"path": str(folder / "lake"), "partition": partition},
        "bronze": {"streams": ["HUB"]},
        "gold": [GOLD, {"name": "day", "silver": "readings", "metrics": ["value"], "window": "24h"}],
    }
    path = folder / "hub.toml"
    path.write_text("\n".join(f"{key} = {inline(one)}" for key, one in parsed.items()))
    return convert(parsed, "tests"), path


def inline(value: Any) -> str:
    if isinstance(value, dict):
        given = {key: one for key, one in value.items() if one is not None}
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(one)}" for key, one in given.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


def at_origin(streams: Streams, row: dict[str, Any]) -> Reading:
    """The reading that the origin holds at the sequence which a row names."""
    found = streams.api(f"STREAM.MSG.GET.{row['origin_stream']}", {"seq": row["origin_sequence"]})["message"]
    assert found["subject"] == row["subject"]
    body = json.loads(base64.b64decode(found["data"]))
    return body["device"], body["at"], body["value"]


def explained(
    capsys: pytest.CaptureFixture[str], config: Path, *what: str, status: int = 0
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    capsys.readouterr()
    assert main(["explain", "-c", str(config), "--json", *what]) == status
    window, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    return window, rows


@pytest.mark.parametrize("partition", ["day", "month"])
def test_from_a_window_to_the_origin(
    spark: SparkSession, streams: Streams, tmp_path: Path, capsys: pytest.CaptureFixture[str], partition: str
) -> None:
    """Also: readings that gold has not counted yet, other devices, other windows and what quarantine holds."""
    streams.create("ORIGIN", ["readings.>"])
    # The hub's stream has a message of its own first: sequences there differ from those at the origin.
    streams.create("HUB", ["local"], sources=[{"name": "ORIGIN"}])
    streams.publish([("local", b"x")])
    start = NEW_YEAR_MS + 3 * DAY_MS
    first = series("d1", start, 20) + series("d2", start, 20)
    streams.publish([*map(message, first), ("readings.d1", b"poison")])
    copied(streams, 42)
    config, path = two_gold_tables(streams.url, tmp_path, partition)
    hub = Hub(spark, config)
    hub.round()

    window, rows = explained(capsys, path, "minute", "d1", "temperature", "2026-01-04T00:01:30Z")
    expected = [one for one in first if one[0] == "d1" and MINUTE_MS <= one[1] - start < 2 * MINUTE_MS]
    assert [at_origin(streams, row) for row in rows] == expected
    assert [row["value"] for row in rows] == [value for _, _, value in expected]
    assert (window["count"], window["revision"], window["agrees"]) == (len(expected), 1, True)
    assert window["window_start"] == "2026-01-04T00:01:00+00:00"
    assert all(row["counted"] and row["sequence"] == row["origin_sequence"] + 1 for row in rows)

    window, rows = explained(capsys, path, "day", "d2", "value", "2026-01-04T23:59:59.999Z")
    assert [at_origin(streams, row) for row in rows] == [one for one in first if one[0] == "d2"]

    # A late reading that silver has and gold does not: the job ends between the two commits.
    late = ("d1", start + MINUTE_MS + 1, 1000.0)
    streams.publish([message(late)])
    copied(streams, 43)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    hub.aggregate.gold["minute"].table.commit = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        hub.round()
    minute = ("minute", "d1", "temperature", "2026-01-04T00:01:00Z")
    window, rows = explained(capsys, path, *minute)
    assert (window["count"], window["agrees"]) == (len(expected), True)
    assert [at_origin(streams, row) for row in rows if not row["counted"]] == [late]
    Hub(spark, config).round()
    window, rows = explained(capsys, path, *minute)
    assert (window["count"], window["revision"]) == (len(expected) + 1, 2)
    assert all(row["counted"] for row in rows)

    # Silver without the partition that gold was computed from: the command says that they disagree.
    hub = Hub(spark, config)
    silver = hub.aggregate.silver["readings"].table
    silver.commit([], {}, silver.files())
    window, rows = explained(capsys, path, *minute, status=1)
    assert (window["count"], window["agrees"], rows) == (len(expected) + 1, False, [])
    assert main(["explain", "-c", str(path), *minute]) == 1
    assert "silver has 0 of these readings" in capsys.readouterr().out


def copied(streams: Streams, count: int) -> None:
    """Wait until the hub's stream holds so many messages."""
    deadline = time.monotonic() + WAIT_S
    while streams.state("HUB")["messages"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], streams: Streams) -> None:
    """A mistake is named, and no table is created."""
    _, path = two_gold_tables(streams.url, tmp_path, "day")

    def failed(status: int, *what: str) -> str:
        assert main(["explain", "-c", str(path), *what]) == status
        return capsys.readouterr().err

    at = "2026-01-04T00:00:00Z"
    assert "there is no gold table 'hour'" in failed(2, "hour", "d1", "value", at)
    assert "'other' is no metric of gold table day" in failed(2, "day", "d1", "other", at)
    assert "gold/day: aggregate has not run yet" in failed(1, "day", "d1", "value", at)
    assert "no window that ends after the year 9999" in failed(1, "day", "d1", "value", "9999-12-31T23:59:59Z")
    assert not (tmp_path / "lake").exists()
    with pytest.raises(SystemExit) as ended:
        main(["explain", "-c", str(path), "day", "d1", "value", "noon"])
    assert ended.value.code == 2
    assert "'noon' is no time" in capsys.readouterr().err


def test_a_window_without_readings(
    spark: SparkSession, streams: Streams, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams.create("HUB", ["readings.>"])
    streams.publish(map(message, series("d1", NEW_YEAR_MS, 5)))
    config, path = two_gold_tables(streams.url, tmp_path, "day")
    Hub(spark, config).round()
    for device, at in (
        ("d2", "2026-01-01T00:00:00Z"),
        ("d1", "2026-01-01T00:01:00Z"),
        ("d1", "2025-01-01T00:00:00Z"),
    ):
        assert main(["explain", "-c", str(path), "minute", device, "temperature", at]) == 1
        assert "has no window of 'temperature'" in capsys.readouterr().err
