"""The jobs behind ingest killed at random: aggregate, gaps, fleet, backfill, maintain, devices. Then every table is compared with plain Python.

    python tests/support/hub/table_kills.py --kills 20 --seed 7

A life is one process that runs the jobs in turn, for ever, in one Spark session, and says in a file which one it is in. While a job
runs, its driver (with the JVM) or a Python worker is killed with SIGKILL, `--kills` times for each job; new readings, late ones,
repeats, poison and deletions go into the stream meanwhile. After each kill no table may hold a row twice, and the hub's numbers
may not be ahead of what was published; in the end, after one undisturbed turn, each table must say exactly what is true.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import pyarrow as pa
import pyarrow.parquet as pq

from eyot_wire.go.time import ns_to_rfc3339
from support.hub.job_process import JobProcess, jobs_killed
from support.hub.lake_formats import FORMATS, file_uris
from support.hub.streams import Message, Streams
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Reading, message, truth
from support.servers.nats_server import NatsServer
from support.termination import exit_at_sigterm

STREAM = "READINGS"
STATUS = "STATUS"
JOBS = ("aggregate", "gaps", "fleet", "backfill", "maintain", "devices")
DEVICES = 5
EXPIRED = "d4"  # all of its readings are older than it keeps them; backfill brings them back, and maintain removes them
CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
TOML = """
[nats]
servers = "%URL%"
[lake]
path = "%FOLDER%/lake"
format = "%FORMAT%"
[bronze]
streams = ["READINGS", "STATUS"]
compact_every = 4
vacuum_after = "1h"
[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
event_time_unit = "ms"
columns = { metric = "string", value = "double" }
required = ["metric"]
[[gold]]
name = "minute"
silver = "readings"
metric = "metric"
value = "value"
percentiles = [0.5]
[fleet]
subjects = ["fleet.*.status"]
[[retention.devices]]
devices = ["%EXPIRED%"]
keep = "24h"
[spark]
"spark.master" = "local[2,4]"
"spark.sql.shuffle.partitions" = "2"
"""
WAIT_S_MAX = 300.0
DEVICES_TRIES = 3
POLL_S = 0.005


@dataclass
class Trial:
    """One lake, and what is done to the jobs that fill it."""

    url: str
    folder: Path
    seed: int
    table_format: str = "delta"
    batch: int = 300  # readings published before each kill
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._streams = Streams(int(self.url.rpartition(":")[2]))
        self._streams.create(STREAM, ["readings.>"])
        self._streams.create(STATUS, ["fleet.>"])
        self._toml = self.folder / "hub.toml"
        self._toml.write_text(
            TOML.replace("%URL%", self.url)
            .replace("%FOLDER%", str(self.folder))
            .replace("%FORMAT%", self.table_format)
            .replace("%EXPIRED%", EXPIRED)
        )
        self._now = self.folder / "now"
        self._readings: list[Reading] = []
        self._published = self._poison = 0
        self._statuses: dict[tuple[str, str], Message] = {}  # by device and time
        self._deleted: list[int] = []
        self._gone: list[int] = []  # the same as numbers of readings
        self._devices = True  # whether they run: a streaming query takes long to start
        self._lasted = dict.fromkeys(JOBS, 2.0)  # seconds, as last seen

    @jobs_killed()
    def run(self, kills: int, report: bool = False, until: float = math.inf, jobs: tuple[str, ...] = JOBS) -> None:
        """Kill each job so often, but nothing after `until` (monotonic); let one turn end, and check everything."""
        plan = [job for job in jobs for _ in range(kills)]
        self._devices = "devices" in jobs
        job = None
        while plan and time.monotonic() < until:
            self.publish()
            job = job if job is not None and job.running else self._live()
            what = self._kill(job, plan)
            if what == "driver":
                job = None
            self.check_nothing_twice()
            if report:
                print(f"{sum(self.killed.values())} killed, {len(plan)} to go: {what}", flush=True)
        if job is not None:
            job.kill()
        self.publish()
        last = self._live("once")
        assert last.wait() == 0, last.log()
        self.check()

    def publish(self) -> None:
        """Readings of some days, a quarter of them late; a little poison; and one reading that is deleted again."""
        fresh: list[Reading] = []
        for number in range(self._published, self._published + self.batch):
            days = self._random.randrange(4) if number % 4 == 0 else 4
            fresh.append((f"d{number % DEVICES}", NEW_YEAR_MS + days * DAY_MS + number * 1000, (number % 97) * 0.25))
        gone = self._random.randrange(self.batch)
        poison: Message = ("readings.poison", b"no json %d" % self._poison)
        first = self._streams.state(STREAM)["last_seq"] + 1
        self._streams.publish([*map(message, fresh[: gone + 1])])
        self._streams.remove(STREAM, first + gone)
        self._streams.publish([poison, *map(message, fresh[gone + 1 :])])
        self._published += self.batch
        self._poison += 1
        # Bronze may have been faster than the deletion: then the reading counts.
        self._deleted.append(first + gone)
        self._gone.append(len(self._readings) + gone)
        self._readings += fresh
        self._publish_statuses()

    def _publish_statuses(self) -> None:
        """One status of each device, and some that were there before."""
        again = self._random.sample(list(self._statuses.values()), min(3, len(self._statuses)))
        for number in range(DEVICES):
            device, at = f"d{number}", ns_to_rfc3339((NEW_YEAR_MS + self._published * 1000 + number) * 1_000_000)
            body = {"device": device, "at": at, "every_s": 60.0, "linked": number % 2 == 0}
            self._statuses[device, at] = (f"fleet.{device}.status", json.dumps(body).encode())
        self._streams.publish([*again, *list(self._statuses.values())[-DEVICES:]])

    def check_nothing_twice(self) -> None:
        for table, key in (
            ("bronze", ["stream", "sequence"]),
            ("silver/readings", ["stream", "sequence"]),
            ("quarantine", ["stream", "sequence"]),
            ("gold/minute", ["device", "metric", "window_start"]),
            ("gaps", ["kind", "domain", "stream", "epoch", "first_sequence"]),
            ("fleet", ["device"]),
            ("devices", ["device"]),
        ):
            rows = self._rows(table, key)
            twice = rows.num_rows - rows.group_by(key).aggregate([]).num_rows
            assert not twice, f"{table}: {twice} rows are there twice"

    def check(self) -> None:
        """Every table says what is true."""
        self.check_nothing_twice()
        rows = self._rows("bronze", ["stream", "sequence"]).to_pylist()
        bronze = {row["sequence"] for row in rows if row["stream"] == STREAM}
        everything = set(range(1, self._streams.state(STREAM)["last_seq"] + 1))
        holes = everything - bronze
        assert holes <= set(self._deleted), f"bronze lacks {sorted(holes - set(self._deleted))[:5]}"
        readings = [reading for reading in self._readings_in(bronze) if reading[0] != EXPIRED]
        silver = self._rows("silver/readings", ["device", "event_time", "value"])
        found = Counter(
            (row["device"], int(row["event_time"].timestamp() * 1000), row["value"]) for row in silver.to_pylist()
        )
        assert found == Counter(readings)
        assert self._rows("quarantine", ["sequence"]).num_rows == self._poison
        names = ["device", "window_start", "count", "min", "max", "mean", "p50"]
        gold = {
            (row["device"], int(row["window_start"].timestamp() * 1000)): tuple(row[name] for name in names[2:])
            for row in self._rows("gold/minute", names).to_pylist()
        }
        assert gold == truth(readings)
        known = self._rows("fleet", ["device", "readings", "statuses"]).to_pylist()
        assert {row["device"]: row["statuses"] for row in known} == Counter(device for device, _ in self._statuses)
        fleet = {row["device"]: row["readings"] for row in known}
        fleet.pop(EXPIRED, None)  # as many as silver had when fleet looked
        assert fleet == Counter(device for device, _, _ in readings)
        if self._devices:
            self._check_devices()
        gaps = self._rows("gaps", ["first_sequence", "last_sequence", "status"]).to_pylist()
        named = {n for gap in gaps for n in range(gap["first_sequence"], gap["last_sequence"] + 1)}
        assert named == holes
        assert {gap["status"] for gap in gaps} <= {"deleted"}

    def _check_devices(self) -> None:
        """The streaming query may have been faster than deletions. It reads the stream, so no reading is too old."""
        sent = Counter(device for device, _, _ in self._readings)
        gone = Counter(self._readings[number][0] for number in self._gone)
        for row in self._rows("devices", ["device", "readings"]).to_pylist():
            device, counted = row["device"], row["readings"]
            assert sent[device] - gone[device] <= counted <= sent[device], (device, counted, sent[device], gone[device])
            sent.pop(device)
        assert not sent

    def summary(self) -> str:
        kills = ", ".join(f"{what} {count}" for what, count in sorted(self.killed.items()))
        return f"{self._published:,} readings, {self._poison} poison; silver, quarantine, gold, gaps, fleet and devices as they must be; {kills}"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _readings_in(self, bronze: set[int]) -> list[Reading]:
        """The readings whose messages bronze has; each batch is `batch` readings with one poison behind the deleted one."""
        held, sequence = [], 1
        for start in range(0, len(self._readings), self.batch):
            gone = self._deleted[start // self.batch]
            for reading in self._readings[start : start + self.batch]:
                if sequence in bronze:
                    held.append(reading)
                sequence += 2 if sequence == gone else 1
        return held

    def _live(self, *more: str) -> JobProcess:
        more = (*more, "devices") if self._devices else more
        self._now.unlink(missing_ok=True)
        return JobProcess([__file__, "--live", str(self._toml), str(self._now), *more], self.folder / "jobs.log")

    def _kill(self, process: JobProcess, plan: list[str]) -> str:
        """Wait until a job begins that is to be killed, then for a part of the time that it takes, and kill."""
        deadline, seen, target = time.monotonic() + WAIT_S_MAX, "", self._random.choice(plan)
        while True:
            assert time.monotonic() < deadline, process.log()
            assert process.running, process.log()
            job = self._job()
            if job != target or job == seen:
                seen = job if job == seen else ""
                time.sleep(POLL_S)
                continue
            begun, seen = time.monotonic(), job
            wait_s = self._random.uniform(0, self._lasted[job])
            while self._job() == job and time.monotonic() < begun + wait_s:
                time.sleep(POLL_S)
            if self._job() != job:  # shorter than last time
                self._lasted[job] = time.monotonic() - begun
                continue
            self._lasted[job] = max(self._lasted[job], wait_s * 1.1)
            # `maintain` has no workers, and those of `fleet` work on new files only.
            what = "driver" if job in ("fleet", "maintain") else self._random.choice(("driver", "worker"))
            if what == "driver":
                process.kill()
            elif not process.kill_worker(self._random):
                continue
            plan.remove(job)
            self.killed[f"{job}'s {what}"] += 1
            return what

    def _job(self) -> str:
        return self._now.read_text() if self._now.exists() else ""

    def _rows(self, table: str, columns: list[str]) -> pa.Table:
        parts = []
        for uri in file_uris(self.folder / "lake", table):
            partition = {"stream": STATUS if f"stream={STATUS}/" in uri else STREAM} if table == "bronze" else {}
            wanted = [name for name in columns if name not in partition]
            rows = pq.read_table(uri, columns=wanted, partitioning=None)
            for name, value in partition.items():
                if name in columns:
                    rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()))
            parts.append(rows)
        return pa.concat_tables(parts) if parts else pa.table({name: pa.array([], pa.int64()) for name in columns})


def live(toml: str, now: Path, *, once: bool, devices: bool) -> int:
    """The jobs in turn until somebody ends it, or `once`; the status of the first that fails."""
    from eyot_hub.main import main as eyot_hub

    turn = [
        ["ingest", "--once"],
        ["aggregate", "--once"],
        ["gaps"],
        ["fleet"],
        ["backfill"],
        ["maintain", "--once"],
        *([["devices", "--once"]] if devices else []),
    ]
    while True:
        for arguments in turn:
            part = now.with_suffix(".part")
            part.write_text(arguments[0])
            part.rename(now)
            # Spark gives the worker of a streaming source ten seconds to start; without it the query fails.
            for left in range(DEVICES_TRIES if arguments[0] == "devices" else 1, 0, -1):
                status = eyot_hub([*arguments[:1], "-c", toml, *arguments[1:]])
                if not status:
                    break
                if left == 1:
                    return status
        if once:
            return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Kill the hub's jobs at random and compare their tables with the truth."
    )
    parser.add_argument("--kills", type=int, default=20, help="of each job")
    parser.add_argument("--job", choices=JOBS, action="append", help="kill only this one (all)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the tables")
    parser.add_argument("--seconds", type=float, default=math.inf, help="kill nothing later")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    exit_at_sigterm()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, NatsServer(CONFIG, Path(folder) / "server") as server:
        trial = Trial(f"nats://127.0.0.1:{server.client_port}", Path(folder), options.seed, options.format)
        print(f"seed {options.seed}", flush=True)
        jobs = tuple(options.job or JOBS)
        trial.run(options.kills, report=True, until=time.monotonic() + options.seconds, jobs=jobs)
        print(trial.summary())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        told = sys.argv[4:]
        sys.exit(live(sys.argv[2], Path(sys.argv[3]), once="once" in told, devices="devices" in told))
    main()
