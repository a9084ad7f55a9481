"""The job `gaps`: the proof, end to end, that what an origin acknowledged is in the table, or the list of what is not.

For every origin (and every stream of the hub itself) the sequences in bronze are compared with what the origin says it holds:

| status | meaning |
|---|---|
| `in_flight` | the origin holds it, beyond what has arrived: it is on its way |
| `missing` | the origin holds it, and what came later has arrived: a hole that should not be |
| `expired` | below the origin's first sequence: its limits removed it before it was copied |
| `deleted` | the origin says it was deleted one by one |
| `filtered` | the copy selects by subject, so the hole may be a message that was not selected |
| `lost` | the origin was created again since; what was not copied before is gone |
| `unknown` | the origin cannot be asked now |

What an origin said last is kept in the table `origins`, so that the tail of a life that ended is known afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jetstream import JetStream, StreamInfo
from eyot_hub.jobs.bronze import bronze_table
from eyot_hub.jobs.config import Config
from eyot_hub.jobs.coverage import ORIGIN, STREAM, Coverage, Epoch, Source, coverage
from eyot_hub.jobs.segments import Segments
from eyot_hub.jobs.table import LakeTable, TableSpec
from eyot_hub.origins import domain_of_prefix
from eyot_hub.planning import Planner
from eyot_wire.go.time import rfc3339_to_ns

log = logging.getLogger(__name__)

QUESTION_S: Final = 5.0
GAPS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),  # origin, or stream of the hub
        ("domain", pa.string()),
        ("stream", pa.string()),
        ("epoch", pa.int64()),  # which life of it
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("count", pa.int64()),
        ("status", pa.string()),
        ("after", TIMESTAMP),  # when the hub stored the message before the gap, and the one behind it
        ("before", TIMESTAMP),
        ("checked_at", TIMESTAMP),
    ]
)
ORIGINS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("domain", pa.string()),
        ("stream", pa.string()),
        ("epoch", pa.int64()),
        ("created_ns", pa.int64()),
        ("first_sequence", pa.int64()),  # that the origin holds or held last
        ("last_sequence", pa.int64()),
        ("in_table", pa.int64()),  # messages of this life in the table
        ("last_in_table", pa.int64()),
        ("reachable", pa.bool_()),
        ("heard_at", TIMESTAMP),  # when the origin was last asked successfully
        ("last_stored_at", TIMESTAMP),
    ]
)


@dataclass(frozen=True)
class Gap:
    """A range of sequences that the table does not hold; times in microseconds since 1970."""

    source: Source
    epoch: int
    first: int
    last: int
    status: str
    after_us: int | None
    before_us: int | None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Known:
    """What an origin said of one of its lives."""

    epoch: int
    created_ns: int
    first: int
    last: int
    heard_us: int
    deleted: tuple[int, ...] = ()
    selective: bool = False
    now: bool = True  # said in this run


@dataclass
class Report:
    """What the job found."""

    coverage: Coverage
    gaps: list[Gap]
    known: dict[Source, list[Known]]

    def count(self, status: str) -> int:
        return sum(gap.count for gap in self.gaps if gap.status == status)


def gaps_table(config: Config) -> LakeTable:
    spec = TableSpec(config.folder("gaps"), GAPS_SCHEMA, (), config.lake.compression)
    return LakeTable(spec, config.lake.storage_options)


def origins_table(config: Config) -> LakeTable:
    spec = TableSpec(config.folder("origins"), ORIGINS_SCHEMA, (), config.lake.compression)
    return LakeTable(spec, config.lake.storage_options)


class Gaps:
    """The job."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._bronze = bronze_table(config)
        self.gaps = gaps_table(config)
        self.origins = origins_table(config)
        self.segments = Segments(spark, config, self._bronze)

    def run(self) -> Report:
        """Look for gaps and replace both tables with what was found."""
        self._bronze.refresh()
        self.origins.refresh()
        self.gaps.refresh()
        found = coverage(self.segments.found(), self._bronze.dataframe(self._spark))
        remembered = self._remembered()
        said = self._ask() if self._config.gaps.ask_origins else {}
        known = {
            source: lives(found.epochs.get(source, []), remembered.get(source, []), said.get(source))
            for source in sorted({*found.epochs, *remembered, *said})
        }
        gaps = [gap for source in known for gap in source_gaps(source, found.epochs.get(source, []), known[source])]
        self._store(found, gaps, known)
        return Report(found, gaps, known)

    def _remembered(self) -> dict[Source, list[Known]]:
        kept: dict[Source, list[Known]] = {}
        for row in self.origins.dataframe(self._spark).toArrow().to_pylist():
            if row["created_ns"] is not None:
                source = Source(row["kind"], row["domain"], row["stream"])
                heard_us = _us(row["heard_at"])
                life = Known(
                    row["epoch"], row["created_ns"], row["first_sequence"], row["last_sequence"], heard_us, now=False
                )
                kept.setdefault(source, []).append(life)
        return kept

    def _ask(self) -> dict[Source, Known]:
        """What the hub's streams and their origins hold now; who does not answer is left out."""
        planner = Planner(self._config.source())
        try:
            streams = planner.streams(must_exist=False)
            said: dict[Source, Known] = {}
            subjects = bool(self._config.bronze.subjects)
            connect = replace(planner.options.read.connect, retry_s=0.0, timeout_s=QUESTION_S)
            for info in streams.values():
                own = Source(STREAM, info.domain or planner.options.domain or "", info.name)
                said[own] = _known(info, planner.jetstream.deleted(info.name), selective=subjects)
                for copied in info.config.copies:
                    prefix = copied.api_prefix or planner.options.read.api_prefix
                    domain = domain_of_prefix(copied.api_prefix) if copied.api_prefix else info.domain or ""
                    source = Source(ORIGIN, domain, copied.name)
                    try:
                        with JetStream(connect, prefix) as origin:
                            there = origin.stream(copied.name)
                            selective = subjects or copied.selective
                            said[source] = _known(there, origin.deleted(copied.name), selective=selective)
                    except HubError as error:
                        log.info("origin %s in domain %s cannot be asked: %s", copied.name, domain, error)
            return said
        finally:
            planner.close()

    def _store(self, found: Coverage, gaps: Iterable[Gap], known: dict[Source, list[Known]]) -> None:
        checked = datetime.now(UTC)
        rows = [
            {
                **_named(gap.source),
                "epoch": gap.epoch,
                "first_sequence": gap.first,
                "last_sequence": gap.last,
                "count": gap.count,
                "status": gap.status,
                "after": _time(gap.after_us),
                "before": _time(gap.before_us),
                "checked_at": checked,
            }
            for gap in gaps
        ]
        self.gaps.replace(rows)
        self.origins.replace(list(origin_rows(found, known)))


