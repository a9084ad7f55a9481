"""A task's way from bronze's files to silver's rows, all of it in Arrow: nothing passes through Spark's rows.

A task reads row groups of bronze, drops other subjects and other sequences, parses the payloads, and writes what does
not parse to the quarantine. Good rows are divided among the tasks that follow (`silver_task.py`), so that repeats meet
in one of them. They travel as Arrow tables of many rows, each of which is one record of Spark's shuffle.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import columns, native
from eyot_hub.jobs.payloads.payload_columns import bytes_of
from eyot_hub.jobs.payloads.payload_shape import Shape
from eyot_hub.jobs.payloads.payloads import EVENT_DATE, REASON, PayloadParser
from eyot_hub.jobs.silver.window_keys import Ints
from eyot_hub.jobs.tables.file_rows import Range, codes, row_groups
from eyot_hub.jobs.tables.files import DataFile, FileWriter, Place, by_partition
from eyot_hub.jobs.tables.table_format import TableSpec

ROWS_AT_ONCE: Final = 32 * 1024  # parsed together; few enough for the processor's caches
BLOCK_ROWS: Final = 128 * 1024  # rows of one Arrow table in the shuffle, approximately
#: Columns of bronze that are read first. Headers are read where a row is bad: only the quarantine keeps them.
_READ: Final = pa.schema(
    [
        ("stream_created_ns", pa.int64()),
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("payload", pa.binary()),
        ("stored_at", columns.TIMESTAMP),
        ("domain", pa.string()),
        ("origin_domain", pa.string()),
        ("origin_stream", pa.string()),
        ("origin_sequence", pa.int64()),
    ]
)
_CODED: Final = ("subject", "domain", "origin_domain", "origin_stream")
_HEADERS: Final = pa.schema([("headers", columns.MAP_TYPE)])


class Piece(NamedTuple):
    """Some row groups of a file of bronze: every `parts`-th from `part` on; `rows` is an estimate."""

    path: str
    stream: str
    date: str
    part: int
    parts: int
    rows: int
    wanted: tuple[Range, ...]  # rows that silver lacks
    held: tuple[Range, ...]  # rows that the quarantine lacks
    bad_left: bool = False  # retention has removed this day from the quarantine


class Written(msgspec.Struct):
    """A task's result: good rows read, files of silver and of the quarantine.

    `expired`: of the rows read, those of days that retention has removed; `bad_expired`: bad rows of such days.
    """

    read: int
    good: list[DataFile]
    bad: list[DataFile]
    expired: int = 0
    bad_expired: int = 0


Block = tuple[int, pa.Buffer | Written]  # the task that it goes to; an Arrow stream of rows, or files of the quarantine


@dataclass(frozen=True)
class Division:
    """How good rows are divided among `tasks`: by content, or (`by_day`) by event date and device, for few files a day.

    `shares`: among how many tasks the devices of a day are divided.
    """

    tasks: int
    by_day: bool
    shares: int = 1
    by_month: bool = False

    def of(self, rows: pa.Table) -> Ints:
        """Return each row's task."""
        if not self.by_day:
            content = rows.column("content_hash").to_numpy().view(np.uint64)
            by_content: Ints = (content % np.uint64(self.tasks)).astype(np.int64)
            return by_content
        days = rows.column(EVENT_DATE).cast(pa.int32()).to_numpy().astype(np.int64)
        # Months are numbered in steps of one, too, so that partitions go to the tasks in turn.
        ordinal = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) if self.by_month else days
        share = np.zeros(rows.num_rows, np.int64)
        if self.shares > 1:
            devices = codes(rows.column("device").dictionary_encode())
            crc = [zlib.crc32(name.encode()) % self.shares for name in devices.dictionary.to_pylist()]
            share = np.array(crc, np.int64)[devices.indices.to_numpy()]
        by_day: Ints = (ordinal * self.shares + share) % self.tasks
        return by_day


