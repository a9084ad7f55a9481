"""What a round costs in a lake that keeps more and more rows: `tests/bench/hub_history.py --rows 1000000,10000000`.

A million rows a day of 1,000 devices are written to bronze and silver as the jobs write them. At each size, rounds over a thousand
new rows are measured: aggregate (silver and gold), a round of late rows over ten days, gaps, and the summaries of fleet. Tasks
run in this process, one after the other; seconds of CPU are the median of the rounds. No broker and no JVM take part.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
import pyarrow as pa
from rich.console import Console

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table, position_id
from eyot_hub.jobs.bronze.coverage import coverage
from eyot_hub.jobs.bronze.segments import Segments
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.file_summaries import FileSummaries, by_device
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.lake_formats import FORMATS
from support.hub.local_spark import LocalSpark

DAY_ROWS = 1_000_000
DEVICES = 1000
ROUND_ROWS = 1000
ROUNDS = 3
FIRST = date(2026, 1, 1)
DAY_US = 86_400_000_000
EPOCH = ("S", 7)
SPARK: Any = LocalSpark()
console = Console(highlight=False)


def settings(folder: Path, table_format: str) -> Config:
    silver = {
        "name": "readings",
        "subjects": ["readings.>"],
        "device": "$.device",
        "event_time": "$.at",
        "event_time_unit": "us",
        "columns": {"metric": "string", "value": "double"},
    }
    gold = {"name": "minute", "silver": "readings", "metric": "metric", "value": "value", "window": "1h"}
    return convert(
        {
            "nats": {"servers": "nats://127.0.0.1"},
            "lake": {"path": str(folder / "lake"), "format": table_format},
            "bronze": {"streams": ["S"], "compact_every": 0},
            "silver": [silver],
            "gold": [gold],
        },
        "bench",
    )


def midnight_us(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_US


class Lake:
    """A lake that grows by days."""

    def __init__(self, folder: Path, table_format: str) -> None:
        self.config = settings(folder, table_format)
        self.bronze = bronze_table(self.config)
        self.silver = silver_table(self.config, self.config.silver[0])
        quarantine_table(self.config)
        self.rows = self.days = 0

    def add_day(self) -> None:
        """Append a day of rows to bronze and silver, as if the jobs had done it."""
        day, count = FIRST + timedelta(days=self.days), DAY_ROWS
        sequence = np.arange(self.rows + 1, self.rows + count + 1)
        device = pa.array(np.arange(count) % DEVICES).cast(pa.string())
        at = pa.array(midnight_us(day) + np.arange(count) * (DAY_US // count)).cast(pa.timestamp("us", "UTC"))
        subject = pa.repeat("readings.x", count)
        place = {
            "stream_created_ns": pa.repeat(EPOCH[1], count),
            "sequence": pa.array(sequence),
            "subject": subject,
            "stored_at": at,
            "origin_domain": pa.repeat("edge", count),
            "origin_stream": pa.repeat("O", count),
            "origin_sequence": pa.array(sequence),
        }
        self._append(self.bronze, {**place, "payload": pa.repeat(b"{}", count)}, {"stream": "S", "date": str(day)})
        rng = np.random.default_rng(self.days)
        made = {
            **place,
            "device": device,
            "event_time": at,
            "metric": pa.repeat("m", count),
            "value": pa.array(rng.normal(size=count)),
            "content_hash": pa.array(rng.integers(-(1 << 62), 1 << 62, count)),
            "stream": pa.repeat("S", count),
        }
        self._append(self.silver, made, {"event_date": str(day)})
        self.rows += count
        self.days += 1
        self._at({position_id(*EPOCH): self.rows})

    def _at(self, positions: dict[str, int]) -> None:
        for table in (self.bronze, self.silver):
            table.refresh()
            table.commit([], positions)
        quarantine = quarantine_table(self.config)
        quarantine.commit([], {f"readings/{name}": at for name, at in positions.items()})

    @staticmethod
    def _append(table: LakeTable, columns: dict[str, pa.Array], partition: dict[str, str]) -> None:
        inside = [field for field in table.spec.schema if field.name not in table.spec.partition_by]
        count = len(columns["sequence"])
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in inside]
        writer = table.spec.writer()
        writer.write(pa.table(arrays, schema=pa.schema(inside)), tuple(partition.items()))
        table.refresh()
        table.commit(writer.finish(), {})

    def receive(self, late_days: int = 0) -> None:
        """Append a thousand messages to bronze: of the last day, or spread over earlier ones."""
        day = FIRST + timedelta(days=self.days - 1)
        rows = []
        for number in range(ROUND_ROWS):
            event = day - timedelta(days=number % late_days if late_days else 0)
            at = midnight_us(event) + number * 1_000_000
            body = b'{"device": "%d", "metric": "m", "at": %d, "value": 1.5}' % (number % DEVICES, at)
            sequence = self.rows + number + 1
            rows.append(
                {
                    "stream_created_ns": EPOCH[1],
                    "sequence": sequence,
                    "subject": "readings.x",
                    "payload": body,
                    "stored_at": midnight_us(day) + DAY_US - 1,
                    "origin_domain": "edge",
                    "origin_stream": "O",
                    "origin_sequence": sequence,
                }
            )
        inside = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
        writer = self.bronze.spec.writer()
        writer.write(pa.Table.from_pylist(rows, inside), (("stream", "S"), ("date", str(day))))
        self.bronze.refresh()
        self.rows += ROUND_ROWS
        self.bronze.commit(writer.finish(), {position_id(*EPOCH): self.rows})


def cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measured(lake: Lake) -> dict[str, float]:
    """Return seconds of CPU of each kind of round; the first one of each, which sees all days at once, is not counted."""
    job = Aggregate(SPARK, lake.config)
    segments = Segments(SPARK, lake.config, lake.bronze)
    summaries = FileSummaries(SPARK, lake.config)

    def gaps() -> None:
        lake.bronze.refresh()
        found = segments.found()
        segments.decide(found, coverage(found, lambda: None).repeats)  # type: ignore[arg-type,return-value]

    rounds: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, late in (("round of 1,000 rows", 0), ("1,000 late rows over 10 days", 10)):
            lake.receive(late)
            spent = cpu(job.round)
            if number:
                rounds.setdefault(name, []).append(spent)
        for name, work in (("gaps", gaps), ("fleet", lambda: by_device(summaries.found(), (0.5, 0.95)))):
            spent = cpu(work)
            if number:
                rounds.setdefault(name, []).append(spent)
    rounds["a new process opens all tables"] = [_opened(lake) for _ in range(ROUNDS)]
    return {name: statistics.median(spent) for name, spent in rounds.items()}


def _opened(lake: Lake) -> float:
    def opened() -> None:
        Aggregate(SPARK, lake.config)
        table = open_table(lake.config.lake, "bronze", SCHEMA, PARTITION_BY)
        table.files()
        table.position(position_id(*EPOCH))

    _forget()
    return cpu(opened)


def _forget() -> None:
    """Make this process know no more of Iceberg tables than a new one."""
    for name, held in (("lake.iceberg_catalog", "_catalogs"), ("tables.iceberg_log", "_manifests")):
        module = sys.modules.get(f"eyot_hub.jobs.{name}")
        if module is not None:
            getattr(module, held).clear()
    if "pyiceberg.manifest" in sys.modules:
        sys.modules["pyiceberg.manifest"].clear_manifest_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=lambda text: [int(part) for part in text.split(",")], default=[1_000_000])
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    options = parser.parse_args()
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="eyot-history-", dir="/var/tmp") as folder:
        lake = Lake(Path(folder), options.format)
        for size in options.rows:
            while lake.days * DAY_ROWS < size:
                lake.add_day()
            found[size] = measured(lake)
            console.print(f"{size:,} rows: {found[size]}")
    sizes = list(found)
    console.print("| CPU in s | " + " | ".join(f"{size:,} rows" for size in sizes) + " | last to first |")
    console.print("|---" * (len(sizes) + 2) + "|")
    for name in found[sizes[0]]:
        figures = [found[size][name] for size in sizes]
        console.print(f"| {name} | " + " | ".join(f"{f:.3f}" for f in figures) + f" | {figures[-1] / figures[0]:.2f} |")


if __name__ == "__main__":
    main()
