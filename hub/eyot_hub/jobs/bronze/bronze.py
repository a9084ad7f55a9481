"""Bronze: every stored message of the streams as one row of a Delta table; the job `ingest`.

A round requests the ends of the streams, reads its positions from the table's own transactions, and cuts the range
between them into pieces. Each task reads one piece, or many small ones, and writes Parquet files, without a detour through Spark's
rows. The driver commits all files together with the new positions. `eyot:<stream>@<epoch>` is the last sequence of that
epoch in the table; `eyot:<stream>` is the epoch being read. There is no checkpoint that could be lost.

An epoch's name is the stream's creation time in ns. A stream whose end moved back (a power cut of the server, a
restored backup) stores other messages under sequences that the table holds already. That is data loss. If the job
continues anyway, the messages stored since form an epoch of their own, named one nanosecond later. To detect this, the
positions also keep the last message read and its stored time (`.../row`, `.../stored`).

A killed job leaves files that no commit refers to, and a new start continues. Of two jobs on one table, the slower
one's commit is refused; it removes its files and plans again from the table's positions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from eyot_hub import offsets
from eyot_hub.jetstream import StreamInfo
from eyot_hub.jobs.bronze.bronze_task import PARTITION_BY as PARTITION_BY
from eyot_hub.jobs.bronze.bronze_task import SCHEMA as SCHEMA
from eyot_hub.jobs.bronze.bronze_task import Work, Written, write_pieces
from eyot_hub.jobs.config.config import Config, seconds
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.table import Fenced, LakeTable, Refusals
from eyot_hub.offsets import LastRow, Position, Positions
from eyot_hub.planning import Planner
from eyot_hub.range_reader import StreamRange
from eyot_hub.stopping import wait

log = logging.getLogger(__name__)

BRONZE: Final = "bronze"
DESCRIBED_MAX: Final = 10
EPOCHS_MAX: Final = 1000  # the most epochs of one stream, that is, how often its end may move back


@dataclass
class Round:
    """The result of one round. `seconds`: from request to commit."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0
    advanced: dict[str, tuple[int, int]] = field(default_factory=dict)  # stream: first and last sequence
    behind: int = 0  # messages in the streams beyond this round


@dataclass(frozen=True)
class _Start:
    """Where reading a stream continues, and in which epoch."""

    at: Position
    epoch_ns: int
    new: bool = False  # an epoch that the table does not know yet, after one that it knows
    begins: int = 1  # the epoch's first sequence: above 1 when the stream's end moved back


def position_id(stream: str, created_ns: int) -> str:
    """Return the transaction id of a stream's position; `created_ns` names the epoch."""
    return f"eyot:{stream}@{created_ns}"


def row_ids(stream: str, epoch_ns: int) -> tuple[str, str]:
    """Return the transaction ids of the last message read: for its sequence, and for its stored time (ns)."""
    position = position_id(stream, epoch_ns)
    return f"{position}/row", f"{position}/stored"


def begins_id(stream: str, epoch_ns: int) -> str:
    """Return the transaction id of the first sequence of an epoch that follows another one."""
    return f"{position_id(stream, epoch_ns)}/begins"


def same_stream(epoch_ns: int, created_ns: int) -> bool:
    """Return whether an epoch belongs to the stream created then: as its first, or after its end moved back."""
    return 0 <= epoch_ns - created_ns < EPOCHS_MAX


def incarnation_id(stream: str) -> str:
    """Return the transaction id of the epoch that is being read for streams of this name."""
    return f"eyot:{stream}"


def bronze_table(config: Config) -> LakeTable:
    return open_table(config.lake, BRONZE, SCHEMA, PARTITION_BY)


def _noted(name: str, start: _Start) -> dict[str, int]:
    """Return the positions that record a stream's new epoch."""
    positions = {position_id(name, start.epoch_ns): start.at.sequence, incarnation_id(name): start.epoch_ns}
    positions[begins_id(name, start.epoch_ns)] = start.begins
    if start.at.row is not None:
        positions |= dict(zip(row_ids(name, start.epoch_ns), start.at.row, strict=True))
    return positions


