"""The job `devices`: the present state of each device, by a streaming query with state per device.

The query reads the streams with `format("jetstream")`, parses what `[[silver]]` and `[fleet]` declare, and groups by
device. Spark's `transformWithState` keeps one record per device (`device_record.py`) in RocksDB, under the checkpoint.
Each batch writes the devices it touched into the table `devices`. To write a batch again writes the same rows, so it
may be repeated.

Unlike `fleet`, which computes everything from the tables, the cost does not depend on the tables' size. A lost
checkpoint costs a restart: the query begins at `bronze.start` and overwrites the rows as it catches up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from eyot_hub.columns import TIMESTAMP
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.device_record import DeviceRecord, from_state, take, to_state
from eyot_hub.jobs.devices.device_statuses import said
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.spark.session import register_source
from eyot_hub.jobs.spark.streaming import run_query
from eyot_hub.progress import BatchProgress

DEVICES: Final = "devices"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE: Final = "device"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PARTITIONS_DEFAULT: Final = "200"  # Spark's default, which means that the user chose none
SCHEMA: Final = pa.schema(
    [
        ("device", pa.string()),
        ("readings", pa.int64()),
        ("first_event_at", TIMESTAMP),
        ("last_event_at", TIMESTAMP),
        ("last_stored_at", TIMESTAMP),
        ("delay_s_p50", pa.float64()),  # upper ends of classes by powers of two
        ("delay_s_p95", pa.float64()),
        ("late_readings", pa.int64()),
        ("backlog", pa.int64()),
        ("backlog_at", TIMESTAMP),
    ]
)
_OUTPUT: Final = (
    "device STRING, readings BIGINT, first_event_us BIGINT, last_event_us BIGINT, last_stored_us BIGINT, "
    "delay_s_p50 DOUBLE, delay_s_p95 DOUBLE, late_readings BIGINT, backlog BIGINT, backlog_us BIGINT"
)


class DeviceTracker(StatefulProcessor):
    """Keeps one record per device, and emits its figures whenever rows of the device arrive."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState(STATE, "record BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        record = from_state(None if stored is None else stored[0])
        for frame in rows:
            backlogs = [None if pd.isna(backlog) else int(backlog) for backlog in frame["backlog"]]
            take(record, zip(frame["at_us"], frame["stored_us"], frame["is_status"], backlogs, strict=True))
        self._state.update((to_state(record),))
        yield pd.DataFrame([figures(key[0], record)])

    def close(self) -> None:
        pass


def figures(device: str, record: DeviceRecord) -> dict[str, Any]:
    """Return a row of the query's output."""
    return {
        "device": device,
        "readings": record.readings,
        "first_event_us": record.first_event_us,
        "last_event_us": record.last_event_us,
        "last_stored_us": record.last_stored_us,
        "delay_s_p50": record.delay_s(0.5),
        "delay_s_p95": record.delay_s(0.95),
        "late_readings": record.late,
        "backlog": record.backlog,
        "backlog_us": record.backlog_at_us,
    }


class Devices:
    """The devices job. `tracker` creates the processor; another release's may continue with the same state."""

    def __init__(
        self, spark: SparkSession, config: Config, tracker: Callable[[], StatefulProcessor] = DeviceTracker
    ) -> None:
        self._spark = spark
        self._config = config
        self._tracker = tracker
        self.table = open_table(config.lake, DEVICES, SCHEMA)
        self._held: dict[str, dict[str, Any]] = {}  # the table's rows by device
        self._held_of = -1  # the version that has these rows

    def run(
        self,
        *,
        once: bool,
        stop: Callable[[], bool] = lambda: False,
        report: Callable[[BatchProgress], None] = lambda _: None,
    ) -> None:
        """Run the query until it has caught up (`once`), or until `stop` returns True. Raises the query's failure."""
        self._spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        if self._spark.conf.get(_PARTITIONS) == _PARTITIONS_DEFAULT:
            # Each partition is a task and a state store per batch. A query that continues keeps its initial number.
            self._spark.conf.set(_PARTITIONS, str(self._spark.sparkContext.defaultParallelism))
        found = (
            self._rows()
            .groupBy("device")
            .transformWithStateInPandas(self._tracker(), outputStructType=_OUTPUT, outputMode="Update", timeMode="None")
        )
        writer = found.writeStream.outputMode("update").foreachBatch(lambda batch, _: self.put(batch))
        writer = writer.option("checkpointLocation", self._config.checkpoint(DEVICES))
        run_query(writer, self._config, once=once, stop=stop, report=report)

    def put(self, batch: DataFrame) -> None:
        """Replace the rows of these devices."""
        fresh = {row["device"]: _as_row(row) for row in batch.toArrow().to_pylist()}
        if fresh:
            self.table.refresh()
            before = self.table.version
            if self._held_of != before:
                self._held = {row["device"]: row for row in self.table.to_pylist()}
            self._held, self._held_of = dict(sorted({**self._held, **fresh}.items())), -1
            self.table.replace(list(self._held.values()))
            if self.table.version == before + 1:  # nobody else has committed, too
                self._held_of = before + 1

    def _rows(self) -> DataFrame:
        """Return readings and statuses as `device`, `at_us`, `stored_us`, `is_status`, `backlog`."""
        parts, rows = [], self._stream()
        for silver in self._config.silver:
            read = parsing.parse(rows.where(parsing.matches(silver.subjects)), silver, ["stored_at"])
            read = read.where(F.col(parsing.REASON).isNull())
            parts.append(read.select(*_columns(F.col("event_time"), F.lit(False), F.lit(None).cast("bigint"))))
        if self._config.fleet.subjects:
            told = said(rows.where(parsing.matches(self._config.fleet.subjects)), self._config)
            parts.append(told.select(*_columns(F.col("at"), F.lit(True), F.col("said.backlog"))))
        return reduce(DataFrame.unionByName, parts)

    def _stream(self) -> DataFrame:
        """Return one source for all streams: one position, and one Python process that plans."""
        subjects = {subject for silver in self._config.silver for subject in silver.subjects}
        options = {
            **self._config.source_mapping(),
            "subjects": json.dumps(sorted(subjects | set(self._config.fleet.subjects))),
            "maxOffsetsPerTrigger": str(self._config.bronze.max_messages_per_commit),
        }
        register_source(self._spark)
        return self._spark.readStream.format("jetstream").options(**options).load()


def _columns(at: Any, is_status: Any, backlog: Any) -> list[Any]:
    return [
        F.col("device"),
        F.unix_micros(at).alias("at_us"),
        F.unix_micros("stored_at").alias("stored_us"),
        is_status.alias("is_status"),
        backlog.alias("backlog"),
    ]


def _as_row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert an output row to the table's columns; Arrow accepts microseconds for times."""
    return {name: row[f"{name[:-3]}_us"] if name.endswith("_at") else row[name] for name in SCHEMA.names}
