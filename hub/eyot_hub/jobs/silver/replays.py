"""The table `replays`: which rows each replay of the quarantine added to silver, so that gold computes their windows again.

Silver counts its replays in the transaction `REPLAY_ID`, and gold keeps the number of the last one that it knows. A
replayed row lies below gold's position in its stream, so that the position alone would not show it. A replay is noted
here before silver's commit: whatever is killed in between, gold finds each row that a later version of silver holds.

Every commit to silver names the transaction. Of a replay and an aggregation at the same time one is refused, and drops
its repeats anew.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import columns
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.silver.window_keys import Ints
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.increments import Span
from eyot_hub.jobs.tables.table import LakeTable

REPLAYS: Final = "replays"
REPLAY_ID: Final = "eyot:replay"
#: Ranges of one replay. Beyond, neighbouring ranges become one: more windows are computed again, to the same values.
SPANS_MAX: Final = 256
REPLAYS_SCHEMA: Final = pa.schema(
    [
        ("silver", pa.string()),
        ("replay", pa.int64()),  # counted from 1 for each silver table
        ("stream", pa.string()),
        ("stream_created_ns", pa.int64()),
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("replayed_at", columns.TIMESTAMP),
    ]
)


def replays_table(config: Config) -> LakeTable:
    return open_table(config.lake, REPLAYS, REPLAYS_SCHEMA)


def last_replay(table: LakeTable) -> int:
    """Return the number of the last replay that silver has, or that gold has counted; 0: none."""
    return table.position(REPLAY_ID) or 0


def next_replay(noted: LakeTable, silver_name: str, silver: LakeTable) -> int:
    """Return the number of the next replay: above all that silver had, also where silver was deleted and filled again."""
    numbers = [last_replay(silver)]
    for rows in row_groups(noted.spec.place, [file.path for file in noted.files()], REPLAYS_SCHEMA):
        numbers += rows.filter(pc.equal(rows.column("silver"), silver_name)).column("replay").to_pylist()
    return max(numbers) + 1


def note_replay(table: LakeTable, silver: str, number: int, spans: list[Span], at: datetime) -> None:
    """Append the ranges of a replay, durably."""
    rows = [
        {
            "silver": silver,
            "replay": number,
            "stream": span.stream,
            "stream_created_ns": span.created_ns,
            "first_sequence": span.after + 1,
            "last_sequence": span.until,
            "replayed_at": at,
        }
        for span in spans
    ]
    writer = table.spec.writer()
    writer.write(pa.Table.from_pylist(rows, schema=REPLAYS_SCHEMA), ())
    table.commit(writer.finish(), {})


def uncounted_spans(config: Config, silver_name: str, silver: LakeTable, gold: LakeTable) -> list[Span]:
    """Return the ranges of the replays that silver has and gold has not counted, as both tables are known."""
    after, until = last_replay(gold), last_replay(silver)
    if until <= after:
        return []
    table = replays_table(config)
    found: set[Span] = set()
    for rows in row_groups(table.spec.place, [file.path for file in table.files()], REPLAYS_SCHEMA):
        number = rows.column("replay")
        wanted = pc.and_(pc.equal(rows.column("silver"), silver_name), pc.greater(number, after))
        for row in rows.filter(pc.and_(wanted, pc.less_equal(number, until))).to_pylist():
            found.add(Span(row["stream"], row["stream_created_ns"], row["first_sequence"] - 1, row["last_sequence"]))
    return sorted(found, key=lambda span: (span.stream, span.created_ns, span.after, span.until))


def sequences_by_stream(rows: pa.Table) -> dict[tuple[str, int], Ints]:
    """Return the distinct sequences of the rows, ascending, for each epoch of each stream."""
    keys = ["stream", "stream_created_ns"]
    grouped = rows.select([*keys, "sequence"]).group_by(keys, use_threads=False).aggregate([("sequence", "distinct")])
    return {
        (row["stream"], row["stream_created_ns"]): np.unique(np.array(row["sequence_distinct"], np.int64))
        for row in grouped.to_pylist()
    }


def spans_of(rows: pa.Table) -> list[Span]:
    """Return ranges that hold all of the rows: exact ones, or at most SPANS_MAX (and one for each stream) wider ones."""
    by_stream = sequences_by_stream(rows)
    bits = 0  # a range begins and ends at a multiple of 2 ** bits
    while True:
        spans = [span for place, sequences in by_stream.items() for span in _spans(place, sequences, bits)]
        if len(spans) <= max(SPANS_MAX, len(by_stream)):
            return spans
        bits += 1


def _spans(place: tuple[str, int], sequences: Ints, bits: int) -> list[Span]:
    blocks = np.unique(sequences >> bits)
    breaks = np.flatnonzero(np.diff(blocks) > 1) + 1
    firsts = blocks[np.concatenate([[0], breaks])]
    lasts = blocks[np.concatenate([breaks - 1, [len(blocks) - 1]])]
    return [
        Span(*place, (first << bits) - 1, ((last + 1) << bits) - 1)
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
    ]
