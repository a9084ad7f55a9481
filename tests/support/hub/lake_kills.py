"""The jobs that change what a lake holds, killed at random while ingest goes on: then every table is compared with plain Python.

    python tests/support/hub/lake_kills.py --kills 20 --seed 7 --format iceberg --beside

A trial starts processes that run a few jobs, of which the last one is killed with SIGKILL: after a part of the time that it
takes, or before or after one of its commits. Tasks run in that process (`local_spark.py`): no JVM takes part, and a kill takes
seconds. Another process ingests all the time, and is killed, too. Meanwhile readings, late ones, poison, and rows that
only a mended configuration takes go into the stream; devices are erased; bronze, silver and gold lose rows by age, some
devices earlier. With `--beside` one more process runs other jobs all the time, by the one and the other configuration.

After each kill no table may hold a row twice, name a file that is gone, or know a device whose erasure has ended. In the
end, after one undisturbed turn, each table must say exactly what is true; and so it must after a backfill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import pyarrow as pa
import pyarrow.parquet as pq

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest, bronze_table, position_id
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import load
from eyot_hub.jobs.devices.file_summaries import FileSummaries
from eyot_hub.jobs.lake.lake import existing_table
from eyot_hub.jobs.maintenance.erasure import Eraser
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.removals.erasures import noted
from eyot_hub.jobs.removals.retention import removed_until
from eyot_hub.jobs.reports.quality import Quality
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_wire.go.time import rfc3339_to_ns
from support.hub.job_process import JobProcess, jobs_killed
from support.hub.killed_jobs import end_at
from support.hub.lake_formats import FORMATS, file_uris
from support.hub.local_spark import LocalSpark
from support.hub.streams import Message, Streams
from support.hub.truth import DAY_MS, Reading, truth
from support.servers.nats_server import NatsServer
from support.termination import exit_at_sigterm

STREAM = "READINGS"
#: `retention`, `compact` and `vacuum` are the three parts of `eyot-hub maintain`, `summaries` is what `fleet` reads of silver.
JOBS = (
    "ingest", "aggregate", "gaps", "summaries", "backfill", "retention", "compact", "vacuum", "quality", "replay", "erase",
)  # fmt: skip
#: What has to run first, so that the job has something to do.
BEFORE = {
    "backfill": ["aggregate"],
    "retention": ["aggregate", "gaps"],
    "compact": ["aggregate"],
    "vacuum": ["aggregate"],
    "replay": ["strict aggregate"],
    "erase": ["aggregate"],
    "summaries": ["aggregate"],
    "quality": ["aggregate"],
}
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
streams = ["READINGS"]
compact_every = 7
vacuum_after = "0s"
poll = "50ms"
max_messages_per_commit = 100
[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
event_time_unit = "ms"
columns = { metric = "string", value = "double", unit = "string" }
required = %REQUIRED%
quality = [{ rule = "required", column = "value" }, { rule = "unique", columns = ["sequence"] }]
[[gold]]
name = "minute"
silver = "readings"
metric = "metric"
value = "value"
percentiles = [0.5]
[retention]
bronze = "24h"
silver = "144h"
gold = "168h"
[[retention.devices]]
devices = ["short*"]
keep = "96h"
[gaps]
ask_origins = false
"""
#: Retention looks two days ahead, so that the hub stored everything long ago, and the clock has not jumped. Of days 0 to 6, which end today, these stay:
AHEAD = timedelta(days=2)
SILVER_DAYS, GOLD_DAYS, SHORT_DAYS = range(2, 7), range(1, 7), range(4, 7)
DEVICES = ("d0", "d1", "d2", "short1")
SHORT = "short1"
FOR_EVER = "for ever"
#: What runs all the time beside the jobs that are killed.
OTHERS = ("strict aggregate", "mended aggregate", "gaps", "retention", "compact", "quality")
OVERTAKEN = 3  # exit status: other jobs committed all the time
WAIT_S_MAX = 120.0
POLL_S = 0.002
COMMITS_MAX = 4


class Sent(NamedTuple):
    """A message of the stream: a reading, or None for poison."""

    device: str
    reading: Reading | None


