"""`make hub-cluster-kills`: the jobs on a standalone cluster of Spark, of which each part is killed in the middle.

The tables are on object storage, in Delta and in Iceberg. Executors fetch the packed environment once, and then find it unpacked.
`KILLS` says what is killed under which job: a worker with its executor, the driver, the master, the broker, the object storage. A job
whose driver was killed is submitted again; under all other kills the job goes on. At the end every row of every table must be there,
once, as plain Python finds it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

from support.hub.cluster import Setting, Submission, Trial, check_start, setting
from support.hub.lake_formats import FORMATS
from support.hub.object_storage import ObjectStorage
from support.links.cut_proxy import CutProxy
from support.servers.server_process import free_port
from support.termination import exit_at_sigterm

PER_COMMIT = 500
OUTAGE_S = 3.0
#: Of each request to the object storage, so that a job goes on for long enough to see all its kills.
DELAY_S = 0.2
MANY_COMMITS = ("ingest", "devices")  # they do so without it
#: What is killed under each job, in this order; the driver under a submission of its own. Jobs without the broker do not ask it.
KILLS = {
    "ingest": ("driver", "worker", "broker", "storage", "master"),
    "aggregate": ("driver", "storage", "worker", "master"),
    "gaps": ("driver", "broker", "worker"),
    "fleet": ("driver", "storage", "worker"),
    "devices": ("driver", "broker", "storage", "worker", "master"),
    "backfill": ("driver", "storage", "worker"),
    "erase": ("driver", "storage", "worker"),
}
ERASED = "d7"
#: Options of a job's first submission, and of the one after the driver's death.
OPTIONS = {"erase": (("--device", ERASED), ("--resume",))}
#: After these jobs every table is compared.
COMPARED = ("devices", "backfill", "erase")


@dataclass
class Kills:
    """The kills under the jobs of one lake."""

    given: Setting
    trial: Trial
    storage: CutProxy
    done: list[tuple[str, str]] = field(default_factory=list)

    def run(self) -> None:
        for job, kinds in KILLS.items():
            assert kinds[0] == "driver"
            self._slow_storage(0.0 if job in MANY_COMMITS else DELAY_S)
            options, again = OPTIONS.get(job, ((), ()))
            first = self.trial.job(job, *options)
            first.until(self._begun(job, first))
            first.process.kill()
            self._note(job, "driver")
            second = self.trial.job(job, *again)
            for kind in kinds[1:]:
                getattr(self, f"_kill_{kind}")(job, second)
                self._note(job, kind)
            second.done()
            if job in COMPARED:
                self._slow_storage(0.0)
                gone = ERASED if job == "erase" else None
                self.trial.check([reading for reading in self.given.readings if reading[0] != gone])

    def _slow_storage(self, delay_s: float) -> None:
        if self.storage.delay_s != delay_s:
            self.storage.cut()
            self.storage.delay_s = delay_s
            self.storage.start()

    def _begun(self, job: str, submission: Submission) -> Callable[[], bool]:
        """Return whether a job is in the middle of its work."""
        trial = self.trial
        if job == "ingest":
            return lambda: trial.version("bronze") >= 3
        if job == "devices":
            return lambda: (trial.checkpoint / "offsets" / "0").exists()
        if job == "erase":
            version = trial.version("bronze")
            return lambda: trial.version("bronze") > version
        table = {"aggregate": ("silver", "readings"), "backfill": ("silver", "readings")}.get(job)
        if table is None:
            return lambda: submission.task() is not None
        before = trial.data_files(*table)
        return lambda: trial.data_files(*table) > before

    def _note(self, job: str, kind: str) -> None:
        self.done.append((job, kind))
        print(f"  {job}: the {kind} killed", flush=True)

    def _running(self, job: str, submission: Submission) -> None:
        """Wait until the job works, after a kill again."""
        if job != "ingest":
            submission.first_task()
            return
        seen = self.trial.version("bronze")
        submission.until(lambda: self.trial.version("bronze") > max(seen, 1))

    def _kill_worker(self, job: str, submission: Submission) -> None:
        self._running(job, submission)
        self.given.check_secrets()
        number = self.given.cluster.worker_of(*submission.first_task())
        self.given.cluster.kill_worker(number)
        submission.until(lambda: "Lost executor" in submission.text())
        self.given.cluster.start_worker(number)

    def _kill_master(self, job: str, submission: Submission) -> None:
        self._running(job, submission)
        self.given.cluster.kill_master()
        if job == "ingest":  # it goes on without a master
            self._running(job, submission)
        self.given.cluster.start_master()

    def _kill_broker(self, job: str, submission: Submission) -> None:
        self._running(job, submission)
        self.given.server.kill()
        self.given.server.start()

    def _kill_storage(self, job: str, submission: Submission) -> None:
        self._running(job, submission)
        self.storage.cut()
        time.sleep(OUTAGE_S)
        assert submission.process.running
        self.storage.start()


def kills_of(given: Setting, table_format: str, *, first: bool) -> list[tuple[str, str]]:
    """Kill everything under the jobs of a lake of this format; return what was killed. `first`: check the packed environment, too."""
    with ObjectStorage("lake") as storage, CutProxy(free_port(), storage.port) as proxy:
        proxy.start()
        given.hidden.append(storage.options["AWS_SECRET_ACCESS_KEY"])
        through = {**storage.options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        trial = given.trial(
            f"killed-{table_format}",
            "s3://lake/hub",
            storage=through,
            per_commit=PER_COMMIT,
            packed=True,
            table_format=table_format,
        )
        if first:
            start = trial.start()
            print(f"start {start.done():.1f} s", flush=True)
            check_start(start, given.cluster.folder)
        trial.packed = False
        kills = Kills(given, trial, proxy)
        kills.run()
        return kills.done


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill parts of a standalone cluster of Spark under the hub's jobs.")
    parser.add_argument("--format", choices=FORMATS, action="append", help="of the tables (both)")
    parser.add_argument(
        "--environments", type=Path, help="keep the environments in this folder, and use them if they are there"
    )
    options = parser.parse_args()
    exit_at_sigterm()
    expected = [(job, kind) for job, kinds in KILLS.items() for kind in kinds]
    with setting(options.environments) as given:
        for number, table_format in enumerate(options.format or FORMATS):
            begun = time.monotonic()
            print(f"{table_format}:", flush=True)
            assert kills_of(given, table_format, first=number == 0) == expected
            print(
                f"{table_format}: {len(expected)} kills in {time.monotonic() - begun:.0f} s; every row is there, once"
            )


if __name__ == "__main__":
    main()