class Ingest:
    """The ingest job: call `round`, or `run`."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._planner = Planner(config.source())
        self.table = bronze_table(config)
        self._reading: set[str] = set()  # streams that existed in an earlier round

    def close(self) -> None:
        self._planner.close()

    def run(self, *, once: bool, report: Callable[[Round], None], stop: Callable[[], bool] = lambda: False) -> None:
        """Run rounds until the table holds what the streams held at the start (`once`), or until `stop` returns True."""
        poll_s = seconds(self._config.bronze.poll)
        target = self._ends() if once else None
        while not stop():
            done = self.round(target)
            if done.advanced:
                report(done)
            elif once:
                return
            else:
                wait(poll_s, stop)

    def round(self, target: Positions | None = None) -> Round:
        """Read and commit one portion. Raises DataLoss and the readers' errors; then nothing is committed."""
        refusals = Refusals([self.table])
        while True:
            try:
                return self._round(target)
            except Fenced as fenced:
                refusals.allow(fenced)
                log.warning("another job wrote to the table, planning again: %s", fenced)

    def _ends(self) -> Positions:
        return {name: Position(info.state.last_seq, info.created) for name, info in self._streams().items()}

    def _streams(self) -> dict[str, StreamInfo]:
        """Return the streams. Raises OptionError for a name that never existed, DataLoss for a stream that disappeared."""
        streams = self._planner.streams(must_exist=not self._reading)
        if not any(
            self.table.position(incarnation_id(name)) for name in streams
        ):  # else a named one may be gone by now
            self._planner.check_named(streams)
        for name in self._reading - streams.keys():
            self._planner.lost_stream(name)
        self._reading = set(streams)
        return streams

    def _round(self, target: Positions | None) -> Round:
        begun = time.monotonic()
        self.table.refresh()
        streams = self._streams()
        starts = {name: self._start(info) for name, info in streams.items()}
        start = {name: begin.at for name, begin in starts.items()}
        ends = {name: Position(info.state.last_seq, info.created) for name, info in streams.items()}
        if target is not None:
            ends = {name: at for name, at in ends.items() if name in target and target[name].created == at.created}
            ends = {name: min(at, target[name]) for name, at in ends.items()}
        behind = sum(max(0, at.sequence - start[name].sequence) for name, at in ends.items())
        until = offsets.limited(start, ends, self._config.bronze.max_messages_per_commit)
        until = {name: at for name, at in until.items() if at.sequence > start[name].sequence}
        done = Round(behind=behind - sum(at.sequence - start[name].sequence for name, at in until.items()))
        noted = [name for name, begin in starts.items() if begin.new]
        if not until and not noted:
            return done
        spans = []
        positions: dict[str, int] = {}
        for name in noted:  # also without new messages: data loss is reported once
            positions |= _noted(name, starts[name])
        for name, at in until.items():
            info = streams[name]
            span = StreamRange(name, info.created, start[name].sequence + 1, at.sequence)
            spans.append((span, self._planner.labels(info)))
            positions[position_id(name, starts[name].epoch_ns)] = at.sequence
            positions[incarnation_id(name)] = starts[name].epoch_ns
            done.advanced[name] = (span.first_seq, span.last_seq)
        before = self.table.version
        tasks = self._planner.tasks(spans, self._spark.sparkContext.defaultParallelism)
        self._write(
            [[Work(piece, starts[piece.span.stream].epoch_ns) for piece in pieces] for pieces in tasks],
            positions,
            done,
        )
        done.seconds = time.monotonic() - begun
        bronze = self._config.bronze
        self.table.maintain_when_due(before, bronze.compact_every, bronze.vacuum_hours)
        return done

    def _start(self, info: StreamInfo) -> _Start:
        """Return the position before the first message that the table lacks."""
        at, epoch_ns = table_position(self.table, info)
        if at is not None:
            first = self._planner.checked_start(info, at)
            # At or below the position, other messages follow under sequences that the table holds.
            moved = first <= at.sequence
            return _Start(_before(first, info), epoch_ns + moved, moved, first if moved else 1)
        reading = self.table.position(incarnation_id(info.name))
        if reading is not None:
            # The table holds an earlier stream of this name.
            earlier = self.table.position(position_id(info.name, reading)) or 0
            self._planner.created_again(info, earlier)
            return _Start(_before(max(1, info.state.first_seq), info), epoch_ns, new=True)
        return _Start(self._planner.starting_of(info), epoch_ns)

    def _compare(self, pieces: list[Work], written: list[Written]) -> None:
        """Check that no stream's end moved back between the reads of two tasks. Raises DataLoss."""
        for name, row in _split(pieces, written):
            stored_ns = self._planner.jetstream.stored_ns(name, row.sequence, self._planner.options.read.subjects)
            if stored_ns not in (None, row.stored_ns):
                self._planner.changed(name, row)

    def _write(self, groups: list[list[Work]], positions: dict[str, int], done: Round) -> None:
        read, spec = self._planner.options.read, self.table.spec
        context = self._spark.sparkContext
        context.setJobDescription("ingest " + _described(done.advanced))
        tasks = context.parallelize(groups, max(1, len(groups)))
        collected = tasks.flatMap(partial(write_pieces, read, spec)).collect() if groups else []
        # A stream's ranges in ascending order, whichever tasks read them.
        pairs = zip((work for group in groups for work in group), collected, strict=True)
        ordered = sorted(pairs, key=lambda pair: (pair[0].piece.span.stream, pair[0].piece.span.first_seq))
        pieces, written = [work for work, _ in ordered], [task for _, task in ordered]
        files = [file for task in written for file in task.files]
        try:
            self._compare(pieces, written)
        except BaseException:
            spec.writer().discard(files)
            raise
        for work, task in zip(pieces, written, strict=True):
            if task.last_row is not None:
                # Ascending by sequence: the last position of a stream wins.
                ids = row_ids(work.piece.span.stream, work.epoch_ns)
                positions |= dict(zip(ids, task.last_row, strict=True))
        try:
            self.table.commit(files, positions)
        except Fenced:  # any other failure may have come after the commit, which then needs the files
            spec.writer().discard(files)
            raise
        done.files = len(files)
        done.rows = sum(task.rows for task in written)
        done.bytes = sum(task.bytes for task in written)


