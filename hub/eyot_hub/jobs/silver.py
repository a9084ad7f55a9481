"""Silver: the payloads of some subjects as typed rows, each message once; messages that do not parse go to quarantine.

A message's identity is its origin (domain, stream, sequence there) and a hash of subject and payload. A message that
reached the hub twice, or lies in two of its streams, becomes one row. Another message with the same sequence, from a
device whose stream was created again, stays a row of its own.

Quarantine and silver keep their own positions in bronze, so that a job killed between the two commits repeats neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from eyot_hub import columns
from eyot_hub.jobs import parsing
from eyot_hub.jobs.bronze import SCHEMA, position_id
from eyot_hub.jobs.compaction import TableFile
from eyot_hub.jobs.config import Config, Silver
from eyot_hub.jobs.files import DataFile
from eyot_hub.jobs.increments import Span, Streams, described, files_of, limited, marked, new_spans, rows_of
from eyot_hub.jobs.silver_task import KEY, RESULT, KnownFile, SilverTask, Written
from eyot_hub.jobs.table import Fenced, LakeTable, TableSpec

QUARANTINE: Final = "quarantine"
ROWS_PER_TASK: Final = 250_000  # a smaller round is a single task
ROWS_PER_TASK_MAX: Final = 1_000_000  # bounds a task's memory per commit; a larger backlog needs several commits
ANY: Final = 1 << 62  # above every sequence
#: Columns that pass through a task's parsing unchanged.
_KEPT: Final = (
    "subject",
    "payload",
    "headers",
    "stored_at",
    "origin_domain",
    "origin_stream",
    "origin_sequence",
    "content_hash",
    "stream",
    "stream_created_ns",
    "sequence",
    "date",
)
#: Columns of bronze that are read.
_READ: Final = tuple(name for name in SCHEMA.names if name != "account")
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
    """The result of one round for one silver table."""

    name: str
    read: int = 0
    added: int = 0
    duplicates: int = 0
    quarantined: int = 0


def silver_schema(silver: Silver) -> pa.Schema:
    """Return the columns: device and time, the declared ones, then the row's provenance."""
    return pa.schema(
        [
            ("device", pa.string()),
            ("event_time", columns.TIMESTAMP),
            *[(name, parsing.ARROW_TYPES[column.type]) for name, column in silver.typed.items()],
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
        """Process everything that bronze has of these streams and silver lacks, in several commits if needed."""
        done = SilverRound(self._silver.name)
        self.quarantine.refresh()
        self.table.refresh()
        before = [(table, table.version) for table in (self.quarantine, self.table)]
        while self._portion(streams, done):
            pass
        for table, version in before:
            table.maintain_when_due(version, self._config.bronze.compact_every, self._config.bronze.vacuum_hours)
        return done

    def rebuild(self, streams: Streams) -> SilverRound:
        """Rebuild both tables from all of bronze, each in one commit that replaces its content."""
        done = SilverRound(self._silver.name)
        self.quarantine.refresh()
        self.table.refresh()
        spans = new_spans(streams, lambda *_: 0, lambda *at: self._bronze.position(position_id(*at)))
        if spans:
            written = self._written(spans, spans, known=[])
            self._commit(
                self.quarantine,
                written.bad,
                self._quarantined(spans),
                self.quarantine.files(silver={self._silver.name}),
            )
            self._commit(self.table, written.good, self._positions(spans), self.table.files())
            _count(done, written)
        return done

    def _portion(self, streams: Streams, done: SilverRound) -> bool:
        """Commit one portion to both tables; return False when there is nothing new."""

        def target(stream: str, created_ns: int) -> int | None:
            return self._bronze.position(position_id(stream, created_ns))

        spans = new_spans(streams, lambda *at: self.table.position(position_id(*at)), target)
        spans = limited(spans, ROWS_PER_TASK_MAX * self._spark.sparkContext.defaultParallelism)
        ends = {(span.stream, span.created_ns): span.until for span in spans}
        held = new_spans(
            list(ends) or streams,
            lambda *at: self.quarantine.position(self._quarantine_id(*at)),
            lambda *at: ends.get(at) or target(*at),
        )
        if not spans and not held:
            return False
        written = self._written(spans, held, known=self.table.files())
        if held:
            self._commit(self.quarantine, written.bad, self._quarantined(held))
        if spans:
            self._commit(self.table, written.good, self._positions(spans))
        _count(done, written)
        return True

    def _written(self, spans: list[Span], held: list[Span], known: list[TableFile]) -> Written:
        """Let tasks write the good rows of `spans` and the bad ones of `held`."""
        everything = list(dict.fromkeys([*spans, *held]))
        by_month = self._config.lake.partition == "month"
        identified = self._identified(self._rows(everything))
        rows = parsing.parse(identified, self._silver, _KEPT, by_month=by_month)
        if set(spans) != set(held):
            is_bad = F.col(parsing.REASON).isNotNull()
            rows = marked(marked(rows, spans, "_wanted"), held, "_held")
            rows = rows.where(F.when(is_bad, F.col("_held")).otherwise(F.col("_wanted")))
        rows = rows.select(
            *self.table.spec.schema.names,
            parsing.REASON,
            F.lit(self._silver.name).alias("silver"),
            "date",
            "payload",
            "headers",
        )
        task = SilverTask(self.table.spec, self.quarantine.spec, tuple(map(_known, known)), self._moving)
        self._spark.sparkContext.setJobDescription(f"silver {self._silver.name}: {described(everything)}")
        done = self._divided(rows, everything).mapInArrow(task, from_arrow_schema(RESULT)).collect()
        parts = [msgspec.json.decode(bytes(row["written"]), type=Written) for row in done]
        return Written(
            read=sum(part.read for part in parts),
            good=[file for part in parts for file in part.good],
            bad=[file for part in parts for file in part.bad],
        )

    def _divided(self, rows: DataFrame, spans: list[Span]) -> DataFrame:
        """Assign rows to tasks, so that repeats meet in one task and a day has few files: by day and, for full days, by device."""
        days = {file.partition["date"] for file in files_of(self._bronze, spans)}
        tasks = max(1, round(sum(span.until - span.after for span in spans) / ROWS_PER_TASK))
        is_bad = F.col(parsing.REASON).isNotNull()
        if self._moving:
            return rows.repartition(tasks, F.when(is_bad, F.col("sequence")).otherwise(F.xxhash64(*KEY)))
        per_day = F.lit(max(1, round(tasks / max(1, len(days)))))
        share = F.when(is_bad, F.col("sequence")).otherwise(F.xxhash64("device"))
        return rows.repartition(tasks, F.when(~is_bad, F.col("event_date")), F.pmod(share, per_day))

    @property
    def _moving(self) -> bool:
        """Whether a repeated message may have another event time or device than before."""
        return self._silver.event_time == "stored_at" or self._silver.device == "stream"

    def _rows(self, spans: list[Span]) -> DataFrame:
        return rows_of(self._spark, self._bronze, spans, _READ).where(parsing.matches(self._silver.subjects))

    @staticmethod
    def _commit(
        table: LakeTable, files: list[DataFile], positions: dict[str, int], replaced: Iterable[TableFile] = ()
    ) -> None:
        try:
            table.commit(files, positions, replaced)
        except Fenced:
            table.spec.writer().discard(files)
            raise

    @staticmethod
    def _positions(spans: list[Span]) -> dict[str, int]:
        return {position_id(span.stream, span.created_ns): span.until for span in spans}

    def _quarantine_id(self, stream: str, created_ns: int) -> str:
        return f"{self._silver.name}/{position_id(stream, created_ns)}"

    def _quarantined(self, spans: list[Span]) -> dict[str, int]:
        return {self._quarantine_id(span.stream, span.created_ns): span.until for span in spans}

    def _identified(self, rows: DataFrame) -> DataFrame:
        """Add origin and hash; a message published at the hub has its own stream as origin."""
        return rows.withColumns(
            {
                "origin_domain": F.when(F.col("origin_stream").isNull(), F.col("domain")).otherwise(
                    F.col("origin_domain")
                ),
                "origin_stream": F.coalesce("origin_stream", "stream"),
                "origin_sequence": F.coalesce("origin_sequence", "sequence"),
                "content_hash": F.xxhash64("subject", "payload"),
            }
        ).withColumn("origin_domain", F.coalesce("origin_domain", F.lit("")))


def _known(file: TableFile) -> KnownFile:
    first, last = file.least.get("origin_sequence", -ANY), file.most.get("origin_sequence", ANY)
    return KnownFile(file.path, str(file.partition["event_date"]), first, last)


def _count(done: SilverRound, written: Written) -> None:
    added = sum(file.rows for file in written.good)
    done.read += written.read
    done.added += added
    done.duplicates += written.read - added
    done.quarantined += sum(file.rows for file in written.bad)
