"""Gold: windows by event time for each device and metric, and corrected when late data arrives.

There is no watermark, because devices that were away for days are normal. New silver rows say which windows they fall into;
exactly those are computed again from all of silver, and the partitions they lie in are replaced in one commit. `revision`
counts how often a window has been computed: 1 when it is first written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from eyot_hub import columns
from eyot_hub.jobs.bronze import position_id
from eyot_hub.jobs.config import Config, Gold
from eyot_hub.jobs.increments import Span, Streams, new_spans, rows_of
from eyot_hub.jobs.table import LakeTable, TableFile, TableSpec, write_dataframe
from eyot_wire.duration import parse_duration_ns

WINDOW: Final = ("device", "metric", "window_start")


@dataclass
class GoldRound:
    """What one round did for one gold table."""

    name: str
    rows: int = 0  # new silver rows
    windows: int = 0  # computed, new ones included
    corrected: int = 0  # of these, windows that had been written before
    partitions: int = 0


def gold_schema(gold: Gold) -> pa.Schema:
    return pa.schema(
        [
            ("device", pa.string()),
            ("metric", pa.string()),
            ("window_start", columns.TIMESTAMP),
            ("window_end", columns.TIMESTAMP),
            ("count", pa.int64()),
            ("min", pa.float64()),
            ("max", pa.float64()),
            ("mean", pa.float64()),
            *[(percentile_name(p), pa.float64()) for p in gold.percentiles],
            ("revision", pa.int64()),
            ("computed_at", columns.TIMESTAMP),
            ("event_date", pa.date32()),
        ]
    )


def percentile_name(fraction: float) -> str:
    """p95 for 0.95, p99_9 for 0.999."""
    return "p" + f"{fraction * 100:.10g}".replace(".", "_")


def gold_table(config: Config, gold: Gold) -> LakeTable:
    spec = TableSpec(config.folder("gold", gold.name), gold_schema(gold), ("event_date",), config.lake.compression)
    return LakeTable(spec, config.lake.storage_options)


class Aggregator:
    """Keeps one gold table true to its silver table."""

    def __init__(self, spark: SparkSession, config: Config, gold: Gold, silver: LakeTable) -> None:
        self._spark = spark
        self._gold = gold
        self.silver = silver
        self.silver_name = gold.silver
        self.table = gold_table(config, gold)

    def round(self, streams: Streams) -> GoldRound:
        """Compute every window that silver rows newer than the last round fall into."""
        done = GoldRound(self._gold.name)
        self.table.refresh()
        spans = new_spans(
            streams,
            lambda *at: self.table.position(position_id(*at)),
            lambda *at: self.silver.position(position_id(*at)),
        )
        if spans:
            self._compute(spans, done)
        return done

    def rebuild(self, streams: Streams) -> GoldRound:
        """Compute every window anew from all of silver, in one commit that replaces what was there."""
        done = GoldRound(self._gold.name)
        self.table.refresh()
        spans = new_spans(streams, lambda *_: 0, lambda *at: self.silver.position(position_id(*at)))
        if spans:
            self._compute(spans, done, replaced=self.table.files())
        return done

    def _compute(self, spans: list[Span], done: GoldRound, replaced: list[TableFile] | None = None) -> None:
        fresh = rows_of(self._spark, self.silver, spans)
        touched = self._readings(fresh).groupBy(*WINDOW, "event_date").agg(F.count("*").alias("rows")).persist()
        try:
            found = (
                touched.groupBy("event_date").agg(F.sum("rows").alias("rows"), F.count("*").alias("windows")).collect()
            )
            done.rows = sum(row["rows"] for row in found)
            done.windows = sum(row["windows"] for row in found)
            dates = {row["event_date"] for row in found}
            done.partitions = len(dates)
            replaced = self.table.files(event_date=dates) if replaced is None else replaced
            result = self._recomputed(touched, dates)
            corrected = Observation()
            if replaced:
                before = self.table.dataframe(self._spark, replaced)
                earlier = before.select(*WINDOW, F.col("revision").alias("earlier"))
                result = result.join(earlier, list(WINDOW), "left")
                result = result.observe(corrected, F.count("earlier").alias("windows"))
                result = result.withColumn("revision", F.coalesce("earlier", F.lit(0)) + 1).drop("earlier")
                untouched = before.join(touched.select(*WINDOW), list(WINDOW), "left_anti")
                result = result.select(*self._names).unionByName(untouched.select(*self._names))
            result = result.select(*self._names).repartition("event_date").sortWithinPartitions("event_date", *WINDOW)
            files = write_dataframe(result, self.table.spec) if dates else []
            self.table.commit(files, {position_id(s.stream, s.created_ns): s.until for s in spans}, replaced)
            if replaced and dates:
                done.corrected = corrected.get["windows"]
        finally:
            touched.unpersist()

    @property
    def _names(self) -> list[str]:
        names: list[str] = self.table.spec.schema.names
        return names

    def _recomputed(self, touched: DataFrame, dates: set[object]) -> DataFrame:
        silver = self.silver.dataframe(self._spark, self.silver.files(event_date=dates))
        readings = self._readings(silver).join(touched.select(*WINDOW), list(WINDOW), "left_semi")
        value = F.col("value")
        aggregates: list[Column] = [
            F.count(value).alias("count"),
            F.min(value).alias("min"),
            F.max(value).alias("max"),
            F.avg(value).alias("mean"),
            *[F.percentile(value, F.lit(p)).alias(percentile_name(p)) for p in self._gold.percentiles],
        ]
        windows = readings.groupBy(*WINDOW, "event_date").agg(*aggregates)
        end = F.timestamp_micros(F.unix_micros("window_start") + F.lit(self._window_us))
        return windows.withColumns(
            {"window_end": end, "revision": F.lit(1).cast("bigint"), "computed_at": F.current_timestamp()}
        )

    @property
    def _window_us(self) -> int:
        return parse_duration_ns(self._gold.window) // 1000

    def _readings(self, silver: DataFrame) -> DataFrame:
        """device, metric, value, window_start of every number in the rows; partition of silver kept."""
        start_us = F.unix_micros("event_time") - F.pmod(F.unix_micros("event_time"), F.lit(self._window_us))
        timed = silver.withColumn("window_start", F.timestamp_micros(start_us))
        if self._gold.metric:
            chosen = timed.select(
                "device",
                F.col(self._gold.metric).cast("string").alias("metric"),
                F.col(self._gold.value).cast("double").alias("value"),
                "window_start",
                "event_date",
            )
        else:
            pairs = F.array(
                *[
                    F.struct(F.lit(name).alias("metric"), F.col(name).cast("double").alias("value"))
                    for name in self._gold.metrics
                ]
            )
            exploded = timed.select("device", F.explode(pairs).alias("pair"), "window_start", "event_date")
            chosen = exploded.select("device", "pair.metric", "pair.value", "window_start", "event_date")
        return chosen.where(F.col("value").isNotNull() & F.col("metric").isNotNull())
