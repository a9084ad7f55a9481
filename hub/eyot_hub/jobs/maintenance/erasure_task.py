"""A task of an erasure: finds the rows of one device in files of a table, and writes the other rows anew.

In silver and gold a row names its device. In bronze and quarantine it is a message, whose device is found as silver finds it:
by the definition of each silver table that takes the subject. This holds for messages that cannot be rows, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import columns
from eyot_hub.jobs.payloads.payload_shape import Shape
from eyot_hub.jobs.payloads.payloads import PayloadParser
from eyot_hub.jobs.tables.file_rows import codes, row_groups
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table_format import TableFile, TableSpec, partition_text

ROWS_AT_ONCE: Final = 32 * 1024
_MESSAGE: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("subject", pa.string()),
        ("payload", pa.binary()),
        ("stored_at", columns.TIMESTAMP),
        ("domain", pa.string()),
        ("origin_domain", pa.string()),
        ("origin_stream", pa.string()),
    ]
)
_DEVICE: Final = pa.schema([("device", pa.string())])
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sender:
    """Messages whose subjects match the regular expression name their device by the shape."""

    subjects: str
    shape: Shape


@dataclass(frozen=True)
class Selection:
    """The rows of one device. `messages`: rows are messages; `subjects`: a regular expression of more messages, or ""."""

    device: str
    messages: bool
    senders: tuple[Sender, ...] = ()
    subjects: str = ""

    def may_lie_in(self, file: TableFile) -> bool:
        """Return whether the file's statistics allow for such rows."""
        least, most = file.least.get("device"), file.most.get("device")
        return self.messages or least is None or most is None or least <= self.device <= most

    @property
    def needed(self) -> pa.Schema:
        """The columns by which rows are selected."""
        return _MESSAGE if self.messages else _DEVICE

    def of(self, rows: pa.Table) -> Mask:
        """Return which rows are the device's."""
        if not self.messages:
            found: Mask = pc.fill_null(pc.equal(rows.column("device"), self.device), False).to_numpy()
            return found
        subjects = codes(rows.column("subject").dictionary_encode())
        mask = _matching(subjects, self.subjects) if self.subjects else np.zeros(rows.num_rows, np.bool_)
        for sender in self.senders:
            sent = _matching(subjects, sender.subjects)
            if sent.any():
                mask[sent] |= self._sent(rows.filter(pa.array(sent)), sender)
        return mask

    def _sent(self, rows: pa.Table, sender: Sender) -> Mask:
        """Return which of the messages name the device."""
        parse, found = PayloadParser(sender.shape, ()).start(), []
        for at in range(0, rows.num_rows, ROWS_AT_ONCE):
            (batch,) = rows.slice(at, ROWS_AT_ONCE).combine_chunks().to_batches()
            device = parse(batch).column("device")
            found.append(pc.fill_null(pc.equal(device, self.device), False).to_numpy(zero_copy_only=False))
        return np.concatenate(found)


@dataclass(frozen=True)
class Erased:
    """One file: how many rows of the device it holds, and the files with its other rows (of none: the file stays)."""

    path: str
    rows: int
    files: list[DataFile]


class Selecting(Protocol):
    """Tells which rows leave."""

    @property
    def needed(self) -> pa.Schema:
        """The columns by which rows are selected."""

    def of(self, rows: pa.Table) -> Mask:
        """Return which of a file's rows are selected."""


@dataclass(frozen=True)
class EraseFiles:
    """The task: call it with files of the table."""

    table: TableSpec
    selection: Selecting

    def __call__(self, files: Iterable[TableFile]) -> Iterator[Erased]:
        for file in files:
            yield self._erased(file)

    def _erased(self, file: TableFile) -> Erased:
        masks = [self.selection.of(_identified(rows)) for rows in self._groups(file, self.selection.needed)]
        count = sum(int(mask.sum()) for mask in masks)
        if not count:
            return Erased(file.path, 0, [])
        partition = tuple((name, partition_text(value) or "") for name, value in file.partition.items())
        writer = self.table.writer()
        try:
            for rows, mask in zip(self._groups(file, self.table.schema, inside=True), masks, strict=True):
                if not mask.all():
                    writer.write(rows.filter(pa.array(~mask)), partition)
            return Erased(file.path, count, writer.finish())
        except BaseException:
            writer.abandon()
            raise

    def _groups(self, file: TableFile, schema: pa.Schema, *, inside: bool = False) -> Iterator[pa.Table]:
        """Yield a file's row groups; a partition's column, unless only those `inside` the file are wanted, has its value."""
        own = pa.schema([field for field in schema if field.name not in file.partition])
        for rows in row_groups(self.table.place, [file.path], own):
            given = [] if inside else [field for field in schema if field.name in file.partition]
            for field in given:
                value = pa.scalar(file.partition[field.name], field.type)
                rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
            yield rows


def _identified(rows: pa.Table) -> pa.Table:
    """Return messages with the origin that silver gives them: of one published at the hub, its own stream."""
    if "origin_stream" not in rows.column_names:
        return rows
    copied = pc.is_valid(rows.column("origin_stream"))
    domain = pc.fill_null(pc.if_else(copied, rows.column("origin_domain"), rows.column("domain")), "")
    stream = pc.coalesce(rows.column("origin_stream"), rows.column("stream"))
    rows = rows.set_column(rows.column_names.index("origin_domain"), "origin_domain", domain)
    return rows.set_column(rows.column_names.index("origin_stream"), "origin_stream", stream)


def _matching(subjects: pa.DictionaryArray, pattern: str) -> Mask:
    """Return which subjects match; each distinct one is compared once."""
    known = re.compile(pattern)
    hits = np.array([known.fullmatch(one) is not None for one in subjects.dictionary.to_pylist()] + [False])
    found: Mask = hits[subjects.indices.fill_null(len(hits) - 1).to_numpy()]
    return found
