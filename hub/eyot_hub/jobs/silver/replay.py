"""The command `replay`: parses quarantined rows again by the present rules, and moves those that pass to silver.

It needs no Spark and may run beside all other jobs. A portion of rows takes three commits: the ranges into `replays`, the
rows into silver, and the quarantine without them. A replay killed in between leaves rows in both tables; the next one
finds them in silver by their identity, adds nothing, and removes them from the quarantine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import Config, Silver
from eyot_hub.jobs.lake.lake import table_exists
from eyot_hub.jobs.payloads.payloads import REASON, PayloadParser
from eyot_hub.jobs.removals.device_lists import device_days
from eyot_hub.jobs.removals.erasures import last_erasure, named
from eyot_hub.jobs.removals.retention import first_day
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.silver.replays import (
    REPLAY_ID,
    next_replay,
    note_replay,
    replays_table,
    sequences_by_stream,
    spans_of,
)
from eyot_hub.jobs.silver.silver import known_file, moving, quarantine_table, silver_table
from eyot_hub.jobs.silver.silver_input import KEPT, ROWS_AT_ONCE, content_hashes, packed
from eyot_hub.jobs.silver.silver_task import SilverTask
from eyot_hub.jobs.silver.window_keys import Ints
from eyot_hub.jobs.tables.file_rows import codes, row_groups
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile, partition_text
from eyot_wire.digits import is_digits

PORTION_ROWS: Final = 250_000  # passing rows after which no more files are read before these are moved
TRIES: Final = 20  # of a commit that other jobs overtake
_TEXTS: Final = ("reason", "subject", "stream", "origin_domain", "origin_stream")
_NUMBERS: Final = ("sequence", "origin_sequence")
_DATE: Final = "date"
_CONDITION: Final = re.compile(r"(\w+)\s*(>=|<=|=)\s*(.*)", re.DOTALL)


class Condition(NamedTuple):
    """A condition on rows of the quarantine: `value` is a regular expression for texts, a number, or a date."""

    column: str
    operator: str
    value: str | int | date

    def matches(self, rows: pa.Table, day: date) -> npt.NDArray[np.bool_]:
        """Return which rows of a day fulfil the condition."""
        if self.column == _DATE:
            return np.full(rows.num_rows, _COMPARE[self.operator](pa.scalar(day), pa.scalar(self.value)).as_py())
        column = rows.column(self.column)
        if self.column in _TEXTS:
            return matching(column, re.compile(str(self.value), re.DOTALL))
        found = _COMPARE[self.operator](column, pa.scalar(self.value, pa.int64()))
        fulfilled: npt.NDArray[np.bool_] = pc.fill_null(found, False).to_numpy()
        return fulfilled


_DIGITS_MAX: Final = 18  # of a sequence: less than 64 bits, with a sign, hold
_COMPARE: Final[dict[str, Callable[..., Any]]] = {"=": pc.equal, ">=": pc.greater_equal, "<=": pc.less_equal}


def condition(text: str) -> Condition:
    """Parse COLUMN=VALUE (in texts, `*` stands for any characters), COLUMN>=VALUE or COLUMN<=VALUE. Raises ValueError."""
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise ValueError("is none of COLUMN=VALUE, COLUMN>=VALUE, COLUMN<=VALUE")
    column, operator, value = found.groups()
    if column in _TEXTS:
        if operator != "=":
            raise ValueError(f"{column} is a text: give {column}=PATTERN")
        pattern = ".*".join(re.escape(part) for part in value.split("*"))
        return Condition(column, operator, pattern)
    if column in _NUMBERS:
        if not is_digits(value):
            raise ValueError(f"{value!r} is no number")
        if len(value.lstrip("0")) > _DIGITS_MAX:
            raise ValueError(f"{value!r} is beyond every sequence")
        return Condition(column, operator, int(value))
    if column == _DATE:
        try:
            return Condition(column, operator, date.fromisoformat(value))
        except ValueError:
            raise ValueError(f"{value!r} is no date (2026-01-31)") from None
    raise ValueError(f"there is no column {column!r}; known are {', '.join((*_TEXTS, *_NUMBERS, _DATE))}")


@dataclass
class Replayed:
    """The result of a replay, in rows of the quarantine."""

    table: str
    read: int = 0  # parsed again
    passed: int = 0
    added: int = 0  # to silver
    duplicates: int = 0  # passed, and silver had them
    removed: int = 0  # from the quarantine
    left: dict[str, int] = field(default_factory=dict)  # by the present reason
    expired: int = 0  # passed, and retention has removed their days from silver


class Replay:
    """The replay of one silver table."""

    def __init__(self, config: Config, silver: Silver, where: Sequence[Condition] = ()) -> None:
        """Open the tables. Raises HubError where they do not exist yet: `aggregate` makes them."""
        for name in (f"silver/{silver.name}", "quarantine"):
            if not table_exists(config.lake, name):
                raise HubError(f"there is no table {config.folder(name)}: aggregate has not run yet")
        self._config = config
        self._silver = silver
        self._where = tuple(where)
        self.table = silver_table(config, silver)
        self.quarantine = quarantine_table(config)
        self._erasure = last_erasure(self.quarantine)
        shape = silver.shape(by_month=config.lake.partition == "month")
        self._parse = PayloadParser(shape, KEPT).start()
        self._subjects = re.compile(parsing.subject_pattern(silver.subjects))

    def run(self, *, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> Replayed:
        """Move what passes; `dry_run`: only count it. A wanted stop ends the run after the present portion."""
        done, left = Replayed(self._silver.name), Counter[str]()
        for passing, paths in self._portions(done, left):
            done.passed += passing.num_rows
            if not dry_run:
                self._add(passing, done)
                done.removed += self._remove(passing, paths)
            if stop():
                break
        done.left = dict(left.most_common())
        return done

    def _portions(self, done: Replayed, left: Counter[str]) -> Iterator[tuple[pa.Table, set[str]]]:
        """Yield silver's rows of the quarantined rows that pass, and the whole files that they lie in; count the others."""
        waiting: list[pa.Table] = []
        paths: set[str] = set()
        for file in self.quarantine.files(silver={self._silver.name}):
            for rows in row_groups(self.quarantine.spec.place, [file.path], _inside(self.quarantine, file)):
                for at in range(0, rows.num_rows, ROWS_AT_ONCE):
                    chosen = self._chosen(rows.slice(at, ROWS_AT_ONCE), file.partition[_DATE])
                    if chosen.num_rows:
                        done.read += chosen.num_rows
                        passing = self._passing(chosen, left)
                        if passing.num_rows:
                            waiting.append(passing)
                            paths.add(file.path)
            if sum(part.num_rows for part in waiting) >= PORTION_ROWS:
                yield pa.concat_tables(waiting), paths
                waiting, paths = [], set()
        if waiting:
            yield pa.concat_tables(waiting), paths

    def _chosen(self, rows: pa.Table, day: date) -> pa.Table:
        """Return the rows that fulfil all conditions and whose subject the table still takes."""
        wanted = matching(rows.column("subject"), self._subjects)
        for one in self._where:
            wanted = wanted & one.matches(rows, day)
        return rows.filter(pa.array(wanted))

    def _passing(self, rows: pa.Table, left: Counter[str]) -> pa.Table:
        hashes = content_hashes(codes(rows.column("subject").dictionary_encode()), rows.column("payload"))
        held = rows.drop_columns([REASON, "headers"]).append_column("content_hash", hashes)
        (batch,) = held.combine_chunks().to_batches()
        parsed = pa.Table.from_batches([self._parse(batch)])
        reasons = parsed.column(REASON)
        left.update(reasons.drop_null().to_pylist())
        return parsed.filter(pc.is_null(reasons)).select(self.table.spec.schema.names)

    def _add(self, rows: pa.Table, done: Replayed) -> None:
        """Commit the rows that silver lacks. Raises Fenced when other jobs commit continuously."""
        block = packed([rows])
        spans = spans_of(rows)
        for _ in range(TRIES):
            self.table.refresh()
            if last_erasure(self.table) > self._erasure:
                raise Fenced("a device was erased meanwhile: run the command again")
            known = tuple(map(known_file, self.table.files()))
            devices = device_days(self.table, self._config)
            task = SilverTask(self.table.spec, known, moving(self._silver), first_day(self.table), devices)
            written = task([(0, block)])
            files, added = written.good, sum(file.rows for file in written.good)
            if added:
                noted = replays_table(self._config)
                number = next_replay(noted, self._silver.name, self.table)
                note_replay(noted, self._silver.name, number, spans, datetime.now(UTC))
                try:
                    self.table.commit(files, {REPLAY_ID: number, **named(self.table)})
                except Fenced:
                    self.table.spec.writer().discard(files)
                    continue
            done.added += added
            done.expired += written.expired
            done.duplicates += rows.num_rows - added - written.expired
            return
        raise Fenced(f"table {self.table.root} is written by another job continuously")

    def _remove(self, rows: pa.Table, paths: set[str]) -> int:
        """Rewrite the quarantine's files without the rows, which were read from `paths`; return how many it held.

        Raises Fenced when other jobs commit continuously.
        """
        gone = sequences_by_stream(rows)
        for _ in range(TRIES):
            self.quarantine.refresh()
            files = self.quarantine.files(silver={self._silver.name})
            own = [file for file in files if file.path in paths]
            # Another job may have joined a file to others since: then the rows can be anywhere.
            replaced, written, count = self._without(gone, own if len(own) == len(paths) else files)
            if not replaced:
                return 0
            try:
                self.quarantine.commit(written, {}, replaced)
                return count
            except Fenced:
                self.quarantine.spec.writer().discard(written)
        raise Fenced(f"table {self.quarantine.root} is written by another job continuously")

    def _without(
        self, gone: dict[tuple[str, int], Ints], files: list[TableFile]
    ) -> tuple[list[TableFile], list[DataFile], int]:
        """Write the rest of the files that hold some of the rows. Return those files, the written ones, and how many rows."""
        replaced: list[TableFile] = []
        count, writer = 0, self.quarantine.spec.writer()
        try:
            for file in files:
                schema = _inside(self.quarantine, file)
                groups = list(row_groups(self.quarantine.spec.place, [file.path], schema))
                found = [_is_named(rows, gone) for rows in groups]
                if not any(mask.any() for mask in found):
                    continue
                replaced.append(file)
                partition = tuple((name, partition_text(value) or "") for name, value in file.partition.items())
                for rows, mask in zip(groups, found, strict=True):
                    count += int(mask.sum())
                    if not mask.all():
                        writer.write(rows.filter(pa.array(~mask)), partition)
            return replaced, writer.finish(), count
        except BaseException:
            writer.abandon()
            raise


def matching(column: pa.ChunkedArray, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Return which texts the pattern matches as a whole; each distinct text is compared once."""
    coded = codes(column.dictionary_encode())
    hits = [pattern.fullmatch(text) is not None for text in coded.dictionary.to_pylist()]
    found: npt.NDArray[np.bool_] = np.array([*hits, False])[coded.indices.fill_null(len(hits)).to_numpy()]
    return found


def _inside(table: LakeTable, file: TableFile) -> pa.Schema:
    """Return the columns that a file holds itself."""
    return pa.schema([one for one in table.spec.schema if one.name not in file.partition])


def _is_named(rows: pa.Table, gone: dict[tuple[str, int], Ints]) -> npt.NDArray[np.bool_]:
    """Return which rows are among those that are named by stream, epoch and sequence."""
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for stream in pc.unique(rows.column("stream")).to_pylist():
        own = pc.equal(rows.column("stream"), stream).to_numpy()
        for epoch in np.unique(created[own]).tolist():
            named = gone.get((stream, epoch))
            if named is not None:
                found |= own & (created == epoch) & np.isin(sequence, named)
    return found
