"""Silver: the payloads of some subjects as typed rows, each message once; messages that do not parse go to quarantine.

A message's identity is its origin (domain, stream, sequence there) and a hash of subject and payload. A message that
reached the hub twice, or lies in two of its streams, becomes one row. Another message with the same sequence, from a
device whose stream was created again, stays a row of its own.

Quarantine and silver keep their own positions in bronze, so that a job killed between the two commits repeats neither.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub import columns
from eyot_hub.grouping import grouped
from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.config.config import Config, Silver
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.removals.device_lists import device_days
from eyot_hub.jobs.removals.erasures import keep_up, named
from eyot_hub.jobs.removals.retention import first_day
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.silver.replays import REPLAY_ID, last_replay
from eyot_hub.jobs.silver.rows_left import rows_beside, rows_without_bronze
from eyot_hub.jobs.silver.silver_input import Division, Piece, SilverInput, Written
from eyot_hub.jobs.silver.silver_task import KnownFile, SilverTask
from eyot_hub.jobs.tables.files import ROW_GROUP_ROWS, DataFile
from eyot_hub.jobs.tables.increments import Span, Streams, described, files_of, limited, new_spans, ranges_of
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

log = logging.getLogger(__name__)

QUARANTINE: Final = "quarantine"
PASSED_TRIES: Final = 20  # of a commit that other jobs overtake
ROWS_PER_TASK: Final = 250_000  # a smaller round is a single task
ROWS_PER_FILE: Final = 500  # opening a file takes as long as processing so many rows
ROWS_PER_TASK_MAX: Final = 1_000_000  # bounds a task's memory per commit; a larger backlog needs several commits
ANY: Final = 1 << 62  # above every sequence
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
    expired: int = 0  # rows of days that retention has removed from silver or quarantine, which are not taken again
    kept: int = 0  # by a rebuild: rows whose messages retention removed from bronze


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
    return open_table(config.lake, f"silver/{silver.name}", silver_schema(silver), ("event_date",))


def quarantine_table(config: Config) -> LakeTable:
    return open_table(config.lake, QUARANTINE, QUARANTINE_SCHEMA, ("silver", "date"))


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
        self._refresh()
        before = [(table, table.version) for table in (self.quarantine, self.table)]
        while self._portion(streams, done):
            pass
        for table, version in before:
            table.maintain_when_due(version, self._config.bronze.compact_every, self._config.bronze.vacuum_hours)
        return done

    def rebuild(self, streams: Streams) -> SilverRound:
        """Rebuild both tables from all of bronze, each in one commit that replaces its content.

        Rows whose messages retention has removed from bronze stay as they are. What it has removed from these two tables
        does not come back.
        """
        done = SilverRound(self._silver.name)
        self._refresh()
        spans = new_spans(streams, lambda *_: 0, lambda *at: self._bronze.position(position_id(*at)))
        if spans:
            self._replace(spans, done)
        return done

    def _refresh(self) -> None:
        for table in (self.quarantine, self.table):
            table.refresh()
            keep_up(self._bronze, table)

    def _replace(self, spans: list[Span], done: SilverRound) -> None:
        held, filled = self.quarantine.files(silver={self._silver.name}), self.table.files()
        bad = rows_without_bronze(self.quarantine, self._bronze, held)
        kept = rows_without_bronze(self.table, self._bronze, filled)
        known = [KnownFile(file.path, dict(file.partition)["event_date"], -ANY, ANY) for file in kept]
        written = self._written(spans, spans, known)
        stay = [*bad, *written.bad]
        # Killed between the two commits, a row that the present rules take would be in neither table.
        passing = rows_beside(self.quarantine, held, stay)
        self._commit(self.quarantine, [*stay, *passing], self._quarantined(spans), held)
        self._commit(self.table, [*kept, *written.good], self._filled(spans), filled)
        self._remove_passed({file.path for file in passing})
        _count(done, written)
        done.kept = sum(file.rows for file in kept)

    def _remove_passed(self, paths: set[str]) -> None:
        """Remove files of quarantined rows that silver has now. Files that another job has joined stay: the next replay looks at them."""
        for _ in range(PASSED_TRIES if paths else 0):
            files = [file for file in self.quarantine.files() if file.path in paths]
            try:
                return self.quarantine.commit([], named(self.quarantine), files)
            except Fenced as fenced:
                log.info("again: %s", fenced)
                self.quarantine.refresh()

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
        known = [known_file(file) for file in self.table.files()]
        again = self._half_done(spans)
        written = self._written(spans, [*held, *again], known)
        positions = self._quarantined(held)
        if again:
            positions = {**self._known_positions(again), **positions}
            written = self._without_known(written, again)
        if held or again:
            self._commit(self.quarantine, written.bad, positions)
        if spans:
            self._commit(self.table, written.good, self._filled(spans))
        _count(done, written)
        return True

    def _half_done(self, spans: list[Span]) -> list[Span]:
        """Return what a round that was killed between its two commits, or overtaken, has done for the quarantine alone.

        That round may have had another configuration. A row that it left to silver, and this one does not, is in neither.
        """
        found = []
        for span in spans:
            until = self.quarantine.position(self._quarantine_id(span.stream, span.created_ns)) or 0
            if until > span.after:
                found.append(replace(span, until=min(span.until, until)))
        return found

    def _known_positions(self, spans: list[Span]) -> dict[str, int]:
        ids = [self._quarantine_id(span.stream, span.created_ns) for span in spans]
        return {name: self.quarantine.position(name) or 0 for name in ids}

    def _without_known(self, written: Written, spans: list[Span]) -> Written:
        """Leave out the bad rows of the spans that the quarantine has."""
        held = self.quarantine.files(silver={self._silver.name})
        known = [file for file in held if any(span.may_lie_in(file) for span in spans)]
        bad = rows_beside(self.quarantine, written.bad, known)
        self.quarantine.spec.writer().discard(written.bad)
        return Written(written.read, written.good, bad, written.expired, written.bad_expired)

    def _written(self, spans: list[Span], held: list[Span], known: list[KnownFile]) -> Written:
        """Let tasks write the good rows of `spans` and the bad ones of `held`."""
        everything = list(dict.fromkeys([*spans, *held]))
        pieces = self._pieces(spans, held)
        rows = sum(span.until - span.after for span in everything)
        tasks = max(1, round(rows / ROWS_PER_TASK))
        days = {piece.date for piece in pieces}
        by_month = self._config.lake.partition == "month"
        source = SilverInput(
            bronze=self._bronze.spec.place,
            shape=self._silver.shape(by_month=by_month),
            name=self._silver.name,
            subjects=parsing.subject_pattern(self._silver.subjects),
            silver=self.table.spec.schema,
            quarantine=self.quarantine.spec,
            division=Division(tasks, not moving(self._silver), max(1, round(tasks / max(1, len(days)))), by_month),
        )
        devices = device_days(self.table, self._config)
        task = SilverTask(self.table.spec, tuple(known), moving(self._silver), first_day(self.table), devices)
        context = self._spark.sparkContext
        context.setJobDescription(f"silver {self._silver.name}: {described(everything)}")
        groups = balanced(pieces, context.defaultParallelism)
        read = context.parallelize(groups, max(1, len(groups)))
        if tasks == 1 and len(groups) <= 1:
            done = read.map(lambda group: task(source.blocks(group))).collect()
        else:
            blocks = read.flatMap(source.blocks).partitionBy(tasks, _same)
            done = blocks.mapPartitions(lambda one: [task(one)]).collect()
        return Written(
            read=sum(part.read for part in done),
            good=[file for part in done for file in part.good],
            bad=[file for part in done for file in part.bad],
            expired=sum(part.expired for part in done),
            bad_expired=sum(part.bad_expired for part in done),
        )

    def _pieces(self, spans: list[Span], held: list[Span]) -> list[Piece]:
        """Return the pieces of bronze's files that may hold rows of the spans."""
        wanted, kept, first = ranges_of(spans), ranges_of(held), first_day(self.quarantine)
        pieces = []
        for file in files_of(self._bronze, list(dict.fromkeys([*spans, *held]))):
            stream = file.partition["stream"]
            parts = max(1, math.ceil(file.rows / ROW_GROUP_ROWS))
            day = str(file.partition["date"])
            whole = Piece(
                file.path,
                stream,
                day,
                0,
                parts,
                math.ceil(file.rows / parts),
                tuple(wanted.get(stream, ())),
                tuple(kept.get(stream, ())),
                bad_left=day < first,
            )
            pieces += [whole._replace(part=part) for part in range(parts)]
        return pieces

    @staticmethod
    def _commit(
        table: LakeTable, files: list[DataFile], positions: dict[str, int], replaced: Iterable[TableFile] = ()
    ) -> None:
        try:
            table.commit(files, positions, replaced)
        except Fenced:
            table.spec.writer().discard(files)
            raise

    def _filled(self, spans: list[Span]) -> dict[str, int]:
        """Return the positions after the spans. The replays' number stays, and refuses what a replay overtook."""
        positions = {position_id(span.stream, span.created_ns): span.until for span in spans}
        return {**positions, REPLAY_ID: last_replay(self.table), **named(self.table)}

    def _quarantine_id(self, stream: str, created_ns: int) -> str:
        return f"{self._silver.name}/{position_id(stream, created_ns)}"

    def _quarantined(self, spans: list[Span]) -> dict[str, int]:
        positions = {self._quarantine_id(span.stream, span.created_ns): span.until for span in spans}
        return {**positions, **named(self.quarantine)}