def lives(epochs: list[Epoch], remembered: list[Known], said: Known | None) -> list[Known]:
    """Which of a source's lives the origin's words are about: what was remembered, brought up to date with `said`.

    An origin created at another time than any that was remembered is in a new life: the table's newest one, if that is
    newer than all remembered ones, else one of which nothing has arrived yet.
    """
    kept = {life.epoch: life for life in remembered}
    newest = max(len(epochs), 1)
    if said is None:
        return [kept[number] for number in sorted(kept)]
    same = [life.epoch for life in remembered if life.created_ns == said.created_ns]
    exact = {epoch.created_ns: epoch.number for epoch in epochs if epoch.created_ns is not None}
    if said.created_ns in exact:
        number = exact[said.created_ns]
    elif exact:
        number = newest + 1
    elif same:
        number = max(*same, newest if newest not in kept else 0)
    elif not kept:
        began_again = bool(epochs) and said.last < epochs[-1].last
        number = newest + 1 if began_again else newest
    else:
        number = max(newest, max(kept) + 1)
    kept[number] = replace(said, epoch=number)
    return [kept[number] for number in sorted(kept)]


def source_gaps(source: Source, epochs: list[Epoch], known: list[Known]) -> list[Gap]:
    """All gaps of one source, oldest life first."""
    by_number = {epoch.number: epoch for epoch in epochs}
    words = {life.epoch: life for life in known}
    newest = max([*by_number, *words], default=0)
    gaps: list[Gap] = []
    for number in range(1, newest + 1):
        epoch, life = by_number.get(number, Epoch(number)), words.get(number)
        current = number == newest
        for first, last, after_us, before_us in _holes(epoch, life):
            for part_first, part_last, status in _statuses(first, last, epoch, life, current=current):
                gaps.append(Gap(source, number, part_first, part_last, status, after_us, before_us))
    return gaps


