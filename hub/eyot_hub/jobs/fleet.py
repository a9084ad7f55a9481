"""The job `fleet`: per device the last contact, the delay of its readings, and its own status.

Delay is the time from a reading's event time to its storage at the hub. The hub's view of the backlog comes from the
table `origins` of the job `gaps`, for devices with a JetStream domain of their own. The device's view (`reported_...`,
its link) comes from the status messages that its daemon publishes, if configured (`device_statuses.py`); they also give
the time offline.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze import bronze_table, row_ids, table_position
from eyot_hub.jobs.config import Config
from eyot_hub.jobs.coverage import ORIGIN
from eyot_hub.jobs.device_statuses import statuses_by_device
from eyot_hub.jobs.erasures import named
from eyot_hub.jobs.file_summaries import FileSummaries, by_device
from eyot_hub.jobs.gaps import QUESTION_S, origins_table
from eyot_hub.jobs.increments import streams_in
from eyot_hub.jobs.lake import open_table
from eyot_hub.planning import Planner

log = logging.getLogger(__name__)

FLEET_SCHEMA: Final = pa.schema(
    [
        ("device", pa.string()),
        ("readings", pa.int64()),
        ("first_event_at", TIMESTAMP),
        ("last_event_at", TIMESTAMP),
        ("last_stored_at", TIMESTAMP),
        ("delay_s_p50", pa.float64()),
        ("delay_s_p95", pa.float64()),
        ("delay_s_max", pa.float64()),
        ("late_readings", pa.int64()),  # stored more than a minute after the event
        ("backlog", pa.int64()),  # messages; null when the device's origin did not answer
        ("computed_at", TIMESTAMP),
        ("state", pa.string()),  # synced, behind or silent; null without status messages
        ("statuses", pa.int64()),
        ("status_at", TIMESTAMP),  # by the device's clock
        ("status_stored_at", TIMESTAMP),
        ("version", pa.string()),
        ("uptime_s", pa.float64()),
        ("linked", pa.bool_()),
        ("link_up_share", pa.float64()),  # of the statuses, 0 to 1
        ("rtt_ms_p50", pa.float64()),
        ("reported_backlog", pa.int64()),
        ("reported_backlog_bytes", pa.int64()),
        ("reported_oldest_s", pa.float64()),
        ("reported_error", pa.string()),
    ]
)
_TIMES: Final = ("first_event", "last_event", "last_stored")


class Fleet:
    """The fleet job: call `run` again and again; a later run adds what is new to the sums of the one before."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self.table = open_table(config.lake, "fleet", FLEET_SCHEMA)
        self._summaries: FileSummaries | None = None

    def run(self) -> list[dict[str, Any]]:
        """Replace the table with the present fleet; return its rows by device.

        Raises Fenced where a device was erased meanwhile, which the rows may still name.
        """
        self.table.refresh()
        erased = named(self.table)
        devices = self._readings().join(self._backlogs(), "device", "left")
        known_until = self._known_until() if self._config.fleet.subjects else {}
        devices = devices.join(statuses_by_device(self._spark, self._config, known_until), "device", "full_outer")
        devices = devices.withColumn("computed_at", F.current_timestamp())
        rows: list[dict[str, Any]] = devices.select(*FLEET_SCHEMA.names).orderBy("device").toArrow().to_pylist()
        self.table.replace(rows, erased)
        return rows

    def _readings(self) -> DataFrame:
        self._summaries = self._summaries or FileSummaries(self._spark, self._config)
        found = self._summaries.found()
        if not found.num_rows:
            return self.table.dataframe(self._spark, []).select(*FLEET_SCHEMA.names[:9])
        rows = by_device(found, (0.5, 0.95))
        figures = {
            "device": rows.column("device"),
            "readings": rows.column("readings"),
            **{f"{name}_at": rows.column(f"{name}_us").cast(TIMESTAMP) for name in _TIMES},
            "delay_s_p50": rows.column("delay_p0"),
            "delay_s_p95": rows.column("delay_p1"),
            "delay_s_max": pc.divide(rows.column("delay_max_us").cast(pa.float64()), 1e6),
            "late_readings": rows.column("late_readings"),
        }
        return self._spark.createDataFrame(pa.table(figures))

    def _known_until(self) -> dict[str, int]:
        """Return for each stream that bronze lags behind the stored time of its last message in bronze.

        A hub that cannot be reached counts as ahead.
        """
        bronze = bronze_table(self._config)
        found: dict[str, int] = {}
        for name, epoch_ns in streams_in(self._spark, bronze):  # ascending: the last epoch of a stream wins
            stored_ns = bronze.position(row_ids(name, epoch_ns)[1])
            if stored_ns is not None:
                found[name] = stored_ns // 1000
        options = self._config.source()
        connect = replace(options.read.connect, retry_s=0.0, timeout_s=QUESTION_S)
        planner = Planner(replace(options, read=replace(options.read, connect=connect)))
        try:
            for info in planner.streams(must_exist=False).values():
                at, _ = table_position(bronze, info)
                if at is not None and at.sequence >= info.state.last_seq:
                    found.pop(info.name, None)
        except HubError as error:
            log.warning("cannot request how far the table is behind the hub: %s", error)
        finally:
            planner.close()
        return found

    def _backlogs(self) -> DataFrame:
        origins = origins_table(self._config).dataframe(self._spark)
        known = origins.where((F.col("kind") == ORIGIN) & F.col("last_sequence").isNotNull())
        left = F.greatest(F.col("last_sequence") - F.col("last_in_table"), F.lit(0))
        newest = known.groupBy("domain", "stream").agg(F.max_by(left, "epoch").alias("left"))
        return newest.groupBy(F.col("domain").alias("device")).agg(F.sum("left").alias("backlog"))
