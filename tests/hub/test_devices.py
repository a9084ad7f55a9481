"""State per device in Spark's own stateful API: across batches, restarts and releases, against plain Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from msgspec import to_builtins
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.device_record import DeviceRecord
from eyot_hub.jobs.devices.devices import Devices, DeviceTracker, figures
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams
from support.hub.truth import NEW_YEAR_MS, Reading, message, series

# Workers cannot import the tests: their processor travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class EarlierTracker(DeviceTracker):
    """The processor of a release that knew less: no delays, no backlog, no first event."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        record: dict[str, Any] = {"last_event_us": 0, "last_stored_us": 0, "readings": 0}
        if stored is not None:
            record = msgspec.msgpack.decode(bytes(stored[0]))
        for frame in rows:
            record["readings"] += len(frame)
            record["last_event_us"] = max(record["last_event_us"], int(frame["at_us"].max()))
            record["last_stored_us"] = max(record["last_stored_us"], int(frame["stored_us"].max()))
        self._state.update((msgspec.msgpack.encode(record),))
        yield pd.DataFrame([{**figures(key[0], DeviceRecord()), **record}])


def test_across_restart_and_release(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>", "fleet.>"])
    base = to_builtins(jobs_config(streams.url, tmp_path, max_messages_per_commit=100))
    config = convert({**base, "gold": [], "fleet": {"subjects": ["fleet.*.status"]}}, "tests")

    def publish(readings: list[Reading]) -> None:
        streams.publish(map(message, readings))

    def known() -> dict[str, tuple[int, int]]:
        rows = Devices(spark, config).table.dataframe(spark).collect()
        assert len({row["device"] for row in rows}) == len(rows)
        return {row["device"]: (row["readings"], int(row["last_event_at"].timestamp() * 1000)) for row in rows}

    # A release that knew less, in several batches.
    publish(series("d1", NEW_YEAR_MS, 150) + series("d2", NEW_YEAR_MS, 30))
    Devices(spark, config, EarlierTracker).run(once=True)
    assert known() == {"d1": (150, NEW_YEAR_MS + 149 * 7000), "d2": (30, NEW_YEAR_MS + 29 * 7000)}
    # This one goes on with its state; nothing is counted again.
    status = {"device": "d1", "at": "2026-01-02T00:00:00Z", "every_s": 60.0, "backlog": 7, "linked": True}
    streams.publish([("fleet.d1.status", json.dumps(status).encode()), ("readings.d1", b"poison")])
    publish(series("d1", NEW_YEAR_MS + 86_400_000, 20) + series("d3", NEW_YEAR_MS, 1))
    Devices(spark, config).run(once=True)
    assert known() == {
        "d1": (170, NEW_YEAR_MS + 86_400_000 + 19 * 7000),
        "d2": (30, NEW_YEAR_MS + 29 * 7000),
        "d3": (1, NEW_YEAR_MS),
    }
    rows = {row["device"]: row for row in Devices(spark, config).table.dataframe(spark).collect()}
    assert (rows["d1"]["backlog"], rows["d2"]["backlog"]) == (7, None)
    assert rows["d1"]["late_readings"] == 20  # of those that this release saw: all are from last year
    assert rows["d1"]["delay_s_p50"] > 86_400.0
    # A restart without anything new changes nothing.
    Devices(spark, config).run(once=True)
    assert known()["d1"][0] == 170
