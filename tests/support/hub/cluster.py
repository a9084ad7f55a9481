"""`make hub-cluster`: the jobs on a standalone cluster of Spark, from the built wheel, with executors from a packed environment.

A master and three workers run as real processes on loopback, with Spark's own authentication and encryption. The jobs run by `spark-submit`
in client mode, and every secret comes from a file. Each job is measured beside a program that only starts: a session, and one task of
Python on each executor. `cluster_kills.py` kills parts of such a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

from deltalake import DeltaTable
from pyarrow import fs
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from eyot_hub.jobs.tables.files import Place, filesystem
from support.hub.job_process import JobProcess, jobs_killed
from support.hub.spark_cluster import SparkCluster
from support.hub.streams import Streams
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Reading, message, series, truth
from support.servers.nats_server import NatsServer
from support.termination import exit_at_sigterm

TOP = Path(__file__).parents[3]
STREAM = "READINGS"
DEVICES = 20
ROWS = 20_000
WORKERS = 3
ROUNDS = 4  # of ingest in one process
JOBS = ("ingest", "aggregate", "gaps", "fleet", "devices")
SHARE_CLASSES = TOP / "packaging" / "share-classes"
WAIT_S_MAX = 600.0
POLL_S = 0.02
BROKER = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
authorization { user: hub, password: "PASSWORD" }
"""
SPARK = """
spark.authenticate true
spark.authenticate.secret SECRET
spark.network.crypto.enabled true
spark.driver.host 127.0.0.1
spark.ui.enabled false
spark.executor.memory 768m
spark.deploy.recoveryMode FILESYSTEM
spark.deploy.recoveryDirectory FOLDER
spark.driver.defaultJavaOptions -XX:SharedArchiveFile=CLASSES
spark.executor.defaultJavaOptions -XX:SharedArchiveFile=CLASSES
"""
TABLES = """
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
"""
#: Spark's own start: a session, and a task on every executor, which the barrier makes run at once.
START = """
import json, sys
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

def started(_):
    import eyot_hub
    BarrierTaskContext.get().barrier()
    return [(sys.executable, eyot_hub.__file__)]

context = SparkSession.builder.appName("start").getOrCreate().sparkContext
tasks = context.parallelize(range(WORKERS), WORKERS).barrier()
print(json.dumps({"found": tasks.mapPartitions(started).collect()}), flush=True)
"""


class Environments:
    """The driver's virtual environment with the wheel, and the archives for the executors; made unless `folder` has them."""

    def __init__(self, folder: Path) -> None:
        self.driver, self.archive, self.unpacked = folder / "driver", folder / "environment.tar.gz", folder / "unpacked"
        if not self.archive.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._make(folder)
        (self.package,) = self.driver.glob("lib/python*/site-packages/eyot_hub")
        if not self.unpacked.exists():
            self.unpacked.mkdir()
            run("tar", "xzf", str(self.archive), "-C", str(self.unpacked))
        self.spark = self.package.with_name("pyspark")
        self.classes = folder / "classes.jsa"
        if not self.classes.exists():
            python = self.driver / "bin" / "python"
            run("env", f"PYSPARK_PYTHON={python}", f"SPARK_HOME={self.spark}", str(SHARE_CLASSES), str(self.classes))

    def _make(self, folder: Path) -> None:
        # A wheel holds what is committed, and nothing may come from the working tree.
        run("git", "clone", "-q", str(TOP), str(folder / "source"))
        run("python3", "-m", "venv", str(self.driver))
        pip = [str(self.driver / "bin" / "python"), "-m", "pip", "-q"]
        run(*pip, "wheel", "--no-deps", "-w", str(folder / "dist"), str(folder / "source"))
        (wheel,) = (folder / "dist").glob("eyot-*.whl")
        run(*pip, "install", f"{wheel}[hub,iceberg]")
        run(str(folder / "source" / "packaging" / "pack-hub"), str(wheel), str(self.archive))
        run("rm", "-rf", str(folder / "source"))


