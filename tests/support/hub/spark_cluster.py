"""A standalone cluster of Spark on loopback: a master and workers as real processes, jobs by `spark-submit` in client mode.

A worker stands for a machine: `kill_worker` kills its daemon, its executors and their Python workers at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from support.hub.job_process import JobProcess
from support.servers.server_process import free_port

#: Generous: others may use the machine.
START_S_MAX = 180.0
POLL_S = 0.02
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
#: Set by whoever runs the tests, and not by an operator.
_FOREIGN = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@dataclass
class SparkCluster:
    """`home` is Spark's folder, `properties` the file that the daemons and every submission read."""

    home: Path
    folder: Path
    properties: Path
    workers: int = 3
    memory: str = "1g"
    url: str = ""
    _port: int = 0  # of the master
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _starts: int = 0

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._port = free_port()
        self.start_master()
        logs = [self._start_worker(number) for number in range(self.workers)]
        for number, log in enumerate(logs):
            self._said(f"worker-{number}", log, r"Successfully registered with master (\S+)")

    def stop(self) -> None:
        for daemon in reversed(self._daemons.values()):
            _kill_tree(daemon.pid)
            daemon.wait()
        self._daemons.clear()

    def start_master(self) -> None:
        """Start the master, after `kill_master` at the same address, and wait until it gives out executors."""
        log = self._daemon("master", [_MASTER, *self._address(self._port)])
        self.url = self._said("master", log, r"Starting Spark master at (spark://\S+)")
        self._said("master", log, r"New state: (ALIVE)|(Recovery complete)")

    def kill_master(self) -> None:
        daemon = self._daemons.pop("master")
        _kill_tree(daemon.pid)
        daemon.wait()

    def kill_worker(self, number: int) -> None:
        """Kill a worker with all that it started: the loss of a machine."""
        daemon = self._daemons.pop(f"worker-{number}")
        _kill_tree(daemon.pid)
        daemon.wait()

    def start_worker(self, number: int) -> None:
        """Start a worker anew after `kill_worker`, and wait until the master knows it."""
        self._said(f"worker-{number}", self._start_worker(number), r"Successfully registered with master (\S+)")

    def submit(
        self,
        program: Path,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        more: Sequence[str],
        folder: Path,
        log: Path,
    ) -> JobProcess:
        """Start `spark-submit` in client mode, in `folder`; `more`: its other options."""
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", "client"]
        command += ["--properties-file", str(self.properties)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return JobProcess([*more, str(program), *arguments], log, command, self._environment(), folder)

    def command_lines(self) -> list[str]:
        """The command lines of the daemons, and of what the workers started."""
        found = []
        for daemon in self._daemons.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(daemon.pid)
                for process in [root, *root.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        found.append(" ".join(process.cmdline()))
        return found

    def worker_of(self, application: str, executor: str) -> int:
        """The number of the worker that runs an executor."""
        for name, daemon in self._daemons.items():
            for process in psutil.Process(daemon.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    line = process.cmdline()
                    if application in line and line[line.index("--executor-id") + 1] == executor:
                        return int(name.removeprefix("worker-"))
        raise AssertionError(f"no worker runs executor {executor} of {application}")

    def logs(self) -> str:
        """All that daemons and executors said."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("worker-*/*/*/std*")]
        return "".join(file.read_text(errors="replace") for file in files)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _start_worker(self, number: int) -> Path:
        name = f"worker-{number}"
        limits = ["--cores", "1", "--memory", self.memory, "--work-dir", str(self.folder / name)]
        return self._daemon(name, [_WORKER, *self._address(), *limits, self.url])

    def _address(self, port: int = 0) -> list[str]:
        return [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
            "--properties-file",
            str(self.properties),
        ]

    def _daemon(self, name: str, arguments: Sequence[str]) -> Path:
        """Start a daemon of Spark; return its log, which begins with this start."""
        self._starts += 1
        log = self.folder / f"{self._starts:02}-{name}.log"
        with log.open("wb") as file:
            self._daemons[name] = subprocess.Popen(
                [str(self.home / "bin" / "spark-class"), *arguments],
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env=self._environment(),
            )
        return log

    def _said(self, name: str, log: Path, pattern: str) -> str:
        """Wait until a daemon's log matches; return the group."""
        deadline = time.monotonic() + START_S_MAX
        while True:
            text = log.read_text(errors="replace")
            found = re.search(pattern, text)
            if found:
                return found[1] or ""
            if self._daemons[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not say {pattern!r}:\n{text[-4000:]}")
            time.sleep(POLL_S)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        return {**kept, "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1"}


def _kill_tree(pid: int) -> None:
    """SIGKILL for a process and what it started, the process first, so that it starts nothing more."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        root.suspend()
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