class Ending(NamedTuple):
    """How a process ends: `seconds` after its last job has begun, or at that job's N-th commit. Neither: by itself."""

    seconds: float | None = None
    commit: int = 0
    when: str = ""


@dataclass
class Trial:
    """One lake, and what is done to the jobs that fill and keep it."""

    url: str
    folder: Path
    seed: int
    table_format: str = "delta"
    batch: int = 60  # readings published before each kill
    beside: bool = False
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._streams = Streams(int(self.url.rpartition(":")[2]))
        self._streams.create(STREAM, ["readings.>"])
        self._today = datetime.now(UTC).date()
        for name, required in (("strict", '["metric", "unit"]'), ("mended", '["metric"]')):
            text = TOML.replace("%URL%", self.url).replace("%FOLDER%", str(self.folder))
            text = text.replace("%FORMAT%", self.table_format).replace("%REQUIRED%", required)
            (self.folder / f"{name}.toml").write_text(text)
        self._sent: list[Sent] = []
        self._erased: list[str] = []  # devices whose erasure was asked for
        self._clean: set[str] = set()  # devices whose erasure has ended
        self._old: list[Reading] = []  # readings that gold counted before their day left silver
        self._lasted = dict.fromkeys(JOBS, 0.5)  # seconds, as last seen
        self._running: list[JobProcess] = []  # ingest, and other jobs

    @jobs_killed()
    def run(self, kills: int, report: bool = False, jobs: tuple[str, ...] = JOBS) -> None:
        """Kill each job so often; let one turn end, and check everything."""
        self._begin()
        plan = [job for job in jobs for _ in range(kills)]
        self._random.shuffle(plan)
        while plan:
            self.publish()
            if self._kill(plan[-1]):
                self.killed[plan.pop()] += 1
                self.check_nothing_twice()
                if report:
                    print(f"{self.killed.total()} killed, {len(plan)} to go", flush=True)
        self._end()

    def publish(self, days: tuple[int, ...] = tuple(range(7))) -> None:
        """Readings, a quarter of them of any of the days, some of which lack their unit; and a little poison."""
        fresh: list[tuple[Sent, Message]] = []
        for _ in range(self.batch):
            day = self._random.choice(days) if self._random.random() < 0.25 else days[-1]
            fresh.append(self._made(self._random.choice(DEVICES), day, odd=self._random.random() < 0.2))
        fresh.append((Sent("", None), ("readings.poison", b"no json %d" % len(self._sent))))
        self._put(fresh)

    def check_nothing_twice(self) -> None:
        for table, key in (
            ("bronze", ["sequence"]),
            ("silver/readings", ["sequence", "device"]),
            ("quarantine", ["sequence"]),
            ("gold/minute", ["device", "metric", "window_start"]),
            ("gaps", ["kind", "stream", "epoch", "first_sequence"]),
            ("quality", ["silver", "name"]),
            ("fleet_files", ["path", "device"]),
            ("fleet_files_sum", ["path", "device"]),
        ):
            rows = self._rows(table, key)
            twice = rows.num_rows - rows.group_by(key).aggregate([]).num_rows
            assert not twice, f"{table}: {twice} rows are there twice"
            if "device" in key:
                back = self._clean & set(rows.column("device").to_pylist())
                assert not back, f"{table} has the erased {back} again"

    def check(self) -> None:
        """Every table says what is true."""
        self.check_nothing_twice()
        assert self._clean == set(self._erased)
        kept = [one for one in self._sent if one.device not in self._clean]
        readings = [one.reading for one in kept if one.reading is not None]
        silver = self._rows("silver/readings", ["device", "event_time", "value"]).to_pylist()
        found = Counter((row["device"], _ms(row["event_time"]), row["value"]) for row in silver)
        expected = [one for one in readings if self._day(one) in (SHORT_DAYS if one[0] == SHORT else SILVER_DAYS)]
        assert found == Counter(expected), _difference(found, Counter(expected))
        poison = [one for one in kept if one.reading is None]
        assert self._rows("quarantine", ["sequence"]).num_rows == len(poison)
        names = ["device", "window_start", "count", "min", "max", "mean", "p50"]
        gold = {
            (row["device"], _ms(row["window_start"])): tuple(row[name] for name in names[2:])
            for row in self._rows("gold/minute", names).to_pylist()
        }
        old = [one for one in self._old if self._day(one) in GOLD_DAYS and one[0] != SHORT]
        assert gold == truth(expected + old)
        self._check_sequences()

    def summary(self) -> str:
        kills = ", ".join(f"{what} {count}" for what, count in sorted(self.killed.items()))
        return (
            f"{self.table_format}{', beside other jobs' if self.beside else ''}: {len(self._sent):,} messages, {len(self._erased)} devices erased; bronze, silver, quarantine, "
            f"gold and gaps as they must be; {self.killed.total()} kills: {kills}"
        )

    # -- what happens --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Old days are counted in gold, and leave; from now on nothing of them is taken."""
        for day in range(7):
            self._put([self._made(self._random.choice(DEVICES), day) for _ in range(20)])
        self._old = [one.reading for one in self._sent if one.reading is not None and self._day(one.reading) < 2]
        self._undisturbed("ingest", "aggregate", "gaps", "retention")
        self._start()

    def _start(self) -> None:
        """Start what is not running of what runs all the time."""
        for number, jobs in enumerate(["ingest", *(["others"] if self.beside else [])]):
            if number == len(self._running):
                self._running.append(self._live([f"{jobs} {FOR_EVER}"]))

    def _stop(self) -> None:
        while self._running:
            self._running.pop().kill()

    def _end(self) -> None:
        self._stop()
        self.publish()
        rest = [self._rest_of_erasure(device) for device in self._erased]
        turn = [
            "ingest",
            *dict.fromkeys(rest),
            "aggregate",
            "gaps",
            "replay",
            "aggregate",
            "retention",
            "compact",
            "vacuum",
            "gaps",
        ]
        self._undisturbed(*turn)
        self._clean = set(self._erased)
        self.check()
        self._undisturbed("backfill", "aggregate", "retention")
        self.check()

    def _kill(self, job: str) -> bool:
        """Let a process end in this job; return False where the job ended before."""
        self._check_running()
        if job in ("ingest", "vacuum"):
            # A vacuum without any delay would remove what the others are about to commit.
            time.sleep(self._random.uniform(0, self._lasted["ingest"]))
            self._stop()
        try:
            return job == "ingest" or self._kill_in_process(job)
        finally:
            self._start()

    def _kill_in_process(self, job: str) -> bool:
        first = BEFORE.get(job, [])
        asked = self._asked(job)
        if self._random.random() < 0.5:
            ending = Ending(commit=self._random.randint(1, COMMITS_MAX), when=self._random.choice(("before", "after")))
        else:
            ending = Ending(seconds=self._random.uniform(0, self._lasted[job]))
        process = self._live([*first, asked], ending)
        deadline, begun = time.monotonic() + WAIT_S_MAX, None
        while process.running:
            assert time.monotonic() < deadline, process.log()
            if begun is None and self._last_began(process):
                begun = time.monotonic()
            if begun is not None and ending.seconds is not None and time.monotonic() >= begun + ending.seconds:
                process.kill()
            time.sleep(POLL_S)
        status = process.wait()
        assert status in (0, OVERTAKEN, -signal.SIGKILL), process.log()
        if status == 0:
            self._lasted[job] = time.monotonic() - (begun or time.monotonic())
            self._clean |= {self._erased[-1]} if job == "erase" else set()  # the last request is finished last
        elif ending.seconds is not None:
            self._lasted[job] = max(self._lasted[job], ending.seconds * 1.1)
        return status == -signal.SIGKILL

    def _asked(self, job: str) -> str:
        """Return the job with what it is told; for an erasure, publish a device and take it out of the stream again."""
        if job in ("aggregate", "backfill"):
            return f"{self._random.choice(('strict', 'mended'))} {job}"
        if job != "erase":
            return job
        if self._erased and self._erased[-1] not in self._clean and self._random.random() < 0.5:
            return self._rest_of_erasure(self._erased[-1])
        device = f"e{len(self._erased)}"
        made = [self._made(device, self._random.randrange(7), odd=number % 3 == 0) for number in range(20)]
        made.append((Sent(device, None), (f"readings.{device}.t", b"no json of %s" % device.encode())))
        self._put(made)
        self._await_bronze()
        self._streams.api(f"STREAM.PURGE.{STREAM}", {"filter": f"readings.{device}.>"})
        self._erased.append(device)
        return f"erase {device}"

    def _rest_of_erasure(self, device: str) -> str:
        """Return what finishes an erasure: all of it where it was killed before its request was in the table."""
        requests = noted(load(str(self.folder / "mended.toml")))
        return "resume" if any(row["device"] == device for row in requests) else f"erase {device}"

    def _undisturbed(self, *jobs: str) -> None:
        process = self._live(list(jobs))
        assert process.wait() == 0, process.log()

    def _live(self, jobs: list[str], ending: Ending = Ending()) -> JobProcess:  # noqa: B008 (a tuple)
        now = self.folder / "now"
        if not jobs[-1].endswith(FOR_EVER):
            now.unlink(missing_ok=True)
        ahead = datetime(self._today.year, self._today.month, self._today.day, 12, tzinfo=UTC) + AHEAD
        plan = {"jobs": jobs, "folder": str(self.folder), "now": ahead.isoformat(), "ending": ending._asdict()}
        return JobProcess([__file__, "--live", json.dumps(plan)], self.folder / "jobs.log")

    def _last_began(self, process: JobProcess) -> bool:
        now = self.folder / "now"
        return now.exists() and now.read_text() == str(process.pid)

    def _check_running(self) -> None:
        for process in self._running:
            assert process.running, f"a job has ended: {process.log()}"

    def _await_bronze(self) -> None:
        """Wait until ingest has read all."""
        last, deadline = self._streams.state(STREAM)["last_seq"], time.monotonic() + WAIT_S_MAX
        while last not in self._rows("bronze", ["sequence"]).column("sequence").to_pylist():
            self._check_running()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    # -- messages and rows ---------------------------------------------------------------------------------------------

    def _made(self, device: str, day: int, odd: bool = False) -> tuple[Sent, Message]:
        number = self._random.randrange(20_000)
        at, value = self._midnight_ms(day) + number * 1000, (number % 97) * 0.25
        body: dict[str, Any] = {"device": device, "metric": "temperature", "at": at, "value": value}
        if not odd:
            body["unit"] = "C"
        return Sent(device, (device, at, value)), (f"readings.{device}.t", json.dumps(body).encode())

    def _put(self, made: list[tuple[Sent, Message]]) -> None:
        self._streams.publish(message for _, message in made)
        self._sent += [sent for sent, _ in made]

    def _midnight_ms(self, day: int) -> int:
        return ((self._today - date(1970, 1, 1)).days - 6 + day) * DAY_MS

    def _day(self, reading: Reading) -> int:
        return (reading[1] - self._midnight_ms(0)) // DAY_MS

    def _check_sequences(self) -> None:
        """Bronze lacks what retention and erasures removed, and nothing else; gaps tell none of it as missing."""
        bronze = bronze_table(load(str(self.folder / "mended.toml")))
        held = set(self._rows("bronze", ["sequence"]).column("sequence").to_pylist())
        created = self._streams.api(f"STREAM.INFO.{STREAM}")["created"]
        until = removed_until(bronze, position_id(STREAM, rfc3339_to_ns(created)))
        lacks = [
            number
            for number, sent in enumerate(self._sent, 1)
            if number > until and number not in held and sent.device not in self._clean
        ]
        assert not lacks, f"bronze lacks {lacks[:5]} of {len(lacks)}; retention has removed up to {until}"
        own = {number for number in held if self._sent[number - 1].device in self._clean}
        assert not own, f"bronze has {sorted(own)[:5]} of erased devices"
        gaps = self._rows("gaps", ["first_sequence", "last_sequence", "status"]).to_pylist()
        assert not gaps, gaps

    def _rows(self, table: str, columns: list[str]) -> pa.Table:
        uris = file_uris(self.folder / "lake", table)
        parts = [pq.read_table(uri, columns=columns, partitioning=None) for uri in uris]
        return pa.concat_tables(parts) if parts else pa.table({name: pa.array([], pa.int64()) for name in columns})


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    more, less = found - expected, expected - found
    return f"{more.total()} too many {list(more)[:3]}, {less.total()} are missing {list(less)[:3]}"


