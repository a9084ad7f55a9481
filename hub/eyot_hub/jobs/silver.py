"""Silver: the payloads of some subjects as typed rows, each message once; what cannot be parsed stands in quarantine.

A message is told from others by its origin (domain, stream, sequence there) and a hash of subject and payload. The same
message that reached the hub twice, or lies in two of its streams, becomes one row; another message with the same number, from
a device whose stream was created again, stays a row of its own.

Quarantine and silver keep their own positions in bronze, so that a job killed between the two commits repeats neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub import columns
from eyot_hub.jobs import parsing
from eyot_hub.jobs.bronze import position_id
from eyot_hub.jobs.config import Config, Silver
from eyot_hub.jobs.increments import Span, Streams, new_spans, rows_of
from eyot_hub.jobs.table import LakeTable, TableFile, TableSpec, write_dataframe

QUARANTINE: Final = "quarantine"
BROADCAST_ROWS: Final = 200_000  # so few keys can be sent to every task
KEY: Final = ("origin_domain", "origin_stream", "origin_sequence", "content_hash")
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "double": pa.float64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": columns.TIMESTAMP,
}
QUARANTINE_SCHEMA: Final = pa.schema(
    [
        ("silver", pa.string()),
        ("date", pa.date32()),
        ("reason", pa.string()),
        ("subject", pa.string()),
        ("payload", pa.binary()),
        ("headers", columns.MAP_TYPE),
        ("stored_at", columns.TIMESTAMP),
        ("origin_domain", pa.string()),
        ("origin_stream", pa.string()),
        ("origin_sequence", pa.int64()),
        ("stream", pa.string()),
        ("stream_created_ns", pa.int64()),
        ("sequence", pa.int64()),
    ]
)


@dataclass
class SilverRound:
    """What one round did for one silver table."""

    name: str
    read: int = 0
    added: int = 0
    duplicates: int = 0
    quarantined: int = 0


class _Part(NamedTuple):
    """New rows of one partition, good ones or not, and the origin sequences among them."""

    event_date: date
    good: bool
    rows: int
    first: int
    last: int


def silver_schema(silver: Silver) -> pa.Schema:
    """Device and time, the declared columns, then where the row comes from."""
    return pa.schema(
        [
            ("device", pa.string()),
            ("event_time", columns.TIMESTAMP),
            *[(name, _ARROW_TYPES[kind]) for name, kind in silver.columns.items()],
            ("subject", pa.string()),
            ("stored_at", columns.TIMESTAMP),
            ("origin_domain", pa.string()),
            ("origin_stream", pa.string()),
            ("origin_sequence", pa.int64()),
            ("content_hash", pa.int64()),
            ("stream", pa.string()),
            ("stream_created_ns", pa.int64()),
            ("sequence", pa.int64()),
            ("event_date", pa.date32()),
        ]
    )


def silver_table(config: Config, silver: Silver) -> LakeTable:
    root = config.folder("silver", silver.name)
    spec = TableSpec(root, silver_schema(silver), ("event_date",), config.lake.compression)
    return LakeTable(spec, config.lake.storage_options)


def quarantine_table(config: Config) -> LakeTable:
    spec = TableSpec(config.folder(QUARANTINE), QUARANTINE_SCHEMA, ("silver", "date"), config.lake.compression)
    return LakeTable(spec, config.lake.storage_options)


class Refiner:
    """Fills one silver table from bronze."""

    def __init__(self, spark: SparkSession, config: Config, silver: Silver, bronze: LakeTable) -> None:
        self._spark = spark
        self._config = config
        self._silver = silver
        self._bronze = bronze
        self.table = silver_table(config, silver)
        self.quarantine = quarantine_table(config)

    def round(self, streams: Streams) -> SilverRound:
        """Take in everything that bronze has of these streams and silver has not."""
        done = SilverRound(self._silver.name)
        self.quarantine.refresh()
        self.table.refresh()

        def target(stream: str, created_ns: int) -> int | None:
            return self._bronze.position(position_id(stream, created_ns))

        held = new_spans(streams, lambda *at: self.quarantine.position(self._quarantine_id(*at)), target)
        spans = new_spans(streams, lambda *at: self.table.position(position_id(*at)), target)
        if not spans:
            if held:
                self._fill_quarantine(held, done)
            return done
        parsed = self._identified(self._parsed(spans))
        kept = parsed.select(*self.table.spec.schema.names, parsing.REASON).persist()
        try:
            good = F.col(parsing.REASON).isNull()
            number = F.col("origin_sequence")
            counts = kept.groupBy("event_date", good.alias("good")).agg(
                F.count("*").alias("rows"), F.min(number).alias("first"), F.max(number).alias("last")
            )
            found = [_Part(*row) for row in counts.select("event_date", "good", "rows", "first", "last").collect()]
            if held != spans or not all(part.good for part in found):
                self._fill_quarantine(held, done)
            else:
                self.quarantine.commit([], self._quarantined(held))
            self._fill(kept.where(good), [part for part in found if part.good], spans, done)
        finally:
            kept.unpersist()
        return done

    def rebuild(self, streams: Streams) -> SilverRound:
        """Fill both tables anew from all of bronze, each in one commit that replaces what was there."""
        done = SilverRound(self._silver.name)
        self.quarantine.refresh()
        self.table.refresh()
        spans = new_spans(streams, lambda *_: 0, lambda *at: self._bronze.position(position_id(*at)))
        if not spans:
            return done
        self._fill_quarantine(spans, done, replaced=self.quarantine.files(silver={self._silver.name}))
        kept = self._identified(self._parsed(spans)).where(F.col(parsing.REASON).isNull())
        fresh = kept.dropDuplicates(list(KEY)).select(*self.table.spec.schema.names)
        fresh = fresh.repartition("event_date").sortWithinPartitions("event_date", "device", "event_time")
        files = write_dataframe(fresh, self.table.spec)
        self.table.commit(files, self._positions(spans), self.table.files())
        done.read = done.added = sum(file.rows for file in files)
        return done

    @staticmethod
    def _positions(spans: list[Span]) -> dict[str, int]:
        return {position_id(span.stream, span.created_ns): span.until for span in spans}

    def _quarantine_id(self, stream: str, created_ns: int) -> str:
        return f"{self._silver.name}/{position_id(stream, created_ns)}"

    def _quarantined(self, spans: list[Span]) -> dict[str, int]:
        return {self._quarantine_id(span.stream, span.created_ns): span.until for span in spans}

    def _parsed(self, spans: list[Span]) -> DataFrame:
        rows = rows_of(self._spark, self._bronze, spans).where(parsing.matches(self._silver.subjects))
        return parsing.parse(rows, self._silver)

    def _fill_quarantine(self, spans: list[Span], done: SilverRound, replaced: Iterable[TableFile] = ()) -> None:
        if not spans:
            return
        bad = self._parsed(spans).where(F.col(parsing.REASON).isNotNull())
        bad = bad.withColumn("silver", F.lit(self._silver.name)).select(*QUARANTINE_SCHEMA.names)
        files = write_dataframe(bad.coalesce(1), self.quarantine.spec)
        self.quarantine.commit(files, self._quarantined(spans), replaced)
        done.quarantined = sum(file.rows for file in files)

    def _fill(self, good: DataFrame, parts: list[_Part], spans: list[Span], done: SilverRound) -> None:
        done.read = sum(part.rows for part in parts)
        files = []
        if parts:
            fresh = self._unknown(good, parts).select(*self.table.spec.schema.names)
            fresh = fresh.repartition("event_date").sortWithinPartitions("event_date", "device", "event_time")
            files = write_dataframe(fresh, self.table.spec)
        self.table.commit(files, self._positions(spans))
        done.added = sum(file.rows for file in files)
        done.duplicates = done.read - done.added

    def _unknown(self, good: DataFrame, parts: list[_Part]) -> DataFrame:
        """The rows that silver does not have. A repeat has the same event time, so it lies in the same partition."""
        first, last = min(part.first for part in parts), max(part.last for part in parts)
        fresh = good.dropDuplicates(list(KEY))
        known = [
            file
            for file in self.table.files(event_date={part.event_date for part in parts})
            if file.least.get("origin_sequence", first) <= last and file.most.get("origin_sequence", last) >= first
        ]
        if not known:
            return fresh
        have = self.table.dataframe(self._spark, known)
        have = have.where(F.col("origin_sequence").between(first, last)).select(*KEY)
        if sum(part.rows for part in parts) <= BROADCAST_ROWS:
            # Few new rows: silver is only looked through, not shuffled.
            repeats = have.join(F.broadcast(good.select(*KEY)), list(KEY), "left_semi").distinct()
            return fresh.join(F.broadcast(repeats), list(KEY), "left_anti")
        return fresh.join(have, list(KEY), "left_anti")

    def _identified(self, rows: DataFrame) -> DataFrame:
        """With the origin filled in (a message published at the hub has its own stream as origin), hash and partition."""
        unit = "MONTH" if self._config.lake.partition == "month" else "DAY"
        return rows.withColumns(
            {
                "origin_domain": F.when(F.col("origin_stream").isNull(), F.col("domain")).otherwise(
                    F.col("origin_domain")
                ),
                "origin_stream": F.coalesce("origin_stream", "stream"),
                "origin_sequence": F.coalesce("origin_sequence", "sequence"),
                "content_hash": F.xxhash64("subject", "payload"),
                "event_date": F.date_trunc(unit, F.col("event_time")).cast("date"),
            }
        ).withColumn("origin_domain", F.coalesce("origin_domain", F.lit("")))
