"""The ingest job killed at random: driver or worker, with SIGKILL, in mid-batch; then what the table holds is counted.

    python tests/support/hub/ingest_kills.py --kills 20 --hub eyotd --packed

Each life of the job gets new messages to read in many small commits; some time after its first commit either the whole job
(driver, JVM and workers) or one worker is killed. A last life reads what is left. The payloads are numbers, so a row that is
missing or there twice is named.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import pyarrow.parquet as pq

from support.hub.job_process import JobProcess, jobs_killed
from support.hub.lake_formats import FORMATS, file_uris
from support.hub.streams import Streams
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess
from support.termination import exit_at_sigterm

STREAM = "READINGS"
CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
START_S_MAX = 180.0
POLL_S = 0.01


@dataclass
class Trial:
    """One table and what is done to the jobs that fill it. `server` gives it a chance to fail as well."""

    url: str
    folder: Path
    seed: int
    packed: bool = False
    table_format: str = "delta"
    messages: int = 20_000  # for each life
    per_commit: int = 500
    wait_s_max: float = 2.0  # from the first commit of a life to its end
    server: ServerProcess | None = None
    killed: list[str] = field(default_factory=list)
    published: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._streams = Streams(int(self.url.rpartition(":")[2]))
        self._streams.create(STREAM, ["readings.>"])
        self._log = self.folder / "lake" / "bronze" / "_delta_log"
        self._toml = self.folder / "hub.toml"
        self._toml.write_text(
            f'[nats]\nservers = "{self.url}"\n[lake]\npath = "{self.folder}/lake"\nformat = "{self.table_format}"\n'
            f'[bronze]\nstreams = ["{STREAM}"]\nmax_messages_per_commit = {self.per_commit}\npartitions = 2\n'
            f"compact_every = 25\nfetch_bytes = '64k'\npacked_reads = {str(self.packed).lower()}\n"
            '[spark]\n"spark.master" = "local[2,4]"\n"spark.ui.enabled" = false\n'
        )

    @jobs_killed()
    def run(self, plan: Sequence[str], report: bool = False) -> None:
        """Kill what `plan` says (driver, worker, server) one after the other, then let the job read everything that is left."""
        upcoming = list(plan)
        job = None
        while upcoming:
            if job is None:
                self.publish()
                job = self._start()
            self._await_commit(job)
            time.sleep(self._random.uniform(0, self.wait_s_max))
            if not job.running:  # it had read everything
                job = None
            elif self._kill(job, upcoming[0]):
                self.killed.append(upcoming.pop(0))
                if self.killed[-1] == "driver":
                    job = None
                if report:
                    print(f"{len(self.killed)} of {len(plan)}: {self.killed[-1]}; {self.rows():,} rows", flush=True)
        job = job or self._start()
        assert job.wait() == 0, job.log()

    def publish(self) -> None:
        first, self.published = self.published, self.published + self.messages
        self._streams.publish(
            (f"readings.{number % 7}", b"%d" % number + b" " * 150) for number in range(first, self.published)
        )

    def rows(self) -> int:
        """Rows of the table now."""
        return sum(pq.read_metadata(uri).num_rows for uri in file_uris(self.folder / "lake", "bronze"))

    def check(self) -> None:
        """Every message is in the table, once."""
        numbers: list[int] = []
        for uri in file_uris(self.folder / "lake", "bronze"):
            numbers += map(
                int, pq.read_table(uri, columns=["payload"], partitioning=None).column("payload").to_pylist()
            )
        counted = sorted(numbers)
        missing = sorted(set(range(self.published)) - set(counted))
        twice = len(counted) - len(set(counted))
        assert not missing, f"{len(missing)} are missing, the first is {missing[0]}"
        assert not twice, f"{twice} are there twice"
        assert len(counted) == self.published

    # -- inside --------------------------------------------------------------------------------------------------------

    def _start(self) -> JobProcess:
        return JobProcess(["-m", "eyot_hub.main", "ingest", "-c", str(self._toml), "--once"], self.folder / "job.log")

    def _commits(self) -> int:
        if self.table_format == "delta":
            return len(list(self._log.glob("*.json"))) if self._log.exists() else 0
        metadata = self.folder / "lake" / "bronze" / "metadata"
        return max((int(file.name.partition("-")[0]) for file in metadata.glob("*.metadata.json")), default=0)

    def _await_commit(self, job: JobProcess) -> None:
        before, deadline = self._commits(), time.monotonic() + START_S_MAX
        while self._commits() <= before and job.running:
            assert time.monotonic() < deadline, job.log()
            time.sleep(POLL_S)

    def _kill(self, job: JobProcess, what: str) -> bool:
        """Kill the whole job or a worker, or kill the server under it and start it; False when there is none."""
        if what == "driver":
            job.kill()
        elif what == "worker":
            return job.kill_worker(self._random)
        else:
            assert self.server is not None
            self.server.kill()
            self.server.start()
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the ingest job at random and count the rows.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--hub", choices=("eyotd", "nats-server"), default="eyotd")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the table")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--restarts", action="store_true", help="restart the server, too")
    options = parser.parse_args()
    exit_at_sigterm()
    kind = Eyotd if options.hub == "eyotd" else NatsServer
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, kind(CONFIG, Path(folder) / "server") as server:
        url = f"nats://127.0.0.1:{server.client_port}"
        trial = Trial(url, Path(folder), options.seed, options.packed, options.format, server=server)
        print(f"seed {options.seed}")
        kinds = ["driver", "worker", "server"] if options.restarts else ["driver", "worker"]
        trial.run(random.Random(options.seed).choices(kinds, k=options.kills), report=True)
        trial.check()
        print(f"{trial.published:,} messages, {trial.rows():,} rows, each once; killed: {', '.join(trial.killed)}")


if __name__ == "__main__":
    main()