def _holes(epoch: Epoch, life: Known | None) -> list[tuple[int, int, int | None, int | None]]:
    """Ranges that are not in the table: before, between and behind the islands."""
    holes: list[tuple[int, int, int | None, int | None]] = []
    at, after_us = 1, None
    for island in epoch.islands:
        if island.first > at:
            holes.append((at, island.first - 1, after_us, island.first_us))
        at, after_us = island.last + 1, island.last_us
    if life is not None and life.last >= at:
        holes.append((at, life.last, after_us, None))
    return holes


def _statuses(first: int, last: int, epoch: Epoch, life: Known | None, *, current: bool) -> list[tuple[int, int, str]]:
    """Cut one hole into ranges of one status each."""
    if not current:
        return [(first, last, "lost")]
    if life is None or not life.now:
        return [(first, last, "unknown")]
    deleted = [number for number in life.deleted if first <= number <= last]
    parts: list[tuple[int, int, str]] = []
    expired_to = min(last, life.first - 1)
    if expired_to >= first:
        parts.append((first, expired_to, "expired"))
    rest = "in_flight" if first > epoch.last else "filtered" if life.selective else "missing"
    at = max(first, life.first)
    for number in deleted:
        if number < at:
            continue
        if number > at:
            parts.append((at, number - 1, rest))
        if parts and parts[-1][2] == "deleted" and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number, "deleted")
        else:
            parts.append((number, number, "deleted"))
        at = number + 1
    if at <= last:
        parts.append((at, last, rest))
    return parts


def origin_rows(found: Coverage, known: dict[Source, list[Known]]) -> Iterable[dict[str, Any]]:
    """The rows of the table `origins`: one for each life of each source."""
    for source, words in known.items():
        by_number = {epoch.number: epoch for epoch in found.epochs.get(source, [])}
        by_words = {life.epoch: life for life in words}
        for number in sorted({*by_number, *by_words}):
            epoch, life = by_number.get(number, Epoch(number)), by_words.get(number)
            yield {
                **_named(source),
                "epoch": number,
                "created_ns": life.created_ns if life else None,
                "first_sequence": life.first if life else None,
                "last_sequence": life.last if life else None,
                "in_table": epoch.count,
                "last_in_table": epoch.last,
                "reachable": bool(life and life.now),
                "heard_at": _time(life.heard_us) if life else None,
                "last_stored_at": _time(max((island.last_us for island in epoch.islands), default=None)),
            }


def _known(info: StreamInfo, deleted: list[int], *, selective: bool) -> Known:
    now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    state = info.state
    first = max(1, state.first_seq)
    return Known(0, rfc3339_to_ns(info.created), first, state.last_seq, now_us, tuple(sorted(deleted)), selective)


def _named(source: Source) -> dict[str, str]:
    return {"kind": source.kind, "domain": source.domain, "stream": source.name}


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1_000_000, UTC)


def _us(when: datetime) -> int:
    return round(when.timestamp() * 1_000_000)
