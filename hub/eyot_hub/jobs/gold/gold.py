"""Gold: windows by event time for each device and metric, corrected when late data arrives.

There is no watermark, because devices are regularly away for days. New silver rows determine the affected windows.
Exactly these windows are recomputed from all of silver, and their partitions are replaced in one commit. `revision`
counts how often a window was computed: 1 at first.

Windows of days that retention has removed from silver are not computed any more: of their readings, silver has at most
late ones. Days that it has removed from gold do not come back.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub import columns
from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.config.config import Config, Gold
from eyot_hub.jobs.gold.gold_task import Portion, Readings, Work, compute
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.removals.erasures import keep_up, named
from eyot_hub.jobs.removals.retention import first_day
from eyot_hub.jobs.silver.replays import REPLAY_ID, last_replay, uncounted_spans
from eyot_hub.jobs.tables.increments import Span, Streams, files_of, new_spans, streams_in
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.quantities import counted

ROWS_PER_TASK: Final = 4_000_000  # a larger partition is divided among tasks


@dataclass
class GoldRound:
    """The result of one round for one gold table."""

    name: str
    rows: int = 0  # new silver rows
    windows: int = 0  # computed windows, new ones included
    corrected: int = 0  # of these, windows that existed before
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
            *[(columns.percentile_name(p), pa.float64()) for p in gold.percentiles],
            ("revision", pa.int64()),
            ("computed_at", columns.TIMESTAMP),
            ("event_date", pa.date32()),
        ]
    )


def gold_table(config: Config, gold: Gold) -> LakeTable:
    return open_table(config.lake, f"gold/{gold.name}", gold_schema(gold), ("event_date",))


class Aggregator:
    """Keeps one gold table consistent with its silver table."""

    def __init__(self, spark: SparkSession, config: Config, gold: Gold, silver: LakeTable) -> None:
        self._spark = spark
        self._gold = gold
        self._config = config
        self._bronze = config.bronze
        self.silver = silver
        self.silver_name = gold.silver
        self.table = gold_table(config, gold)

    def round(self, streams: Streams) -> GoldRound:
        """Compute every window that silver rows newer than the last round fall into, replayed ones included."""
        done = GoldRound(self._gold.name)
        self.table.refresh()
        keep_up(self.silver, self.table)
        streams = self._streams(streams)
        if last_replay(self.silver) < last_replay(self.table):
            self.silver.refresh()  # another job counted a replay that this job has not seen
        spans = new_spans(
            streams,
            lambda *at: self.table.position(position_id(*at)),
            lambda *at: self.silver.position(position_id(*at)),
        )
        replayed = uncounted_spans(self._config, self.silver_name, self.silver, self.table)
        if spans or replayed:
            before = self.table.version
            self._compute(spans, done, replayed)
            self.table.maintain_when_due(before, self._bronze.compact_every, self._bronze.vacuum_hours)
        return done

    def rebuild(self, streams: Streams) -> GoldRound:
        """Recompute every window from all of silver, in one commit that replaces the table's content.

        Windows of days that have left silver stay as they are, and days that have left gold do not come back.
        """
        done = GoldRound(self._gold.name)
        self.table.refresh()
        keep_up(self.silver, self.table)
        known = sorted({*streams, *streams_in(self._spark, self.silver)})
        spans = new_spans(known, lambda *_: 0, lambda *at: self.silver.position(position_id(*at)))
        if spans:
            self._compute(spans, done, [], recompute=True)
        return done

    def _streams(self, streams: Streams) -> Streams:
        """Return the streams that silver may have rows of. `streams`: those of bronze, which lacks streams that left it.

        Retention removes nothing from bronze that this table has not read. Only a table that has read nothing lacks more.
        """
        started = self.table.files() or any(self.table.position(position_id(*at)) is not None for at in streams)
        return streams if started else sorted({*streams, *streams_in(self._spark, self.silver)})

    def _compute(self, spans: list[Span], done: GoldRound, replayed: list[Span], *, recompute: bool = False) -> None:
        work = self._work([*spans, *replayed], keep=not recompute)
        closed = max(first_day(self.silver), first_day(self.table))
        portions = self._portions([*spans, *replayed], closed)
        context = self._spark.sparkContext
        context.setJobDescription(
            f"gold {self._gold.name}: {counted(len({portion.day for portion in portions}), 'partition')}"
        )
        tasks = context.parallelize(portions, max(1, len(portions)))
        computed = tasks.map(lambda portion: compute(work, portion)).collect() if portions else []
        days = {task.day for task in computed if task.windows}
        files = self.table.files()
        replaced = [file for file in files if (_day(file) >= closed if recompute else _day(file) in days)]
        unchanged = [file for task in computed if task.day not in days for file in task.files]
        work.gold.writer().discard(unchanged)
        written = [file for task in computed if task.day in days for file in task.files]
        try:
            positions = {position_id(s.stream, s.created_ns): s.until for s in spans}
            positions |= {REPLAY_ID: last_replay(self.silver), **named(self.table)}
            self.table.commit(written, positions, replaced)
        except Fenced:
            work.gold.writer().discard(written)
            raise
        done.rows = sum(task.rows for task in computed)
        done.windows = sum(task.windows for task in computed)
        done.corrected = sum(task.corrected for task in computed)
        done.partitions = len(days)

    def _work(self, spans: list[Span], *, keep: bool) -> Work:
        gold = self._gold
        names = ["device", "event_time", *([gold.metric, gold.value] if gold.metric else gold.metrics)]
        schema = pa.schema([self.silver.spec.schema.field(name) for name in dict.fromkeys(names)])
        return Work(
            silver=self.silver.spec.place,
            gold=self.table.spec,
            readings=Readings(schema, gold.metric, gold.value, tuple(gold.metrics)),
            spans=tuple(spans),
            window_us=parse_duration_ns(gold.window) // 1000,
            percentiles=tuple(gold.percentiles),
            keep=keep,
        )

    def _portions(self, spans: list[Span], closed: str) -> list[Portion]:
        """Return the partitions that may hold new rows, the largest first, without the days before `closed`."""
        held, before = defaultdict(list), defaultdict(list)
        for file in self.silver.files():
            if _day(file) >= closed:
                held[_day(file)].append(file)
        for file in self.table.files():
            before[_day(file)].append(file.path)
        portions = []
        new = {file.path for file in files_of(self.silver, spans)}
        for day, files in sorted(held.items(), key=lambda item: -sum(file.rows for file in item[1])):
            fresh = {file.path for file in files} & new
            if not fresh:
                continue
            others = tuple(file.path for file in files if file.path not in fresh)
            shares = max(1, round(sum(file.rows for file in files) / ROWS_PER_TASK))
            whole = Portion(day, tuple(sorted(fresh)), others, tuple(before[day]), 0, shares)
            portions += [replace(whole, share=share) for share in range(shares)]
        return portions


def _day(file: TableFile) -> str:
    return str(file.partition["event_date"])
