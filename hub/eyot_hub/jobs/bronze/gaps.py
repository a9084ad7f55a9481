"""The job `gaps`: checks end to end that every message an origin acknowledged is in the table, and lists those that are not.

For every origin (and every stream of the hub itself) the job compares the sequences in bronze with those that the
origin holds:

| status | meaning |
|---|---|
| `in_flight` | the origin holds it, beyond what has arrived: it is on its way |
| `missing` | the origin holds it, and later messages arrived, or nothing arrived for `in_flight_max`: an unexpected hole |
| `moved_back` | the table holds it, the hub's stream no longer does: the stream's end moved back, and ingest has not continued since |
| `expired` | below the origin's first sequence: its limits removed it before it was copied |
| `deleted` | the origin reports it as deleted individually |
| `filtered` | the source selects by subject, so the hole may be a message that was not selected |
| `lost` | the origin was created again since; what was not copied before is gone |
| `unknown` | the origin does not answer at present |

The table `origins` keeps each origin's last answer, so that the end of a past epoch stays known. It also reveals that
an origin's end moved back: the origin ends before its last answer, or holds another message there. The origin is then
in a new epoch, which begins where the previous one was cut off.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jetstream import JetStream, StreamInfo
from eyot_hub.jobs.bronze.bronze import begins_id, bronze_table, same_stream, table_position
from eyot_hub.jobs.bronze.coverage import ORIGIN, REPEAT_COLUMNS, STREAM, Coverage, Epoch, Source, coverage
from eyot_hub.jobs.bronze.segments import Segments
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.origins import domain_of_prefix
from eyot_hub.planning import Planner
from eyot_wire.go.time import ns_to_rfc3339

log = logging.getLogger(__name__)

QUESTION_S: Final = 5.0
BAD: Final = ("missing", "lost", "moved_back")
GAPS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),  # origin, or stream of the hub
        ("domain", pa.string()),
        ("stream", pa.string()),
        ("epoch", pa.int64()),  # which epoch of the source
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("count", pa.int64()),
        ("status", pa.string()),
        ("after", TIMESTAMP),  # hub's stored times of the messages before and after the gap
        ("before", TIMESTAMP),
        ("checked_at", TIMESTAMP),
        (
            "since",
            TIMESTAMP,
        ),  # the first run that found it at the origin and not in the table; only for in_flight and missing
    ]
)
ORIGINS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("domain", pa.string()),
        ("stream", pa.string()),
        ("epoch", pa.int64()),
        ("created_ns", pa.int64()),
        ("first_sequence", pa.int64()),  # first sequence that the origin holds or last held
        ("last_sequence", pa.int64()),
        ("in_table", pa.int64()),  # messages of this epoch in the table
        ("last_in_table", pa.int64()),
        ("reachable", pa.bool_()),
        ("heard_at", TIMESTAMP),  # time of the origin's last answer
        ("last_stored_at", TIMESTAMP),
        ("last_sequence_ns", pa.int64()),  # stored time of the origin's last message
        (
            "begins",
            pa.int64(),
        ),  # above 1: the origin's end moved back, and lower sequences belong to the previous epoch
    ]
)


@dataclass(frozen=True)
class Gap:
    """A range of sequences that the table lacks; times in microseconds since 1970."""

    source: Source
    epoch: int
    first: int
    last: int
    status: str
    after_us: int | None
    before_us: int | None
    since_us: int | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Known:
    """An origin's answer about one of its epochs."""

    epoch: int
    created_ns: int
    first: int
    last: int
    heard_us: int
    deleted: tuple[int, ...] = ()
    selective: bool = False
    now: bool = True  # answered in this run
    last_ns: int | None = None  # stored time of `last`
    begins: int = 1  # above 1: the end moved back to before it, and this is another epoch of the same stream
    halted: bool = False  # ingest waits for an operator's decision


@dataclass
class Report:
    """The result of the job."""

    coverage: Coverage
    gaps: list[Gap]
    known: dict[Source, list[Known]]

    @property
    def bad(self) -> bool:
        """Whether messages are missing or lost."""
        return any(self.count(status) for status in BAD)

    @property
    def unheard(self) -> int:
        """Number of streams and origins that did not answer: what they hold now is not known."""
        return sum(not any(epoch.now for epoch in said) for said in self.known.values())

    def count(self, status: str) -> int:
        return sum(gap.count for gap in self.gaps if gap.status == status)