def run(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(command, check=True, env=environment)


@dataclass
class Trial:
    """One lake, and the jobs that fill it.

    `storage`: delta-rs's options, for a lake on object storage. `packed`: executors fetch the archive; otherwise it lies unpacked.
    """

    folder: Path
    environments: Environments
    cluster: SparkCluster
    url: str
    password: Path
    root: str
    storage: dict[str, str] = field(default_factory=dict)
    per_commit: int = 1_000_000
    packed: bool = False
    table_format: str = "delta"
    submitted: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        # Spark plans streaming queries in the driver, with the executors' Python.
        (self.folder / "environment").symlink_to(self.environments.driver)
        self.checkpoint = self.folder / "checkpoints" / "devices-checkpoint"
        self._toml = self.folder / "hub.toml"
        lines = ["[nats]", f'servers = "{self.url}"', 'user = "hub"']
        lines += [f"password = {{ file = {json.dumps(str(self.password))} }}"]
        lines += [
            "[lake]",
            f'path = "{self.root}"',
            f'checkpoints = "{self.folder}/checkpoints"',
            f'format = "{self.table_format}"',
        ]
        if self.table_format == "iceberg":
            lines += ["[lake.catalog]", f'uri = "sqlite:///{self.folder}/catalog.db"']
        lines.append("[lake.storage_options]")
        for name, value in self.storage.items():
            (self.folder / name).write_text(f"{value}\n")
            lines.append(f"{name} = {{ file = {json.dumps(str(self.folder / name))} }}")
        lines += ["[bronze]", f'streams = ["{STREAM}"]', f"partitions = {WORKERS}"]
        lines += [f"max_messages_per_commit = {self.per_commit}"]
        self._toml.write_text("\n".join(lines) + TABLES)

    def submit(self, program: Path, *arguments: str) -> Submission:
        """Start a program on the cluster, with the packed environment on its executors."""
        self.submitted += 1
        log = self.folder / f"{self.submitted:02}-{arguments[0] if arguments else program.stem}.log"
        python = "./environment/bin/python" if self.packed else str(self.environments.unpacked / "bin" / "python")
        settings = {
            "spark.pyspark.python": python,
            "spark.pyspark.driver.python": str(self.environments.driver / "bin" / "python"),
        }
        more = ["--archives", f"{self.environments.archive}#environment"] if self.packed else []
        return Submission(self.cluster.submit(program, arguments, settings, more, self.folder, log), log)

    def job(self, command: str, *options: str) -> Submission:
        """Start a job of the hub. `options`: instead of those with which a job ends when all is done."""
        ending = options or {"gaps": ("--check",), "fleet": (), "backfill": ()}.get(command, ("--once",))
        return self.submit(self.environments.package / "main.py", command, "-c", str(self._toml), "--json", *ending)

    def start(self) -> Submission:
        """Start the program that does nothing but start."""
        program = self.folder / "start.py"
        program.write_text(START.replace("WORKERS", str(WORKERS)))
        return self.submit(program)

    def version(self, *table: str) -> int:
        """The version of a table; -1: there is none."""
        if self.table_format == "iceberg":
            try:
                return int(self._iceberg(*table).metadata.last_sequence_number)
            except NoSuchTableError:
                return -1
        root = "/".join([self.root, *table])
        if not DeltaTable.is_deltatable(root, storage_options=self.storage or None):
            return -1
        return int(DeltaTable(root, storage_options=self.storage or None).version())

    def _iceberg(self, *table: str) -> Any:
        names = {"ENDPOINT_URL": "endpoint", "ACCESS_KEY_ID": "access-key-id", "SECRET_ACCESS_KEY": "secret-access-key"}
        storage = {f"s3.{name}": self.storage[f"AWS_{ours}"] for ours, name in names.items() if self.storage}
        catalog = load_catalog("eyot", type="sql", uri=f"sqlite:///{self.folder}/catalog.db", **storage)
        return catalog.load_table(f"eyot.{'_'.join(table)}")

    def data_files(self, *table: str) -> int:
        """How many data files a table's folder holds, committed or not."""
        files, root = filesystem(Place("/".join([self.root, *table]), tuple(self.storage.items())))
        found = files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return sum(file.path.endswith(".parquet") and "_delta_log" not in file.path for file in found)

    def rows(self, *table: str) -> list[dict[str, Any]]:
        """All rows of a table, as any reader of the format finds them."""
        if self.table_format == "iceberg":
            found: list[dict[str, Any]] = self._iceberg(*table).scan().to_arrow().to_pylist()
            return found
        delta = DeltaTable("/".join([self.root, *table]), storage_options=self.storage or None)
        rows: list[dict[str, Any]] = delta.to_pyarrow_table().to_pylist()
        return rows

    def check(self, readings: list[Reading]) -> None:
        """Every reading is in every table, once."""
        payloads = Counter((row["subject"], bytes(row["payload"])) for row in self.rows("bronze"))
        assert payloads == Counter((subject, payload) for subject, payload, *_ in map(message, readings))
        silver = Counter(
            (row["device"], _ms(row["event_time"]), row["value"]) for row in self.rows("silver", "readings")
        )
        assert silver == Counter(readings)
        assert not self.rows("quarantine")
        names = ("count", "min", "max", "mean", "p50")
        gold = {
            (row["device"], _ms(row["window_start"])): tuple(row[name] for name in names)
            for row in self.rows("gold", "minute")
        }
        assert gold == truth(readings)
        assert len(self.rows("gold", "minute")) == len(gold)
        for table in ("fleet", "devices"):
            found = [(row["device"], row["readings"]) for row in self.rows(table)]
            assert sorted(found) == sorted(Counter(device for device, _, _ in readings).items()), table
        assert not self.rows("gaps")


@dataclass
class Submission:
    """A program on the cluster."""

    process: JobProcess
    log: Path
    begun: float = field(default_factory=time.monotonic)

    def done(self) -> float:
        """Wait for the end, which must be a success; return the seconds since the submission."""
        status = self.process.wait()
        assert status == 0, f"{self.log.name}: status {status}\n{self.process.log()}"
        return time.monotonic() - self.begun

    def text(self) -> str:
        """All that the program and Spark in it said."""
        return self.log.read_text(errors="replace")

    def values(self) -> list[dict[str, Any]]:
        """The results that the program printed."""
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]

    def task(self) -> tuple[str, str] | None:
        """Return the application and the executor of the first task, once there is one."""
        found = re.search(r"app ID (app-\S+).*?Starting task [^\n]*?executor (\d+)", self.text(), re.DOTALL)
        return None if found is None else (found[1], found[2])

    def first_task(self) -> tuple[str, str]:
        """Wait for the first task; return the application, and the executor that has it."""
        self.until(lambda: self.task() is not None)
        found = self.task()
        assert found is not None
        return found

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for an event, while the program runs."""
        deadline = time.monotonic() + WAIT_S_MAX
        while not happened():
            assert self.process.running, f"{self.log.name}: ended too early\n{self.process.log()}"
            assert time.monotonic() < deadline, f"{self.log.name}: {self.process.log()}"
            time.sleep(POLL_S)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def readings_of_days() -> list[Reading]:
    """Readings of all devices, of several days."""
    each = ROWS // DEVICES
    return [reading for n in range(DEVICES) for reading in series(f"d{n}", NEW_YEAR_MS + n % 4 * DAY_MS, each)]


def measure(lakes: list[Trial], readings: list[Reading]) -> None:
    """Run every job undisturbed for each lake, and print what it takes beyond a program that only starts."""
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def timed(name: str, started: Callable[[], Submission]) -> Submission:
        before = _cpu_s()
        submission = started()
        seconds = submission.done()
        taken[name].append((seconds, _cpu_s() - before))
        print(f"  {name}: {seconds:.1f} s", flush=True)
        return submission

    for lake in lakes:
        check_start(timed("start", lake.start), lake.environments.unpacked)
        for job in JOBS:
            values = timed(job, partial(lake.job, job)).values()
            if job == "ingest":
                print(
                    f"    of these in the round itself: {sum(value['seconds'] for value in values):.1f} s", flush=True
                )
        lake.check(readings)
    started = [statistics.median(column) for column in zip(*taken["start"], strict=True)]
    print(
        f"| job | beyond Spark's start ({started[0]:.1f} s, CPU of the driver {started[1]:.1f} s) | CPU of the driver beyond it |"
    )
    for job in JOBS:
        seconds, cpu_s = (statistics.median(column) for column in zip(*taken[job], strict=True))
        print(f"| {job} | {seconds - started[0]:+.1f} s | {cpu_s - started[1]:+.1f} s |", flush=True)


def measure_rounds(given: Setting) -> None:
    """Print what rounds of ingest take in one process: the first one starts the workers of all executors, the others find them."""
    lake = given.trial("rounds", f"{given.folder}/lake-rounds")
    ingest = lake.job("ingest", "--log-level", "warning")
    for number in range(1, ROUNDS + 1):
        if number > 1:
            assert given.publish() == ROWS
        ingest.until(partial(_has_rows, ingest, number * ROWS))
    ingest.process.kill()
    # A poll may have come while the readings were being published: these rounds belong together.
    seconds = [value["seconds"] for value in ingest.values()]
    rows = [value["rows"] for value in ingest.values()]
    told = ", ".join(f"{taken:.2f} s ({count:,} rows)" for taken, count in zip(seconds, rows, strict=True))
    print(f"rounds of ingest in one process: {told}", flush=True)


def _has_rows(ingest: Submission, wanted: int) -> bool:
    return sum(int(value["rows"]) for value in ingest.values()) == wanted


def check_start(submission: Submission, folder: Path) -> None:
    """Check that every executor took interpreter and packages from this folder."""
    found = submission.values()[0]["found"]
    assert len(found) == WORKERS
    for interpreter, package in found:
        assert Path(interpreter).is_relative_to(folder), interpreter
        assert Path(package).is_relative_to(folder), package


def _cpu_s() -> float:
    """CPU time of the submissions that ended: JVM and Python of the driver."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass
class Setting:
    """A broker with all readings, a cluster, and the readings. `hidden`: what nobody may show."""

    folder: Path
    environments: Environments
    cluster: SparkCluster
    server: NatsServer
    url: str
    readings: list[Reading]
    hidden: list[str]

    def publish(self) -> int:
        """Publish all readings once more; return how many were stored."""
        password = (self.folder / "password").read_text().strip()
        return Streams(self.server.client_port, "hub", password).publish(map(message, self.readings))

    def trial(self, name: str, root: str, **more: Any) -> Trial:
        return Trial(
            self.folder / name, self.environments, self.cluster, self.url, self.folder / "password", root, **more
        )

    def check_secrets(self) -> None:
        """No log and no command line shows a secret."""
        told = self.cluster.logs() + "".join(
            file.read_text(errors="replace") for file in self.folder.glob("*/**/*.log")
        )
        told += "".join(self.cluster.command_lines())
        assert not any(secret in told for secret in self.hidden)


@contextlib.contextmanager
def setting(environments: Path | None) -> Iterator[Setting]:
    """Make all that a trial needs; `environments`: a folder that keeps the environments."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        made = Environments(environments or folder / "environments")
        password, secret = secrets.token_hex(16), secrets.token_hex(16)
        conf = SPARK.replace("SECRET", secret).replace("FOLDER", str(folder / "cluster"))
        conf = conf.replace("CLASSES", str(made.classes))
        for file, text in (("password", f"{password}\n"), ("spark.conf", conf)):
            (folder / file).touch(mode=0o600)
            (folder / file).write_text(text)
        (folder / "cluster").mkdir()
        with (
            NatsServer(BROKER.replace("PASSWORD", password), folder / "server") as server,
            SparkCluster(made.spark, folder / "cluster", folder / "spark.conf", WORKERS) as cluster,
            jobs_killed(),
        ):
            streams, readings = Streams(server.client_port, "hub", password), readings_of_days()
            streams.create(STREAM, [f"{STREAM.lower()}.>"])
            made_here = Setting(folder, made, cluster, server, streams.url, readings, [password, secret])
            assert made_here.publish() == ROWS
            yield made_here
            made_here.check_secrets()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run the hub's jobs on a standalone cluster of Spark, and measure them."
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each job is measured; the first round is cold")
    parser.add_argument(
        "--environments", type=Path, help="keep the environments in this folder, and use them if they are there"
    )
    options = parser.parse_args()
    exit_at_sigterm()
    with setting(options.environments) as given:
        print(f"{WORKERS} workers, {ROWS} readings; on a folder, the environment unpacked before:", flush=True)
        measure([given.trial(f"round-{n}", f"{given.folder}/lake-{n}") for n in range(options.rounds)], given.readings)
        measure_rounds(given)
    print("every row is there, once")


if __name__ == "__main__":
    main()
