"""The devices' status messages (`eyot_wire.status.DeviceStatus`) in bronze.

A device is silent when no status has followed the last one for three of its intervals: it is off, or offline with data
still to come. The reference is the time of the last ingest, not the present: rows that are not ingested yet are not the
device's silence. Statuses are ordered by the device's own time, so that late ones fall into place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs import parsing
from eyot_hub.jobs.bronze import bronze_table
from eyot_hub.jobs.config import Config

SILENT_INTERVALS: Final = 3
_READ: Final = ("subject", "stream", "stored_at", "payload")
_FIELDS: Final = (
    "device STRING, domain STRING, at STRING, every_s DOUBLE, version STRING, uptime_s DOUBLE, linked BOOLEAN, rtt_ms DOUBLE, "
    "synced BOOLEAN, backlog BIGINT, backlog_bytes BIGINT, oldest_s DOUBLE, store_error STRING, link_error STRING"
)


def statuses(spark: SparkSession, config: Config) -> DataFrame:
    """Return every status in bronze once: `device`, `at`, `stored_at` and `said`, a struct of the message's members."""
    table = bronze_table(config)
    if not config.fleet.subjects:
        files = []
    elif config.fleet.streams:
        files = table.files(stream=set(config.fleet.streams))
    else:
        files = table.files()
    rows = said(table.dataframe(spark, files, _READ).where(parsing.matches(config.fleet.subjects or [">"])), config)
    return rows.dropDuplicates(["device", "at"])


def said(rows: DataFrame, config: Config) -> DataFrame:
    """Return the statuses among rows of bronze or of the source; other rows are left out."""
    rows = rows.select(
        "subject", "stream", "stored_at", F.from_json(F.col("payload").cast("string"), _FIELDS).alias("said")
    )
    rows = rows.select(
        _device(config.fleet.device).alias("device"),
        F.try_to_timestamp("said.at").alias("at"),
        "stored_at",
        "stream",
        "said",
    )
    return rows.where("device is not null and device != '' and at is not null")


def statuses_by_device(spark: SparkSession, config: Config, known_until: Mapping[str, int]) -> DataFrame:
    """Return one row per device: its last status, and the link's history over all statuses.

    `known_until`: for each stream, up to when the table holds its messages (microseconds since 1970); others: up to
    now.
    """
    newest = F.max_by("said", "at")
    found = (
        statuses(spark, config)
        .groupBy("device")
        .agg(
            F.count("*").alias("statuses"),
            F.max("at").alias("status_at"),
            F.max("stored_at").alias("status_stored_at"),
            newest.alias("said"),
            F.max_by("stream", "stored_at").alias("stream"),
            F.avg(F.col("said.linked").cast("double")).alias("link_up_share"),
            F.percentile_approx("said.rtt_ms", 0.5).alias("rtt_ms_p50"),
        )
    )
    names, times = pa.array(known_until.keys(), pa.string()), pa.array(known_until.values(), pa.int64())
    known = spark.createDataFrame(pa.Table.from_arrays([names, times], ["stream", "until_us"]))
    found = found.join(F.broadcast(known), "stream", "left")
    until_us = F.coalesce("until_us", F.unix_micros(F.current_timestamp()))
    silent_s = (until_us - F.unix_micros("status_stored_at")) / 1e6
    state = F.when(silent_s > SILENT_INTERVALS * F.col("said.every_s"), "silent")
    state = state.when(F.col("said.synced"), "synced").otherwise("behind")
    return found.select(
        "device",
        state.alias("state"),
        "statuses",
        "status_at",
        "status_stored_at",
        "said.version",
        "said.uptime_s",
        "said.linked",
        "link_up_share",
        "rtt_ms_p50",
        F.col("said.backlog").alias("reported_backlog"),
        F.col("said.backlog_bytes").alias("reported_backlog_bytes"),
        F.col("said.oldest_s").alias("reported_oldest_s"),
        F.coalesce("said.store_error", "said.link_error").alias("reported_error"),
    )


def _device(named: str) -> Column:
    return parsing.subject_token(named) if named.startswith("subject:") else F.col(f"said.{named}")
