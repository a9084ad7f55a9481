"""Tables of summaries: what each file of other tables holds, so that a round of `fleet` reads only files that are new.

Files never change, so a summary stays valid as long as its file is in its table. Compaction, retention, erasure and
backfill replace files; the summaries of files that are gone do not count, and leave with the next rewrite of the
summaries. Such a table is only a shortcut: when it is deleted, the next run reads all files.

A process that goes on keeps what the summaries add up to, and adds new files to it. It adds up the whole table again when a
file of the sum has left, or when another process has written to the table. A process that begins takes up the sum that the
last one stored (`stored_sum.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.stored_sum import StoredSum, Sum
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.removals.erasures import named
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

log = logging.getLogger(__name__)

FILES_MAX: Final = 8  # of the table, before it is rewritten: every recount reads all of them
T = TypeVar("T")


class SummaryTable(Generic[T]):
    """The summaries of some tables' files; each call of `found` continues the one before.

    A kind of summaries says which files it is of, reads them and adds up. Its columns begin with `path`, the file's; paths
    are unique among all tables.
    """

    def __init__(
        self, spark: SparkSession, config: Config, name: str, schema: pa.Schema, definition: str | None = None
    ) -> None:
        """`definition`: what decides what a summary of a file is, kept in a column of this name; None: the file alone."""
        self._spark = spark
        self._config = config
        self._schema = schema
        self._definition = definition
        self.table = open_table(config.lake, name, schema)
        self._sum: Sum[T] | None = None
        self._stored = StoredSum(config, name, definition or "")
        self._begun = False  # whether the stored sum was looked at
        self.files_read = 0  # by the last `found`
        self.recounted = False  # whether the last `found` added up the whole table

    def _sources(self) -> list[tuple[LakeTable, list[TableFile]]]:
        """Return tables as they are now, and the files that are to be summarised."""
        raise NotImplementedError

    def _summarised(self, table: LakeTable, files: Sequence[TableFile]) -> pa.Table:
        """Read files in tasks; return at least one row for each."""
        raise NotImplementedError

    def _total(self, rows: pa.Table) -> T:
        """Return what rows of the table add up to."""
        raise NotImplementedError

    def _added(self, total: T, fresh: pa.Table) -> T | None:
        """Add rows of new files; None: that takes all rows."""
        raise NotImplementedError

    def _packed(self, total: T) -> Iterable[tuple[str, bytes]]:
        """Return each device of a sum, with what `_unpacked` makes the same of."""
        raise NotImplementedError

    def _unpacked(self, packed: Iterable[tuple[str, bytes]]) -> T:
        """Return the sum. Raises msgspec.DecodeError for what another version packed."""
        raise NotImplementedError

    def found(self) -> T:
        """Return what the present files add up to; read and keep the summaries that are missing."""
        self.table.refresh()
        self.files_read = 0
        sources = self._sources()
        present = frozenset(file.path for _, held in sources for file in held)
        kept, self._sum = self._sum, None
        if not self._begun:
            kept = self._stored.load(self._unpacked)
        self.recounted = kept is None or not self._holds(kept, present)
        rewrite, rows = False, None
        if kept is None or self.recounted:
            self._stored.begin()
            rows, rewrite = self._rows_of(present)
        known = frozenset(pc.unique(rows.column("path")).to_pylist()) if rows is not None else kept.paths  # type: ignore[union-attr]
        fresh = [self._schema.empty_table()]
        for table, held in sources:
            files = [file for file in held if file.path not in known]
            self.files_read += len(files)
            if files:
                fresh.append(self._summarised(table, files))
        new = pa.concat_tables(fresh)
        total = (
            None if rows is not None or kept is None else self._added(kept.total, new) if new.num_rows else kept.total
        )
        if total is None:
            self.recounted = True
            self._stored.begin()
            total = self._total(pa.concat_tables([self._rows_of(present)[0] if rows is None else rows, new]))
        if self._keep(new, present, everything=rewrite):
            self._sum = Sum(total, present, self.table.table_id, self.table.version)
            if not self._begun or self.recounted:
                self._stored.store(self._sum, self._packed)
        self._begun = True
        return total

    def _holds(self, kept: Sum[T], present: frozenset[str]) -> bool:
        """Return whether the sum is of present files only, and nobody else has written to the table."""
        same = (kept.table_id, kept.version) == (self.table.table_id, self.table.version)
        return same and kept.paths <= present

    def _rows_of(self, present: frozenset[str]) -> tuple[pa.Table, bool]:
        """Return the table's valid rows, and whether most of its rows are of others."""
        held = self._rows(self.table.files())
        rows = self._valid(held, present)
        return rows, held.num_rows > 2 * rows.num_rows

    def _rows(self, files: Sequence[TableFile]) -> pa.Table:
        """Return the rows of files of the table."""
        read = row_groups(self.table.spec.place, [file.path for file in files], self._schema)
        return pa.concat_tables([self._schema.empty_table(), *read])

    def _valid(self, rows: pa.Table, present: frozenset[str]) -> pa.Table:
        """Return the rows that are of present files and by the present definition."""
        wanted = pc.is_in(rows.column("path"), pa.array(sorted(present), pa.string()))
        if self._definition is not None:
            wanted = pc.and_(wanted, pc.equal(rows.column("definition"), self._definition))
        return rows.filter(wanted)

    def _keep(self, fresh: pa.Table, present: frozenset[str], *, everything: bool) -> bool:
        """Store new summaries, and write files of the table again, when they are many or `everything`.

        What does not count leaves with them. Returns whether the table has all summaries of present files.
        """
        files = self.table.files()
        old = files if everything else _joinable(files) if len(files) >= FILES_MAX else []
        if not fresh.num_rows and not old:
            return True
        writer = self.table.spec.writer()
        for part in [self._valid(self._rows(old), present), fresh]:
            if part.num_rows:
                writer.write(part, ())
        written = writer.finish()
        try:
            # An erasure that came in between has removed its device's rows, which these may name.
            self.table.commit(written, named(self.table), old)
        except Fenced as fenced:  # the next run reads these files again
            log.info("summaries are not kept this time: %s", fenced)
            self.table.spec.writer().discard(written)
            return False
        return True


def _joinable(files: Sequence[TableFile]) -> list[TableFile]:
    """Return small files, so that a row is written again a number of times that grows by the logarithm of all rows."""
    joined: list[TableFile] = []
    rows = 0
    for file in sorted(files, key=lambda one: one.rows):
        if len(joined) > len(files) // 2 and file.rows > rows:
            break
        joined.append(file)
        rows += file.rows
    return joined
