"""What silver and gold cost for a row of bronze: `tests/bench/hub_aggregate.py --rows 2000000`.

Readings of about 200 bytes of JSON lie in bronze as `ingest` writes them. `aggregate` makes silver of them (parsed, typed,
de-duplicated, sorted), and gold by the minute. Tasks run in this process, one after the other, so that its CPU is all that
the tasks spend. No broker and no JVM take part. --profile prints where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
import pyarrow as pa
from rich.console import Console

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table, position_id
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.tables.table import LakeTable
from hub import START_MS, reading
from support.hub.lake_formats import FORMATS
from support.hub.local_spark import LocalSpark

EPOCH = ("S", 7)
PORTION = 100_000
DAY_US = 86_400_000_000
#: Of the readings: ten a second, so that two million fill two days and some hours.
STEP_MS = 100
console = Console(highlight=False)


def settings(folder: Path, table_format: str) -> Config:
    silver = {
        "name": "readings",
        "subjects": ["readings.>"],
        "device": "$.device",
        "event_time": "$.at",
        "event_time_unit": "ms",
        "columns": {"metric": "string", "number": "bigint", "value": "double"},
        "ahead": "876000h",
    }
    gold = {"name": "minute", "silver": "readings", "metric": "metric", "value": "value", "window": "1m"}
    return convert(
        {
            "nats": {"servers": "nats://127.0.0.1"},
            "lake": {"path": str(folder / "lake"), "format": table_format, "compression": "snappy"},
            "bronze": {"streams": ["S"], "compact_every": 0},
            "silver": [silver],
            "gold": [gold],
        },
        "bench",
    )


def receive(table: LakeTable, rows: int, devices: int) -> None:
    """Append `rows` readings to bronze, with the origin of a leaf node, in one commit."""
    inside = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
    writer = table.spec.writer()
    for first in range(0, rows, PORTION):
        numbers = range(first, min(first + PORTION, rows))
        sequence = np.arange(numbers.start + 1, numbers.stop + 1)
        stored = pa.array(START_MS * 1000 + sequence * STEP_MS * 1000).cast(SCHEMA.field("stored_at").type)
        values: dict[str, Any] = {
            "stream_created_ns": pa.repeat(EPOCH[1], len(numbers)),
            "sequence": pa.array(sequence),
            "subject": pa.array([f"readings.device-{number % devices:04}.temperature" for number in numbers]),
            "payload": pa.array([reading(number, devices, STEP_MS) for number in numbers], pa.binary()),
            "stored_at": stored,
            "origin_domain": pa.repeat("edge", len(numbers)),
            "origin_stream": pa.repeat("O", len(numbers)),
            "origin_sequence": pa.array(sequence),
        }
        arrays = [values.get(field.name, pa.nulls(len(numbers), field.type)) for field in inside]
        day = str(np.datetime64(START_MS + first * STEP_MS, "ms").astype("datetime64[D]"))
        writer.write(pa.table(arrays, schema=inside), (("stream", EPOCH[0]), ("date", day)))
    table.refresh()
    table.commit(writer.finish(), {position_id(*EPOCH): rows})


def measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return seconds of CPU of this process, those in the kernel (mostly for fresh memory), and what the work returned."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    done = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    kernel = after.ru_stime - before.ru_stime
    return after.ru_utime - before.ru_utime + kernel, kernel, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    spark: Any = LocalSpark()
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="eyot-aggregate-", dir="/var/tmp") as folder:
            config = settings(Path(folder), options.format)
            receive(bronze_table(config), options.rows, options.devices)
            job = Aggregate(spark, config)
            profile = cProfile.Profile() if options.profile else None
            if profile:
                profile.enable()
            spent, kernel, done = measured(job.round)
            if profile:
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            (silver,), (gold,) = done.silver, done.gold
            assert (silver.added, gold.rows) == (options.rows, options.rows), done
            console.print(
                f"{options.rows:,} rows: {spent:.2f} s of CPU ({kernel:.2f} in the kernel), {options.rows / spent:,.0f} rows/s, {gold.windows:,} windows"
            )


if __name__ == "__main__":
    main()
