"""All jobs of the hub while their clock is an hour ahead or behind, is set back between rounds, and steps within them.

No reading is lost or counted twice, and no row or file leaves before its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eyot_hub.jobs.aggregate import Aggregate
from support.hub.faked_clock import FakedClock
from support.hub.jobs_config import jobs_config
from support.hub.lake_formats import VARIABLE
from support.hub.local_spark import LocalSpark
from support.hub.streams import Streams
from support.hub.truth import message, rows_in, series, truth

ROOT = Path(__file__).parents[2]
HOUR_S = 3600
#: Does a round of all jobs for each line of standard input, and tells what it found.
CHILD = """
import json, sys, time
from datetime import UTC, datetime
from pathlib import Path
from msgspec import structs
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Retention
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark

config = jobs_config(sys.argv[1], Path(sys.argv[2]), vacuum_after="3h", compact_every=2)
ages = Retention(bronze="72h", silver="72h", gold="72h", quarantine="72h")
config = structs.replace(config, gaps=structs.replace(config.gaps, ask_origins=False), retention=ages)
ingest, aggregate, gaps = Ingest(LocalSpark(), config), Aggregate(LocalSpark(), config), Gaps(LocalSpark(), config)
maintenance = Maintenance(config)
for line in sys.stdin:
    shown = time.time()
    ingest.round()
    aggregate.round()
    found = gaps.run()
    done = list(maintenance.round())
    print(json.dumps({
        "shown": shown,
        "gaps": [str(gap) for gap in found.gaps],
        "bad": found.bad,
        "expired": sum(one.expired for one in done),
        "removed": sum(one.removed for one in done),
        "jumped": any(one.clock_jumped for one in done),
    }), flush=True)
"""


class Jobs:
    """The process of the jobs, its clock, and what was published."""

    def __init__(self, streams: Streams, folder: Path) -> None:
        self.clock = FakedClock(folder)
        self.readings: list[tuple[str, int, float]] = []
        self._streams = streams
        paths = [str(ROOT / part) for part in ("hub", "wire", "tests")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, streams.url, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.clock.environment | {"PYTHONPATH": ":".join(paths)},
        )

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def publish(self, number: int) -> None:
        """Readings of today, a part of them in windows that have readings already."""
        day_ms = int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * 1000
        more = [*series("d1", day_ms - 14_400_000 + number * 500_000, 100), ("d2", day_ms, float(number))]
        self._streams.publish(map(message, more))
        self.readings += more

    def round(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the jobs ended"
        found: dict[str, Any] = json.loads(line)
        return found


@pytest.mark.parametrize("lake_format", ["delta", "iceberg"])
def test_an_hour_off(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_format: str) -> None:
    monkeypatch.setenv(VARIABLE, lake_format)
    streams.create("READINGS", ["readings.>"])
    reports = []
    with Jobs(streams, tmp_path) as jobs:
        for number, ahead_s in enumerate((0, HOUR_S, 0, -HOUR_S, HOUR_S, -HOUR_S, 0)):
            jobs.clock.set(ahead_s)
            jobs.publish(number)
            reports.append(jobs.round())
            assert abs(reports[-1]["shown"] - datetime.now(UTC).timestamp() - ahead_s) < 120
        for number in range(7, 12):
            jobs.publish(number)
            with jobs.clock.stepping([HOUR_S, -HOUR_S, 0], 0.05):
                reports.append(jobs.round())
        jobs.clock.set(0)
        reports += [jobs.round(), jobs.round()]
        assert not any(report["expired"] or report["removed"] or report["jumped"] for report in reports)
        assert not any(report["bad"] or report["gaps"] for report in reports[-2:])
        # By this clock, which counts as right, what compaction has replaced is old enough, and what is written meanwhile is not.
        jobs.clock.set(4 * HOUR_S)
        jobs.publish(12)
        assert jobs.round()["removed"]
        jobs.publish(13)
        jobs.clock.set(-HOUR_S)
        jobs.round()
    aggregate = Aggregate(LocalSpark(), jobs_config(streams.url, tmp_path))
    numbers = sorted(row["sequence"] for row in rows_in(aggregate.bronze))
    assert numbers == list(range(1, len(jobs.readings) + 1))
    silver = sorted(row["sequence"] for row in rows_in(aggregate.silver["readings"].table))
    assert silver == numbers
    gold = {
        (row["device"], round(row["window_start"].timestamp() * 1000)): tuple(
            row[name] for name in ("count", "min", "max", "mean", "p50")
        )
        for row in rows_in(aggregate.gold["minute"].table)
    }
    assert gold == truth(jobs.readings)