# -- a process ------------------------------------------------------------------------------------------------------------


def live(plan: dict[str, Any]) -> None:
    """Run the jobs; end as planned in the last one."""
    folder, ending = Path(plan["folder"]), Ending(**plan["ending"])
    for number, told in enumerate(plan["jobs"], 1):
        words = told.split()
        rules = words.pop(0) if words[0] in ("strict", "mended") else "mended"
        config = load(str(folder / f"{rules}.toml"))
        if number == len(plan["jobs"]) and not told.endswith(FOR_EVER):
            if ending.commit:
                end_at(LakeTable, "commit", ending.when, ending.commit)
            part = folder / f"{os.getpid()}.part"
            part.write_text(str(os.getpid()))
            part.rename(folder / "now")
        now = datetime.fromisoformat(plan["now"])
        if words[0] == "others":
            _others(folder, now)
        try:
            _do(words, config, now)
        except Fenced:
            sys.exit(OVERTAKEN)


def _others(folder: Path, now: datetime) -> None:
    """Run jobs for ever; a round that others overtake too often is left."""
    while True:
        words = random.choice(OTHERS).split()
        rules = words.pop(0) if len(words) > 1 else "mended"
        with suppress(Fenced):
            _do(words, load(str(folder / f"{rules}.toml")), now)


