"""Silver and gold against the truth computed in plain Python, with late data, repeats and poison."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession

from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.fleet import Fleet
from support.hub.jobs_config import SILVER, jobs_config
from support.hub.streams import Message, Streams
from support.hub.table_kills import Trial
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Hub, message, series, truth


@pytest.fixture
def readings_stream(streams: Streams) -> Streams:
    streams.create("READINGS", ["readings.>"])
    return streams


def test_late_data_corrects_exactly_what_it_touches(
    spark: SparkSession, readings_stream: Streams, tmp_path: Path
) -> None:
    hub = Hub(spark, jobs_config(readings_stream.url, tmp_path))
    first = series("d1", NEW_YEAR_MS, 400) + series("d2", NEW_YEAR_MS + 3 * DAY_MS, 400)
    readings_stream.publish(map(message, first))
    done = hub.round()
    assert hub.gold() == truth(first)
    assert set(hub.revisions().values()) == {1}
    assert (done.silver[0].added, done.gold[0].corrected) == (800, 0)
    # A device that was away for three days: some of its minutes exist already, most are new.
    late = series("d1", NEW_YEAR_MS + 3 * DAY_MS, 300)
    late += [("d1", NEW_YEAR_MS + 100, 1000.0), ("d2", NEW_YEAR_MS, 0.5)]
    readings_stream.publish(map(message, late))
    done = hub.round()
    assert hub.gold() == truth(first + late)
    revisions = hub.revisions()
    assert {key for key, revision in revisions.items() if revision == 2} == {("d1", NEW_YEAR_MS)}
    assert done.gold[0].corrected == 1
    assert not hub.round().busy
    assert hub.revisions() == revisions


def test_the_same_message_twice_is_one_row(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Two streams of the hub source the same origin; then one of them is made again and copies everything again."""
    streams.create("ORIGIN", ["readings.>"])
    readings = series("d1", NEW_YEAR_MS, 100)
    streams.publish(map(message, readings))
    config = jobs_config(streams.url, tmp_path, ["HUB_*"], fail_on_data_loss=False)
    for name in ("HUB_A", "HUB_B"):
        streams.create(name, sources=[{"name": "ORIGIN"}])
        while streams.state(name)["messages"] < 100:
            pass
    hub = Hub(spark, config)
    done = hub.round()
    assert (done.silver[0].read, done.silver[0].added, done.silver[0].duplicates) == (200, 100, 100)
    streams.delete("HUB_A")
    streams.create("HUB_A", sources=[{"name": "ORIGIN"}])
    while streams.state("HUB_A")["messages"] < 100:
        pass
    done = hub.round()
    assert (done.silver[0].added, done.silver[0].duplicates) == (0, 100)
    assert hub.gold() == truth(readings)


def test_poison_goes_to_quarantine_with_a_reason(spark: SparkSession, readings_stream: Streams, tmp_path: Path) -> None:
    good = {"device": "d", "metric": "m", "at": NEW_YEAR_MS, "value": 1}
    poison = {
        b"": "payload is not json",
        b"\xff\xfe": "payload is not UTF-8",
        b"[1]": "payload is no json object",
        b'"x"': "payload is no json object",
        b'{"device": "d"': "payload is not json",
        json.dumps(good).encode() * 2: "payload is not json",
        json.dumps({**good, "value": "1"}).encode(): "payload is not json of the declared types",
        json.dumps({**good, "at": "soon"}).encode(): "payload is not json of the declared types",
        json.dumps({key: value for key, value in good.items() if key != "device"}).encode(): "no device in $.device",
        json.dumps({key: value for key, value in good.items() if key != "at"}).encode(): "no event time in $.at",
        json.dumps({**good, "metric": None}).encode(): "metric is missing",
        json.dumps({**good, "at": 5_000}).encode(): "event time before 2000-01-01T00:00:00Z",
        json.dumps({**good, "at": 4e12}).encode(): "event time more than 24h ahead of the hub",
        json.dumps({**good, "at": 1e300}).encode(): "no event time in $.at",
    }
    messages: list[Message] = [("readings.x", body) for body in poison]
    messages += [("readings.x", json.dumps(good).encode()), ("other.x", b"not ours")]
    readings_stream.api("STREAM.UPDATE.READINGS", {"name": "READINGS", "subjects": ["readings.>", "other.>"]})
    readings_stream.publish(messages)
    hub = Hub(spark, jobs_config(readings_stream.url, tmp_path))
    done = hub.round()
    assert (done.silver[0].added, done.silver[0].quarantined) == (1, len(poison))
    assert hub.reasons() == sorted(poison.values())
    readings_stream.publish([("readings.x", b"{"), message(("d2", NEW_YEAR_MS, 2.0))])
    hub.round()
    assert len(hub.reasons()) == len(poison) + 1


