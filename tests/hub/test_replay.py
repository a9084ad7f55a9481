"""A replay of the quarantine, and gold: replayed readings lie below gold's position, and count in their windows once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession

from eyot_hub.jobs.aggregate import AggregateRound
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.reports.explain import explain
from eyot_hub.jobs.silver.replay import Replay
from support.hub.jobs_config import GOLD, SILVER, jobs_config
from support.hub.streams import Streams
from support.hub.truth import NEW_YEAR_MS, Hub, Reading, message, series, truth


def in_seconds(reading: Reading) -> tuple[str, bytes]:
    """A message of a device whose clock tells the time under another name."""
    subject, payload = message(reading)
    body = json.loads(payload)
    body["time"] = body.pop("at")
    return subject, json.dumps(body).encode()


def mended(url: str, folder: Path) -> Config:
    """The configuration whose event time is the field that some devices send."""
    base: dict[str, Any] = to_builtins(jobs_config(url, folder))
    parsed = {key: base[key] for key in ("nats", "lake", "bronze")}
    return convert({**parsed, "silver": [{**SILVER, "event_time": "$.time"}], "gold": [GOLD]}, "tests")


def rows_counted(done: AggregateRound) -> int:
    return done.gold[0].rows


def test_gold_counts_replayed_readings_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Also when the replay is killed before it removes them from quarantine, and when silver and gold are filled anew."""
    streams.create("READINGS", ["readings.>"])
    good, odd = series("d1", NEW_YEAR_MS, 60), series("d1", NEW_YEAR_MS + 120_001, 30)
    streams.publish([*map(message, good), *map(in_seconds, odd), ("readings.x", b"{")])
    Hub(spark, jobs_config(streams.url, tmp_path)).round()
    config = mended(streams.url, tmp_path)
    hub = Hub(spark, config)
    assert hub.gold() == truth(good)
    job = Replay(config, config.silver[0])

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    job._remove = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        job.run()
    # Gold has not counted them yet, and explain says so.
    at_ns = (NEW_YEAR_MS + 120_001) * 1_000_000
    before = explain(config, config.gold[0], "d1", "temperature", at_ns)
    assert (before.agrees, before.found < len(before.readings)) == (True, True)
    done = hub.round()
    assert rows_counted(done) == len(odd)
    assert hub.gold() == truth(good + odd)
    after = explain(config, config.gold[0], "d1", "temperature", at_ns)
    assert (after.agrees, after.found) == (True, len(before.readings))
    revisions = hub.revisions()
    assert set(revisions.values()) == {1, 2}
    again = Replay(config, config.silver[0]).run()
    assert (again.added, again.duplicates, again.removed, again.left) == (0, 30, 30, {"payload is not json": 1})
    assert not hub.round().busy
    assert (hub.gold(), hub.revisions(), hub.reasons()) == (truth(good + odd), revisions, ["payload is not json"])
    # A second replay finds nothing; new readings are counted beside it.
    late = series("d1", NEW_YEAR_MS + 3_600_000, 5)
    streams.publish(map(in_seconds, late))
    assert rows_counted(hub.round()) == len(late)
    assert hub.gold() == truth(good + odd + late)
    hub.aggregate.rebuild(set())
    assert hub.gold() == truth(odd + late)  # by the present rules, which do not take the first readings
    assert len(hub.reasons()) == len(good) + 1