def _do(words: list[str], config: Config, now: datetime) -> None:
    spark: Any = LocalSpark()

    def maintain(**parts: bool) -> None:
        chosen = {"compact": False, "vacuum": False, "retention": False, **parts}
        for _ in Maintenance(config, **chosen, now=lambda: now).round():
            pass

    jobs: dict[str, Callable[[], object]] = {
        "ingest": lambda: Ingest(spark, config).run(once=len(words) == 1, report=lambda _: None),
        "aggregate": lambda: Aggregate(spark, config).round(),
        "backfill": lambda: Aggregate(spark, config).rebuild(set()),
        "gaps": lambda: Gaps(spark, config).run(),
        "quality": lambda: Quality(config).run(),
        "summaries": lambda: FileSummaries(spark, config).found(),
        "retention": lambda: maintain(retention=True),
        "compact": lambda: maintain(compact=True),
        "vacuum": lambda: _vacuum(config),
        "replay": lambda: Replay(config, config.silver[0]).run(),
        "erase": lambda: Eraser(spark, config).erase(words[1], [f"readings.{words[1]}.>"]),
        "resume": lambda: Eraser(spark, config).resume(),
    }
    jobs[words[0]]()


def _vacuum(config: Config) -> None:
    """Remove all files that the present versions do not need: nothing else runs."""
    for name in Maintenance(config)._names():
        table = existing_table(config.lake, name)
        if table is not None:
            table.remove_files(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the jobs of a filled lake at random beside ingest.")
    parser.add_argument("--kills", type=int, default=20, help="of each job")
    parser.add_argument("--job", choices=JOBS, action="append", help="kill only this one (all)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the tables")
    parser.add_argument("--beside", action="store_true", help="run other jobs all the time, not ingest alone")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    exit_at_sigterm()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, NatsServer(CONFIG, Path(folder) / "server") as server:
        trial = Trial(
            f"nats://127.0.0.1:{server.client_port}", Path(folder), options.seed, options.format, beside=options.beside
        )
        print(f"seed {options.seed}", flush=True)
        trial.run(options.kills, report=True, jobs=tuple(options.job or JOBS))
        print(trial.summary())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        live(json.loads(sys.argv[2]))
    else:
        main()