def test_killed_between_two_tables(spark: SparkSession, readings_stream: Streams, tmp_path: Path) -> None:
    """A round that ends after any of its commits is made whole by the next, and nothing is there twice."""
    readings = series("d1", NEW_YEAR_MS, 50)
    readings_stream.publish([*map(message, readings), ("readings.x", b"poison")])
    config = jobs_config(readings_stream.url, tmp_path)
    for table in ("silver", "gold"):
        hub = Hub(spark, config)
        target = hub.aggregate.silver["readings"].table if table == "silver" else hub.aggregate.gold["minute"].table

        def killed(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        target.commit = killed  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            hub.round()
    hub = Hub(spark, config)
    hub.round()
    assert hub.gold() == truth(readings)
    assert hub.reasons() == ["payload is not json"]
    assert hub.aggregate.silver["readings"].table.rows() == 50


def test_backfill_gives_the_same_again(spark: SparkSession, readings_stream: Streams, tmp_path: Path) -> None:
    readings = series("d1", NEW_YEAR_MS, 50) + series("d2", NEW_YEAR_MS + 40 * DAY_MS, 50)
    readings_stream.publish([*map(message, readings), ("readings.x", b"poison")])
    hub = Hub(spark, jobs_config(readings_stream.url, tmp_path))
    hub.round()
    hub.aggregate.rebuild(set())
    assert hub.gold() == truth(readings)
    assert set(hub.revisions().values()) == {2}
    assert len(hub.reasons()) == 1
    assert not hub.round().busy
    # A table that somebody deletes is filled again from the one before it, quarantine included.
    for name in ("silver", "quarantine", "gold"):
        shutil.rmtree(tmp_path / "lake" / name)
    hub = Hub(spark, jobs_config(readings_stream.url, tmp_path, compact_every=1))
    hub.round()
    assert (hub.gold(), len(hub.reasons())) == (truth(readings), 1)
    shutil.rmtree(tmp_path / "lake" / "quarantine")
    hub = Hub(spark, jobs_config(readings_stream.url, tmp_path))
    hub.round()
    assert (hub.aggregate.silver["readings"].table.rows(), len(hub.reasons())) == (100, 1)


@pytest.mark.parametrize(("form", "encode"), [("msgpack", msgspec.msgpack.encode), ("cbor", cbor2.dumps)])
def test_binary_payloads_metrics_as_columns_and_months(
    spark: SparkSession, readings_stream: Streams, tmp_path: Path, form: str, encode: Callable[[Any], bytes]
) -> None:
    base = jobs_config(readings_stream.url, tmp_path)
    parsed = {
        "nats": dict(base.nats),
        "lake": {"path": base.lake.path, "partition": "month"},
        "bronze": {"streams": ["READINGS"]},
        "silver": [
            {
                **SILVER,
                "format": form,
                "device": "subject:2",
                "event_time": "stored_at",
                "columns": {"temperature": "double", "count": "bigint"},
                "required": [],
            }
        ],
        "gold": [{"name": "minute", "silver": "readings", "metrics": ["temperature", "count"], "window": "24h"}],
    }
    body = encode({"temperature": 21.5, "count": 3, "more": b"\x00", "nested": {"at": 1}})
    poison = {
        b"\xc1": f"payload is not {form}",
        b"": f"payload is not {form}",
        encode([1, 2]): f"payload is no {form} object",
        encode({"temperature": "warm"}): f"payload is not {form} of the declared types",
    }
    readings_stream.publish([("readings.boiler", payload) for payload in [body] * 3 + list(poison)])
    hub = Hub(spark, convert(parsed, "tests"))
    done = hub.round()
    # Three equal payloads are three messages: their sequences differ.
    assert (done.silver[0].added, done.silver[0].quarantined) == (3, len(poison))
    assert hub.reasons() == sorted(poison.values())
    rows = hub.aggregate.gold["minute"].table.dataframe(spark).collect()
    assert {(row["device"], row["metric"], row["count"], row["mean"]) for row in rows} == {
        ("boiler", "temperature", 3, 21.5),
        ("boiler", "count", 3, 3.0),
    }
    assert {row["event_date"].day for row in rows} == {1}


def test_schema_drift(spark: SparkSession, readings_stream: Streams, tmp_path: Path) -> None:
    """Devices send more than is declared, then it is declared, then its type changes: nothing is lost, nothing is guessed."""

    def publish(number: int, **more: Any) -> None:
        body = {"device": "d", "metric": "m", "at": NEW_YEAR_MS + number, "value": 1.0, **more}
        readings_stream.publish([("readings.d", json.dumps(body).encode())])

    def config(**columns: str) -> Config:
        base = jobs_config(readings_stream.url, tmp_path)
        silver = {**SILVER, "columns": {"metric": "string", "value": "double", **columns}}
        return convert({**to_builtins(base), "silver": [silver]}, "tests")

    def units(hub: Hub) -> list[Any]:
        rows = hub.aggregate.silver["readings"].table.dataframe(spark).orderBy("event_time").collect()
        return [row["unit"] for row in rows]

    publish(1)
    publish(2, unit="C", new={"deep": [1]})
    old = Hub(spark, config())
    assert (old.round().silver[0].added, old.reasons()) == (2, [])
    publish(3, unit="K")
    hub = Hub(spark, config(unit="string"))
    hub.round()
    assert units(hub) == [None, None, "K"]
    hub.aggregate.rebuild({"readings"})
    assert units(hub) == [None, "C", "K"]
    publish(4, unit=7)
    publish(5, value="1.0")
    done = hub.round()
    assert (done.silver[0].added, done.silver[0].quarantined) == (1, 1)
    assert units(hub) == [None, "C", "K", "7"]
    assert hub.reasons() == ["payload is not json of the declared types"]
    # A job that still has the old configuration goes on writing what it knows.
    publish(6)
    behind = Hub(spark, config())
    assert behind.round().silver[0].added == 1
    with pytest.raises(HubError, match="its column 'unit' is string, not double"):
        Hub(spark, config(unit="double"))
    assert behind.gold() == {("d", NEW_YEAR_MS): (5, 1.0, 1.0, 1.0, 1.0)}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_days_are_utc_whatever_the_session_thinks(
    spark: SparkSession, readings_stream: Streams, tmp_path: Path, zone: str
) -> None:
    readings = series("d1", NEW_YEAR_MS, 48, 3_600_000)
    readings_stream.publish([*map(message, readings), ("readings.x", b"poison")])
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        hub = Hub(spark, jobs_config(readings_stream.url, tmp_path))
        hub.round()
        assert hub.gold() == truth(readings)
        silver = hub.aggregate.silver["readings"]
        assert {str(file.partition["event_date"]): file.rows for file in silver.table.files()} == {
            "2026-01-01": 24,
            "2026-01-02": 24,
        }
        assert hub.reasons() == ["payload is not json"]
        readings_stream.publish(map(message, late := series("d1", NEW_YEAR_MS - 7_200_000, 3, 3_600_000)))
        hub.round()
        assert hub.gold() == truth(readings + late)
        assert not Gaps(spark, jobs_config(readings_stream.url, tmp_path)).run().gaps
        (device,) = Fleet(spark, jobs_config(readings_stream.url, tmp_path)).run()
        assert device["first_event_at"].timestamp() * 1000 == NEW_YEAR_MS - 7_200_000
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_killed_at_any_moment(streams: Streams, tmp_path: Path) -> None:
    """The jobs behind ingest, killed while they run, on Iceberg; test_ingest.py does the same on Delta. (support/hub/table_kills.py kills as often as it is told to.)"""
    trial = Trial(streams.url, tmp_path, seed=1, table_format="iceberg")
    trial.run(1, jobs=("aggregate", "backfill"))
    assert sum(trial.killed.values()) == 2
