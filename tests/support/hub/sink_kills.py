"""The batch sink killed at random, tasks running twice at once: each row becomes one message.

    python tests/support/hub/sink_kills.py --kills 20 --seed 7 [--speculation]

A life writes batch after batch with `df.write.format("jetstream")` and notes in a file which ones are done; driver or worker are
killed with SIGKILL at random, and the next life writes the batch that was not noted again, as a scheduler would. With
`--speculation` there are two executors, and Spark starts each batch's slow task a second time while the first one goes on publishing.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import pyarrow as pa

from support.hub.job_process import JobProcess, jobs_killed
from support.hub.streams import Streams
from support.servers.nats_server import NatsServer
from support.termination import exit_at_sigterm

CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
ROWS = 20_000  # a batch
TASKS = 4
BATCH_ROWS = 500  # of Arrow: the slow task sleeps between them
SPECULATION = {
    "spark.master": "local-cluster[2,2,768]",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
WAIT_S_MAX = 300.0


@dataclass
class Trial:
    """One stream, and what is done to the jobs that write into it."""

    url: str
    folder: Path
    seed: int
    speculation: bool = False
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._streams = Streams(int(self.url.rpartition(":")[2]))
        self._streams.create("OUT", ["out"], duplicate_window=3_600_000_000_000)

    @jobs_killed()
    def run(self, kills: int, report: bool = False, seconds: float = 1e9) -> None:
        """Kill so often, but not for longer than `seconds`; then let one more batch end, and check."""
        plan = [self._random.choice(("driver", "worker")) for _ in range(kills)]
        until, job = time.monotonic() + seconds, None
        while plan and time.monotonic() < until:
            job = job if job is not None and job.running else self._live()
            self._await_publishing(job)
            time.sleep(self._random.uniform(0, 1.0))
            if plan[0] == "driver":
                job.kill()
            elif not job.kill_worker(self._random):
                continue
            self.killed[plan.pop(0)] += 1
            if report:
                print(f"{sum(self.killed.values())} killed, {self._messages():,} messages", flush=True)
        job = job if job is not None and job.running else self._live()
        done = self._done()
        while self._done() < done + 1:
            assert job.running, job.log()
            time.sleep(0.02)
        (self.folder / "end").touch()
        assert job.wait() == 0, job.log()
        self.check()

    def check(self) -> None:
        """Each number of all batches that are done is there once, and nothing else."""
        expected = self._done() * ROWS
        assert self._messages() == expected, f"{self._messages()} messages for {expected} rows"
        numbers = sorted(self._numbers())
        assert numbers == list(range(expected))

    def summary(self) -> str:
        again = len({path.name.rpartition("-")[0] for path in self.folder.glob("attempt-*-[1-9]*")})
        kills = ", ".join(f"{what} {count}" for what, count in sorted(self.killed.items()))
        return f"{self._done()} batches, {self._messages():,} messages, each once; killed: {kills}; tasks run again: {again}"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _numbers(self) -> Iterator[int]:
        from eyot_hub.options import source_options
        from eyot_hub.planning import Planner
        from eyot_hub.range_reader import RangeReader, StreamRange

        options = source_options({"servers": self.url, "stream": "OUT"})
        planner = Planner(options)
        info = planner.streams()["OUT"]
        span = StreamRange("OUT", info.created, 1, info.state.last_seq)
        for batch in RangeReader(options.read, span, planner.labels(info)).batches():
            yield from map(int, batch.column("payload").to_pylist())
        planner.close()

    def _messages(self) -> int:
        return int(self._streams.state("OUT")["messages"])

    def _done(self) -> int:
        noted = self.folder / "done"
        return int(noted.read_text()) if noted.exists() else 0

    def _live(self) -> JobProcess:
        arguments = [__file__, "--live", self.url, str(self.folder), str(int(self.speculation))]
        return JobProcess(arguments, self.folder / "job.log")

    def _await_publishing(self, job: JobProcess) -> None:
        before, deadline = self._messages(), time.monotonic() + WAIT_S_MAX
        while self._messages() == before:
            assert job.running, job.log()
            assert time.monotonic() < deadline, job.log()
            time.sleep(0.01)


def live(url: str, folder: Path, speculation: bool) -> None:
    """Write batches until the file `end` is there."""
    from pyspark import TaskContext
    from pyspark.sql import functions as F

    from eyot_hub.jobs.spark.session import register_source, session

    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # of executors, too
    settings = SPECULATION if speculation else {"spark.master": "local[2,4]"}
    fixed = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS), "spark.ui.enabled": "false"}
    spark = session("sink kills", {**settings, **fixed, "spark.driver.host": "127.0.0.1"})
    register_source(spark)
    noted = folder / "done"
    marks = str(folder)
    while not (folder / "end").exists():
        batch = int(noted.read_text()) if noted.exists() else 0

        def slowed(rows: Iterator[pa.RecordBatch], batch: int = batch) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            part, attempt = context.partitionId(), context.attemptNumber()
            with open(f"{marks}/attempt-{batch}-{part}-{attempt}", "w"):
                pass
            for one in rows:
                if speculation and part == 0 and attempt == 0:
                    time.sleep(0.3)
                yield one

        rows = spark.range(batch * ROWS, (batch + 1) * ROWS, numPartitions=TASKS)
        text = rows.select(F.col("id").cast("string").alias("payload")).mapInArrow(slowed, "payload string")
        text.write.format("jetstream").options(servers=url, subject="out", job=f"batch {batch}").mode("append").save()
        part = noted.with_suffix(".part")
        part.write_text(str(batch + 1))
        part.rename(noted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the batch sink at random and count the messages.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9, help="kill nothing later")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--speculation", action="store_true")
    options = parser.parse_args()
    exit_at_sigterm()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, NatsServer(CONFIG, Path(folder) / "server") as server:
        url = f"nats://127.0.0.1:{server.client_port}"
        trial = Trial(url, Path(folder), options.seed, options.speculation)
        print(f"seed {options.seed}", flush=True)
        trial.run(options.kills, report=True, seconds=options.seconds)
        print(trial.summary())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        live(sys.argv[2], Path(sys.argv[3]), sys.argv[4] == "1")
    else:
        main()