def _described(advanced: dict[str, tuple[int, int]]) -> str:
    """Describe the first ranges, and the number of streams."""
    more = f" and {len(advanced) - DESCRIBED_MAX} more" if len(advanced) > DESCRIBED_MAX else ""
    return ", ".join(f"{name} {a}..{b}" for name, (a, b) in list(advanced.items())[:DESCRIBED_MAX]) + more


def _before(first: int, info: StreamInfo) -> Position:
    """Return the position before a message; with that message's row, if it is the stream's last."""
    return Position(first - 1, info.created, info.last_row if info.state.last_seq == first - 1 else None)


def _split(pieces: list[Work], written: list[Written]) -> Iterator[tuple[str, LastRow]]:
    """Yield the last rows of ranges after which another task continued."""
    for one, following, task in zip(pieces, pieces[1:], written, strict=False):
        if one.piece.span.stream == following.piece.span.stream and task.last_row is not None:
            yield one.piece.span.stream, task.last_row


def table_position(table: LakeTable, info: StreamInfo) -> tuple[Position | None, int]:
    """Return the table's position in this stream (None: it holds nothing of it) and its epoch."""
    reading = table.position(incarnation_id(info.name))
    epoch_ns = reading if reading is not None and same_stream(reading, info.created_ns) else info.created_ns
    at = table.position(position_id(info.name, epoch_ns))
    if at is None:
        return None, epoch_ns
    sequence, stored_ns = map(table.position, row_ids(info.name, epoch_ns))
    row = None if sequence is None or stored_ns is None else LastRow(sequence, stored_ns)
    return Position(at, info.created, row), epoch_ns