def balanced(pieces: list[Piece], cores: int) -> list[list[Piece]]:
    """Divide the pieces among tasks of about the same rows, where a file counts as some rows of its own."""
    total = sum(piece.rows + ROWS_PER_FILE for piece in pieces)
    tasks = max(1, round(total / ROWS_PER_TASK))
    tasks = math.ceil(tasks / cores) * cores if tasks > 1 else 1
    return grouped(pieces, [piece.rows + ROWS_PER_FILE for piece in pieces], tasks)


def _same(task: int) -> int:
    return task


def moving(silver: Silver) -> bool:
    """Return whether a repeated message may have another event time or device than before."""
    return silver.event_time == "stored_at" or silver.device == "stream"


def known_file(file: TableFile) -> KnownFile:
    """Return what a task needs to know of a file of silver."""
    first, last = file.least.get("origin_sequence", -ANY), file.most.get("origin_sequence", ANY)
    return KnownFile(file.path, str(file.partition["event_date"]), first, last)


def _count(done: SilverRound, written: Written) -> None:
    added = sum(file.rows for file in written.good)
    done.read += written.read
    done.added += added
    done.expired += written.expired + written.bad_expired
    done.duplicates += written.read - added - written.expired
    done.quarantined += sum(file.rows for file in written.bad)
