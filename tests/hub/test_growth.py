"""A round of each job asks object storage as much after many rounds as after a few: nothing is read again, listed or opened for each file.

`quality` is not among them: it reads all files of its period. `tests/hub/test_status_summaries.py` has the statuses of `fleet`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.bronze.segments import FILES_MAX
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.file_summaries import FileSummaries, by_device
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark
from support.hub.object_storage import ObjectStorage
from support.hub.streams import Streams

SPARK: Any = LocalSpark()
FIRST = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=60)
FEW, MANY = 3, 28
ROUNDS = 3
#: Requests that a round of `gaps` may make more: segments are in up to eight files, and three requests read one.
SPARE = {"gaps": 3 * FILES_MAX}


def config(url: str, folder: Path, storage: dict[str, str]) -> Config:
    parsed = to_builtins(jobs_config(url, folder, ["READINGS"], compact_every=0))
    lake = {"path": "s3://lake/hub", "storage_options": storage}
    return convert({**parsed, "lake": lake, "gaps": {"ask_origins": False}}, "tests")


class Lake:
    """The jobs of one process, which go on; each round has the readings of a day of its own."""

    def __init__(self, settings: Config, streams: Streams) -> None:
        self._streams = streams
        self._days = 0
        ingest, aggregate, summaries = (
            Ingest(SPARK, settings),
            Aggregate(SPARK, settings),
            FileSummaries(SPARK, settings),
        )
        gaps = Gaps(SPARK, settings)
        self._close = ingest.close
        self.jobs: dict[str, Callable[[], object]] = {
            "ingest": ingest.round,
            "aggregate": aggregate.round,
            "gaps": gaps.run,
            "fleet": lambda: by_device(summaries.found(), (0.5,)),
            "maintain": lambda: list(Maintenance(settings, compact=False).round()),
        }

    def publish(self) -> None:
        at = round((FIRST + timedelta(days=self._days)).timestamp() * 1000)
        self._days += 1
        bodies = [{"device": f"d{number}", "metric": "t", "value": 1.0, "at": at + number} for number in range(3)]
        self._streams.publish([("readings.x", json.dumps(body).encode()) for body in bodies])

    def grow(self, days: int) -> None:
        """Run the jobs that make files."""
        while self._days < days:
            self.publish()
            for name in ("ingest", "aggregate", "fleet"):
                self.jobs[name]()

    def close(self) -> None:
        self._close()


def requests_of(lake: Lake, storage: ObjectStorage) -> dict[str, int]:
    """Return the requests of a round of each job, the fewest of some rounds; each of them has news."""
    found: dict[str, list[int]] = {name: [] for name in lake.jobs}
    for number in range(ROUNDS + 1):
        lake.publish()
        for name, job in lake.jobs.items():
            before = len(storage.requests())
            job()
            asked = storage.requests()[before:]
            if name == "maintain":  # opens all tables, and reads up to 25 entries of each log
                asked = [one for one in asked if "/_delta_log/" not in one]
            if number:  # the first one sees all at once
                found[name].append(len(asked))
    return {name: min(counts) for name, counts in found.items()}


def test_requests_do_not_grow_with_history(streams: Streams, tmp_path: Path) -> None:
    with ObjectStorage("lake", tmp_path / "requests.log") as storage:
        streams.create("READINGS", ["readings.>"])
        lake = Lake(config(streams.url, tmp_path, storage.options), streams)
        lake.grow(FEW)
        few = requests_of(lake, storage)
        lake.grow(MANY)
        many = requests_of(lake, storage)
        lake.close()
    assert min(few.values()) > 0, few
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name] + SPARE.get(name, 0)} == {}