@dataclass(frozen=True)
class SilverInput:
    """What tasks need to know to make rows of a silver table. Sent to the executors."""

    bronze: Place
    shape: Shape
    name: str  # of the silver table, for the quarantine
    subjects: str  # a regular expression
    silver: pa.Schema
    quarantine: TableSpec
    division: Division

    def blocks(self, pieces: Iterable[Piece]) -> Iterator[Block]:
        """Yield good rows by the task that they go to; at last, for task 0, what was written to the quarantine."""
        waiting: dict[int, list[pa.Table]] = {}
        bad = _Bad(self.quarantine.writer())
        try:
            for rows in self._rows(pieces, bad):
                for task, part in self._divided(rows):
                    held = waiting.setdefault(task, [])
                    held.append(part)
                    if sum(one.num_rows for one in held) >= BLOCK_ROWS:
                        yield task, packed(waiting.pop(task))
            for task, held in waiting.items():
                yield task, packed(held)
            yield 0, Written(0, [], bad.writer.finish(), bad_expired=bad.expired)
        except BaseException:
            bad.writer.abandon()
            raise

    def _rows(self, pieces: Iterable[Piece], bad: _Bad) -> Iterator[pa.Table]:
        """Yield the good rows of the pieces in portions; write the bad ones, unless their day has left the quarantine."""
        parser = PayloadParser(self.shape, KEPT)
        parse = parser.start()
        subjects = _Subjects(re.compile(self.subjects))
        for piece in pieces:
            chosen = _RowGroups(piece)
            for number, group in enumerate(row_groups(self.bronze, [piece.path], _READ, _CODED, chosen)):
                for at in range(0, group.num_rows, ROWS_AT_ONCE):
                    rows = group.slice(at, ROWS_AT_ONCE).combine_chunks()
                    wanted, held = _inside(rows, piece.wanted), _inside(rows, piece.held)
                    mask = subjects.match(rows) & (wanted | held)
                    if not mask.any():
                        continue
                    if not mask.all():
                        rows, wanted, held = rows.filter(pa.array(mask)), wanted[mask], held[mask]
                    (batch,) = _identified(rows, piece).to_batches()
                    parsed = parse(batch)
                    is_bad = parsed.column(REASON).is_valid().to_numpy(zero_copy_only=False)
                    if piece.bad_left:
                        bad.expired += int((is_bad & held).sum())
                    elif (is_bad & held).any():
                        numbers = np.flatnonzero(mask)[is_bad & held] + at
                        headers = self._headers(piece, chosen, number).take(pa.array(numbers))
                        self._quarantine(parsed.filter(pa.array(is_bad & held)), headers, piece, bad.writer)
                    good = wanted & ~is_bad
                    if good.any():
                        made = pa.Table.from_batches([parsed]).select(self.silver.names)
                        yield _coded(made if good.all() else made.filter(pa.array(good)))

    def _divided(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if self.division.tasks == 1:
            yield 0, rows
            return
        tasks = self.division.of(rows)
        counts = np.bincount(tasks, minlength=self.division.tasks)
        if np.count_nonzero(counts) > 1:
            rows = rows.take(pa.array(np.argsort(tasks, kind="stable")))
        for task in np.flatnonzero(counts).tolist():
            yield task, rows.slice(int(counts[:task].sum()), int(counts[task]))

    def _headers(self, piece: Piece, chosen: _RowGroups, number: int) -> pa.ChunkedArray:
        """Return the headers of the `number`-th row group that was read."""
        only = chosen.taken[number]
        (group,) = row_groups(self.bronze, [piece.path], _HEADERS, choose=lambda _file: [only])
        return group.column("headers")

    def _quarantine(self, rows: pa.RecordBatch, headers: pa.ChunkedArray, piece: Piece, bad: FileWriter) -> None:
        made = dict(zip(rows.schema.names, rows.columns, strict=True))
        made["silver"] = pa.repeat(pa.scalar(self.name), rows.num_rows)
        made["date"] = pa.repeat(pa.scalar(piece.date).cast(pa.date32()), rows.num_rows)
        made["headers"] = headers
        schema = self.quarantine.schema
        poison = pa.table([made[name] for name in schema.names], names=schema.names).cast(schema)
        for partition, part in by_partition(poison, self.quarantine.partition_by):
            bad.write(part, partition)


#: Columns that pass through the parser unchanged; payloads only of bad rows.
KEPT: Final = (
    "subject",
    "payload",
    "stored_at",
    "origin_domain",
    "origin_stream",
    "origin_sequence",
    "content_hash",
    "stream",
    "stream_created_ns",
    "sequence",
)


@dataclass
class _Bad:
    """Where bad rows go, and how many went nowhere because their day has left the quarantine."""

    writer: FileWriter
    expired: int = 0


class _RowGroups:
    """Chooses the row groups of a piece that may hold its rows, by the file's statistics."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self.taken: list[int] = []

    def __call__(self, file: Any) -> list[int]:
        ranges = (*self._piece.wanted, *self._piece.held)
        names = file.schema_arrow.names
        at = names.index("sequence") if "sequence" in names else -1
        self.taken = []
        for number in range(self._piece.part, file.num_row_groups, self._piece.parts):
            held = file.metadata.row_group(number)
            found = next(
                (held.column(n) for n in range(at, held.num_columns) if held.column(n).path_in_schema == "sequence"),
                None,
            )
            known = found.statistics if found is not None and found.is_stats_set else None
            if (
                known is None
                or not known.has_min_max
                or any(one.after < known.max and one.until >= known.min for one in ranges)
            ):
                self.taken.append(number)
        return self.taken


class _Subjects:
    """Tells which rows' subjects match; each distinct subject is compared once."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._known: dict[str, bool] = {}

    def match(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        coded = codes(rows.column("subject"))
        if len(self._known) > ROWS_AT_ONCE:
            self._known.clear()
        hits = []
        for subject in coded.dictionary.to_pylist():
            hit = self._known.get(subject)
            if hit is None:
                hit = self._known[subject] = self._pattern.fullmatch(subject) is not None
            hits.append(hit)
        found: npt.NDArray[np.bool_] = np.array([*hits, False])[coded.indices.fill_null(len(hits)).to_numpy()]
        return found


def _inside(rows: pa.Table, ranges: Iterable[Range]) -> npt.NDArray[np.bool_]:
    """Return which rows lie in one of the ranges."""
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for one in ranges:
        found |= (created == one.created_ns) & (sequence > one.after) & (sequence <= one.until)
    return found


def _identified(rows: pa.Table, piece: Piece) -> pa.Table:
    """Add stream, origin and hash; a message published at the hub has its own stream as origin.

    Texts that few rows differ in stay numbers into lists of texts until silver's files are written.
    """
    own = codes(rows.column("origin_stream")).is_null()
    stream = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([piece.stream]))
    made = {
        "stream_created_ns": rows.column("stream_created_ns"),
        "sequence": rows.column("sequence"),
        "subject": rows.column("subject"),
        "payload": rows.column("payload"),
        "stored_at": rows.column("stored_at"),
        "stream": stream,
        "origin_domain": _either(own, codes(rows.column("domain")), codes(rows.column("origin_domain"))),
        "origin_stream": _either(own, stream, codes(rows.column("origin_stream"))),
        "origin_sequence": pc.coalesce(rows.column("origin_sequence"), rows.column("sequence")),
        "content_hash": content_hashes(codes(rows.column("subject")), rows.column("payload")),
    }
    return pa.table(made).combine_chunks()


def _coded(rows: pa.Table) -> pa.Table:
    """Return the rows with devices as numbers into a list of texts, too: they are compared and sorted by."""
    devices = codes(rows.column("device").dictionary_encode())
    return rows.set_column(rows.column_names.index("device"), "device", devices)


def _either(first: pa.BooleanArray, one: pa.DictionaryArray, other: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the texts of `one` where `first` is true, else those of `other`; of a null: ""."""
    numbers: dict[str, int] = {"": 0}
    of_one, of_other = (
        np.array(
            [*(numbers.setdefault(text or "", len(numbers)) for text in coded.dictionary.to_pylist()), 0], np.int32
        )[coded.indices.fill_null(len(coded.dictionary)).to_numpy()]
        for coded in (one, other)
    )
    chosen = np.where(first.to_numpy(zero_copy_only=False), of_one, of_other)
    return pa.DictionaryArray.from_arrays(pa.array(chosen), pa.array(list(numbers), pa.string()))


def content_hashes(subjects: pa.DictionaryArray, payloads: pa.ChunkedArray) -> pa.Int64Array:
    """Return 64 bits of each message's content: BLAKE2b of the payload, plus BLAKE2b of the subject times an odd number.

    Distinct subjects are hashed once.
    """
    of_payload = _hashed(payloads)
    names = [*((subject or "").encode() for subject in subjects.dictionary.to_pylist()), b""]
    of_subject = _hashed(pa.chunked_array([pa.array(names, pa.binary())]))
    index = subjects.indices.fill_null(len(subjects.dictionary)).to_numpy()
    with np.errstate(over="ignore"):
        return pa.array((of_payload + of_subject[index] * _ODD).view(np.int64))


_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def _hashed(texts: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    found = np.empty(len(texts), np.uint64)
    at = 0
    for chunk in texts.chunks:
        native.hash_payloads(*bytes_of(chunk), found[at : at + len(chunk)])
        at += len(chunk)
    return found


def packed(tables: list[pa.Table]) -> pa.Buffer:
    """Return the rows of tables of one schema as one block."""
    sink = pa.BufferOutputStream()
    table = pa.concat_tables(tables).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpacked(block: pa.Buffer) -> pa.Table:
    """Return the rows of a block."""
    return pa.ipc.open_stream(block).read_all()
