"""Retention with Spark and a server: bronze loses everything, and all that was made from it stays true."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import structs
from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, Retention
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Hub, message, series, truth

HUBS = ("HUB_A", "HUB_B")


def arrived(streams: Streams, count: int) -> None:
    deadline = time.monotonic() + 60
    while any(streams.state(name)["messages"] < count for name in HUBS):
        assert time.monotonic() < deadline, [streams.state(name) for name in HUBS]
        time.sleep(0.01)


def expired(config: Config, days: int) -> int:
    """Remove all rows that bronze stored until now, as a maintenance in so many days does; return how many."""
    aged = structs.replace(config, retention=Retention(bronze="24h"))
    done = Maintenance(aged, now=lambda: datetime.now(UTC) + timedelta(days=days)).round()
    bronze = next(one for one in done if one.table == "bronze")
    assert not bronze.waits_for
    return bronze.expired


def test_bronze_loses_everything(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Two streams of the hub hold each message of an origin; one of them is made again and holds them once more."""
    streams.create("ORIGIN", ["readings.>"])
    first = series("d1", NEW_YEAR_MS, 300) + series("d2", NEW_YEAR_MS + DAY_MS, 200)
    streams.publish(map(message, first))
    config = jobs_config(streams.url, tmp_path, ["HUB_*"], fail_on_data_loss=False)
    for name in HUBS:
        streams.create(name, sources=[{"name": "ORIGIN"}])
    arrived(streams, 500)
    hub = Hub(spark, config)
    hub.round()
    streams.delete("HUB_A")
    streams.create("HUB_A", sources=[{"name": "ORIGIN"}])
    arrived(streams, 500)
    hub.round()
    before = Gaps(spark, config).run()
    assert (before.bad, before.gaps) == (False, [])
    assert expired(config, 2) == 1500
    after = Gaps(spark, config).run()
    assert (after.coverage.epochs, after.gaps) == (before.coverage.epochs, [])
    assert not hub.round().busy
    # More readings, some of them in windows whose messages have left bronze.
    more = [*series("d1", NEW_YEAR_MS + 300 * 7000, 100), ("d2", NEW_YEAR_MS + DAY_MS, 0.5)]
    streams.publish(map(message, more))
    arrived(streams, 601)
    hub.round()
    assert hub.gold() == truth(first + more)
    assert Gaps(spark, config).run().gaps == []
    # Whole stretches of silver are made again from bronze, the others stay.
    hub.aggregate.bronze.refresh()
    done = hub.aggregate.rebuild(set())
    assert (done.silver[0].added, done.silver[0].kept, done.silver[0].duplicates) == (101, 500, 101)
    assert hub.gold() == truth(first + more)
    assert expired(config, 2) == 202
    assert Gaps(spark, config).run().gaps == []