def gaps_table(config: Config) -> LakeTable:
    return open_table(config.lake, "gaps", GAPS_SCHEMA)


def origins_table(config: Config) -> LakeTable:
    return open_table(config.lake, "origins", ORIGINS_SCHEMA)


class Gaps:
    """The gaps job."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._bronze = bronze_table(config)
        self.gaps = gaps_table(config)
        self.origins = origins_table(config)
        self.segments = Segments(spark, config, self._bronze)

    def run(self) -> Report:
        """Find the gaps and replace both tables."""
        self._bronze.refresh()
        self.origins.refresh()
        self.gaps.refresh()
        segments = self.segments.found()
        found = coverage(segments, lambda: self._bronze.dataframe(self._spark, columns=REPEAT_COLUMNS))
        self.segments.decide(segments, found.repeats)
        remembered = self._remembered()
        said, moved = self._ask(remembered) if self._config.gaps.ask_origins else ({}, [])
        known = {
            source: epochs_known(found.epochs.get(source, []), remembered.get(source, []), said.get(source))
            for source in sorted({*found.epochs, *remembered, *said})
        }
        gaps = [gap for source in known for gap in source_gaps(source, found.epochs.get(source, []), known[source])]
        now_us = time.time_ns() // 1000
        gaps = overdue([*gaps, *moved], self._seen_before(), found, now_us, self._config.gaps.in_flight_us)
        self._store(found, gaps, known)
        return Report(found, gaps, known)

    def _remembered(self) -> dict[Source, list[Known]]:
        kept: dict[Source, list[Known]] = {}
        for row in self.origins.to_pylist():
            if row["created_ns"] is not None:
                source = Source(row["kind"], row["domain"], row["stream"])
                heard_us = _us(row["heard_at"])
                known_epoch = Known(
                    row["epoch"],
                    row["created_ns"],
                    row["first_sequence"],
                    row["last_sequence"],
                    heard_us,
                    now=False,
                    last_ns=row["last_sequence_ns"],
                    begins=row["begins"] or 1,
                )
                kept.setdefault(source, []).append(known_epoch)
        return kept

    def _seen_before(self) -> list[Gap]:
        """Return the gaps that the previous run found at origins."""
        rows = [row for row in self.gaps.to_pylist() if row["since"] is not None]
        return [
            Gap(
                Source(row["kind"], row["domain"], row["stream"]),
                row["epoch"],
                row["first_sequence"],
                row["last_sequence"],
                row["status"],
                None,
                None,
                _us(row["since"]),
            )
            for row in rows
        ]

    def _ask(self, remembered: dict[Source, list[Known]]) -> tuple[dict[Source, Known], list[Gap]]:
        """Return what the hub's streams and their origins hold now, and what streams lost when their ends moved back.

        Origins that do not answer are left out.
        """
        planner = Planner(self._config.source())
        try:
            said: dict[Source, Known] = {}
            moved: list[Gap] = []
            subjects = bool(self._config.bronze.subjects)
            connect = replace(planner.options.read.connect, retry_s=0.0, timeout_s=QUESTION_S)
            for info in planner.streams(must_exist=False).values():
                own = Source(STREAM, info.domain or planner.options.domain or "", info.name)
                known = _known(info, planner.jetstream.deleted(info.name), selective=subjects)
                said[own], gone = self._own(planner, info, known)
                if gone is not None:
                    first, last = gone
                    epoch = (
                        sum(known_epoch.created_ns <= said[own].created_ns for known_epoch in remembered.get(own, ()))
                        or 1
                    )
                    moved.append(Gap(own, epoch, first, last, "moved_back", None, None))
                for copied in info.config.copies:
                    prefix = copied.api_prefix or planner.options.read.api_prefix
                    domain = domain_of_prefix(copied.api_prefix) if copied.api_prefix else info.domain or ""
                    source = Source(ORIGIN, domain, copied.name)
                    try:
                        with JetStream(connect, prefix) as origin:
                            there = origin.stream(copied.name)
                            selective = subjects or copied.selective
                            known = _known(there, origin.deleted(copied.name), selective=selective)
                            said[source] = in_epoch(origin, copied.name, known, remembered.get(source, []))
                    except HubError as error:
                        log.info("origin %s in domain %s does not answer: %s", copied.name, domain, error)
            return said, moved
        finally:
            planner.close()

    def _own(self, planner: Planner, info: StreamInfo, known: Known) -> tuple[Known, tuple[int, int] | None]:
        """Return the epoch of a hub's stream: bronze's, or the next one when the stream's end moved back since the last ingest.

        In the latter case also return the sequences that bronze holds and the stream no longer does.
        """
        at, epoch_ns = table_position(self._bronze, info)
        if at is None:
            return known, None
        moved = planner.moved_back(info, at)
        if moved is None:
            begins = self._bronze.position(begins_id(info.name, epoch_ns)) or 1
            return replace(known, created_ns=epoch_ns, begins=begins), None
        log.warning("%s", moved)
        begins = planner.first_not_read(info, at)
        gone = (begins, at.sequence) if begins <= at.sequence else None
        return replace(known, created_ns=epoch_ns + 1, begins=begins, halted=True), gone

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
                "since": _time(gap.since_us),
            }
            for gap in gaps
        ]
        self.gaps.replace(rows)
        self.origins.replace(list(origin_rows(found, known)))


def in_epoch(origin: JetStream, name: str, said: Known, remembered: list[Known]) -> Known:
    """Return an origin's answer with its epoch: the one of its last answer, or another one when its end moved back since.

    The names of a stream's epochs are its creation time and one nanosecond more each.
    """
    before = [known_epoch for known_epoch in remembered if same_stream(known_epoch.created_ns, said.created_ns)]
    if not before:
        return said
    last = max(before, key=lambda known_epoch: known_epoch.created_ns)
    moved = said.last < last.last
    if not moved and last.last_ns is not None and (last.last, last.last_ns) != (said.last, said.last_ns):
        moved = origin.stored_ns(name, last.last) not in (None, last.last_ns)
    if not moved:
        return replace(said, created_ns=last.created_ns, begins=last.begins)
    begins = said.last + 1
    if last.last_ns is not None:
        begins = min(origin.sequence_at(name, ns_to_rfc3339(last.last_ns + 1)), last.last + 1)
    log.warning("the end of origin %s moved back to before %d; its last answer was %d", name, begins, last.last)
    return replace(said, created_ns=last.created_ns + 1, begins=begins)


def overdue(gaps: list[Gap], before: list[Gap], found: Coverage, now_us: int, in_flight_us: int) -> list[Gap]:
    """Return `gaps` with `since` filled in from the previous run.

    A message in flight for longer than `in_flight_us`, without any other arrival from its origin, becomes missing.
    """
    seen: dict[tuple[Source, int], list[Gap]] = defaultdict(list)
    for gap in before:
        seen[gap.source, gap.epoch].append(gap)
    arrived = {
        (source, epoch.number): epoch.islands[-1].last_us
        for source, epochs in found.epochs.items()
        for epoch in epochs
        if epoch.islands
    }
    result = []
    for gap in gaps:
        if gap.status not in ("in_flight", "missing"):
            result.append(gap)
            continue
        place = gap.source, gap.epoch
        for part in _since(gap, seen[place], now_us):
            last_us = arrived.get(place, 0)
            # An arrival at a time to come was stored when the hub's clock was ahead: it tells nothing of when that was.
            waited_us = now_us - max(part.since_us or now_us, last_us if last_us <= now_us else 0)
            late = part.status == "in_flight" and waited_us > in_flight_us
            result.append(replace(part, status="missing") if late else part)
    return result


def _since(gap: Gap, seen: list[Gap], now_us: int) -> list[Gap]:
    """Split a gap where an earlier run already saw a part of it."""
    parts, at = [], gap.first
    for one in sorted(seen, key=lambda one: one.first):
        first, last = max(one.first, at), min(one.last, gap.last)
        if first > last:
            continue
        if first > at:
            parts.append(replace(gap, first=at, last=first - 1, since_us=now_us))
        since_us = None if one.since_us is None else min(one.since_us, now_us)  # noted when the clock was ahead
        parts.append(replace(gap, first=first, last=last, since_us=since_us))
        at = last + 1
    if at <= gap.last:
        parts.append(replace(gap, first=at, since_us=now_us))
    return parts


def epochs_known(epochs: list[Epoch], remembered: list[Known], said: Known | None) -> list[Known]:
    """Assign an origin's answer to one of its epochs; return what was remembered, updated with `said`.

    An origin with an unknown creation time is in a new epoch: the table's newest one, if that is newer than all
    remembered ones, else one of which nothing has arrived yet.
    """
    kept = {known_epoch.epoch: known_epoch for known_epoch in remembered}
    newest = max(len(epochs), 1)
    if said is None:
        return [kept[number] for number in sorted(kept)]
    same = [known_epoch.epoch for known_epoch in remembered if known_epoch.created_ns == said.created_ns]
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
    """Return all gaps of one source, oldest epoch first."""
    by_number = {epoch.number: epoch for epoch in epochs}
    words = {known_epoch.epoch: known_epoch for known_epoch in known}
    newest = max([*by_number, *words], default=0)
    gaps: list[Gap] = []
    for number in range(1, newest + 1):
        epoch, known_epoch = by_number.get(number, Epoch(number)), words.get(number)
        current = number == newest
        for first, last, after_us, before_us in _holes(epoch, known_epoch):
            for part_first, part_last, status in _statuses(first, last, epoch, known_epoch, current=current):
                gaps.append(Gap(source, number, part_first, part_last, status, after_us, before_us))
    return gaps


def _holes(epoch: Epoch, known_epoch: Known | None) -> list[tuple[int, int, int | None, int | None]]:
    """Return the ranges that are not in the table: before, between and after the islands."""
    holes: list[tuple[int, int, int | None, int | None]] = []
    at, after_us = _begin(epoch, known_epoch), None
    for island in epoch.islands:
        if island.first > at:
            holes.append((at, island.first - 1, after_us, island.first_us))
        at, after_us = island.last + 1, island.last_us
    if known_epoch is not None and known_epoch.last >= at:
        holes.append((at, known_epoch.last, after_us, None))
    return holes


def _begin(epoch: Epoch, known_epoch: Known | None) -> int:
    """Return the first sequence of an epoch: 1, or where its stream continued after its end moved back."""
    if known_epoch is not None:
        return known_epoch.begins
    return epoch.islands[0].first if epoch.continues and epoch.islands else 1


def _statuses(
    first: int, last: int, epoch: Epoch, known_epoch: Known | None, *, current: bool
) -> list[tuple[int, int, str]]:
    """Split one hole into ranges of one status each."""
    if not current:
        return [(first, last, "lost")]
    if known_epoch is None or not known_epoch.now:
        return [(first, last, "unknown")]
    deleted = [number for number in known_epoch.deleted if first <= number <= last]
    parts: list[tuple[int, int, str]] = []
    expired_to = min(last, known_epoch.first - 1)
    if expired_to >= first:
        parts.append((first, expired_to, "expired"))
    rest = "in_flight" if first > epoch.last else "filtered" if known_epoch.selective else "missing"
    if known_epoch.halted:
        rest = "missing"
    at = max(first, known_epoch.first)
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
    """Yield the rows of the table `origins`: one for each epoch of each source."""
    for source, words in known.items():
        by_number = {epoch.number: epoch for epoch in found.epochs.get(source, [])}
        by_words = {known_epoch.epoch: known_epoch for known_epoch in words}
        for number in sorted({*by_number, *by_words}):
            epoch, known_epoch = by_number.get(number, Epoch(number)), by_words.get(number)
            yield {
                **_named(source),
                "epoch": number,
                "created_ns": known_epoch.created_ns if known_epoch else None,
                "first_sequence": known_epoch.first if known_epoch else None,
                "last_sequence": known_epoch.last if known_epoch else None,
                "in_table": epoch.count,
                "last_in_table": epoch.last,
                "reachable": bool(known_epoch and known_epoch.now),
                "heard_at": _time(known_epoch.heard_us) if known_epoch else None,
                "last_stored_at": _time(max((island.last_us for island in epoch.islands), default=None)),
                "last_sequence_ns": known_epoch.last_ns if known_epoch else None,
                "begins": known_epoch.begins if known_epoch else None,
            }


def _known(info: StreamInfo, deleted: list[int], *, selective: bool) -> Known:
    now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    state = info.state
    first = max(1, state.first_seq)
    row = info.last_row
    return Known(
        0,
        info.created_ns,
        first,
        state.last_seq,
        now_us,
        tuple(sorted(deleted)),
        selective,
        last_ns=row.stored_ns if row else None,
    )


def _named(source: Source) -> dict[str, str]:
    return {"kind": source.kind, "domain": source.domain, "stream": source.name}


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1_000_000, UTC)


def _us(when: datetime) -> int:
    return round(when.timestamp() * 1_000_000)
