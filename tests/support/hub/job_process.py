"""A job of the hub as a process of its own (driver, JVM, Python workers), and SIGKILL for all of it or for one worker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil


def is_worker(process: psutil.Process) -> bool:
    """Whether this is a Python worker of Spark: a fork of a daemon, which is a child of a JVM; both name the worker's module."""
    return "pyspark.worker" in process.cmdline() and "java" not in process.parent().name()


#: The jobs that nobody has waited for yet.
_started: set[JobProcess] = set()


@contextlib.contextmanager
def jobs_killed() -> Iterator[None]:
    """Kill at the end, whatever ends it, the jobs that still run: in a session of their own, no signal for this process reaches them."""
    try:
        yield
    finally:
        for job in list(_started):
            job.kill()


class JobProcess:
    """`python ARGUMENTS` (or another program, in its environment and folder) in a process group of its own; what it says is appended to `log`."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        program: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*program, *arguments], stdout=file, stderr=file, start_new_session=True, env=environment, cwd=folder
            )
        _started.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        status = self._process.wait()
        _started.discard(self)
        return status

    def log(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-4000:]

    def terminate(self) -> None:
        """SIGTERM for the driver alone, as systemd sends it with KillMode=mixed."""
        self._process.terminate()

    def kill(self) -> None:
        """Driver and JVM (and executors, which are the JVM's children) at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()

    def kill_worker(self, choice: random.Random) -> bool:
        """One Python worker; False when there is none."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
                    if is_worker(process):
                        found.append(process)
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            choice.choice(found).kill()
            return True
        return False
