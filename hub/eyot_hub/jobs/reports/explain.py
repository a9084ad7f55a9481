"""The command `explain`: from a window of gold back to the messages of its readings, at the hub and at their origins.

It needs no Spark, writes nothing and may run beside all other jobs. Gold is opened before silver: all rows that a version
of gold has counted are in every later version of silver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import columns
from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.config.config import Config, Gold, Silver
from eyot_hub.jobs.lake.lake import existing_table
from eyot_hub.jobs.removals.device_lists import device_days
from eyot_hub.jobs.removals.retention import first_day
from eyot_hub.jobs.silver.replays import uncounted_spans
from eyot_hub.jobs.silver.silver import silver_schema
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.table import LakeTable
from eyot_wire.go.duration import parse_duration_ns

#: Columns of silver that say which message a row comes from.
_PROVENANCE: Final = (
    "event_time",
    "origin_domain",
    "origin_stream",
    "origin_sequence",
    "subject",
    "stored_at",
    "stream",
    "stream_created_ns",
    "sequence",
)
_WINDOW: Final = pa.schema(
    [
        ("device", pa.string()),
        ("metric", pa.string()),
        ("window_start", columns.TIMESTAMP),
        ("count", pa.int64()),
        ("revision", pa.int64()),
        ("computed_at", columns.TIMESTAMP),
    ]
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Explanation:
    """A window of gold and the readings of silver that fall into it."""

    gold: str
    device: str
    metric: str
    window_start: datetime
    window_end: datetime  # exclusive
    count: int = 0  # readings, as gold says
    revision: int = 0  # 0: gold does not have the window yet
    computed_at: datetime | None = None
    left: bool = False  # retention has removed the readings of this day from silver
    #: One for each reading in the order of event time: silver's columns of provenance, `value`, and `counted`: whether
    #: gold's position is past the reading's row. The next round of `aggregate` counts the others.
    readings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def found(self) -> int:
        """How many readings of silver gold must have counted."""
        return sum(reading["counted"] for reading in self.readings)

    @property
    def agrees(self) -> bool:
        """Whether silver has as many readings as gold has counted, or no longer has those of this day."""
        return self.left or self.found == self.count


def explain(config: Config, gold: Gold, device: str, metric: str, at_ns: int) -> Explanation:
    """Explain the window in which the time `at_ns` (ns since 1970) lies.

    Raises HubError when a table does not exist yet, and when neither gold nor silver has anything in the window.
    """
    silver = next(one for one in config.silver if one.name == gold.silver)
    window_us = parse_duration_ns(gold.window) // 1000
    try:
        start = _EPOCH + timedelta(microseconds=at_ns // 1000 // window_us * window_us)
        end = start + timedelta(microseconds=window_us)
    except OverflowError:
        raise HubError(f"gold/{gold.name} has no window that ends after the year 9999") from None
    done = Explanation(gold.name, device, metric, start, end)
    counted = _opened(config, "gold", gold.name)
    _read_window(counted, _partition(config, start), done)
    held = _opened(config, "silver", silver.name)
    own = device_days(held, config).first_of(device)
    done.left = _partition(config, start) < max(first_day(held), own)
    replayed = uncounted_spans(config, silver.name, held, counted)
    for row in _readings(held, _partition(config, start), silver, gold, done):
        epoch = row["stream"], row.pop("stream_created_ns")
        position = counted.position(position_id(*epoch))
        row["counted"] = position is not None and row["sequence"] <= position
        row["counted"] &= not any(span.holds(*epoch, row["sequence"]) for span in replayed)
        done.readings.append(row)
    if not done.readings and not done.revision:
        raise HubError(f"gold/{gold.name} has no window of {metric!r} of device {device!r} at {start.isoformat()}")
    done.readings.sort(key=lambda row: (row["event_time"], row["stream"], row["sequence"]))
    return done


def _opened(config: Config, *place: str) -> LakeTable:
    table = existing_table(config.lake, "/".join(place))
    if table is None:
        raise HubError(f"there is no table {config.folder(*place)}: aggregate has not run yet")
    return table


def _partition(config: Config, start: datetime) -> str:
    """Return the `event_date` under which gold and silver keep a window."""
    day = start.date()
    return str(day.replace(day=1) if config.lake.partition == "month" else day)


def _paths(table: LakeTable, day: str) -> list[str]:
    return [file.path for file in table.files() if str(file.partition["event_date"]) == day]


def _read_window(table: LakeTable, day: str, done: Explanation) -> None:
    """Take count, revision and time of computation from gold, if it has the window."""
    for rows in row_groups(table.spec.place, _paths(table, day), _WINDOW):
        wanted = pc.and_(pc.equal(rows["device"], done.device), pc.equal(rows["metric"], done.metric))
        wanted = pc.and_(wanted, pc.equal(rows["window_start"], pa.scalar(done.window_start, columns.TIMESTAMP)))
        for row in rows.filter(wanted).to_pylist():
            done.count, done.revision, done.computed_at = row["count"], row["revision"], row["computed_at"]


def _readings(table: LakeTable, day: str, silver: Silver, gold: Gold, done: Explanation) -> Iterator[dict[str, Any]]:
    """Yield the rows of silver that have a value for the window, as gold reads them: null is no reading."""
    full, value = silver_schema(silver), gold.value or done.metric
    names = ["device", *_PROVENANCE, value, *([gold.metric] if gold.metric else [])]
    schema = pa.schema([full.field(name) for name in dict.fromkeys(names)])
    first, end = (pa.scalar(time, columns.TIMESTAMP) for time in (done.window_start, done.window_end))
    for rows in row_groups(table.spec.place, _paths(table, day), schema):
        times = rows["event_time"]
        wanted = pc.and_(pc.greater_equal(times, first), pc.less(times, end))
        wanted = pc.and_(wanted, pc.and_(pc.equal(rows["device"], done.device), pc.is_valid(rows[value])))
        if gold.metric:
            wanted = pc.and_(wanted, pc.equal(rows[gold.metric].cast(pa.string()), done.metric))
        for row in rows.filter(wanted).to_pylist():
            yield {"value": row[value], **{name: row[name] for name in _PROVENANCE}}
