"""Jobs of a lake, each in a process of its own that kills itself at a step of its writing.

The processes are forked from one that has loaded what the jobs need, and has done nothing: loading takes longer than a job.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.config.config import Retention
from eyot_hub.jobs.maintenance.erasure import Eraser
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.tables.files import FileWriter
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark

URL = "nats://127.0.0.1"
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
ENDS_WITHIN_S = 120
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, "eyot_hub.jobs.tables.delta_log", "eyot_hub.jobs.tables.iceberg_log"])

Job = Callable[..., object]


def maintain(folder: Path) -> object:
    return list(Maintenance(jobs_config(URL, folder, vacuum_after="1h")).round())


def expire(folder: Path, ages: dict[str, str]) -> object:
    config = structs.replace(jobs_config(URL, folder), retention=Retention(**ages))
    return list(Maintenance(config, compact=False, vacuum=False, now=lambda: NOW).round())


def replay(folder: Path) -> object:
    config = jobs_config(URL, folder)
    return Replay(config, config.silver[0]).run()


def erase(folder: Path, device: str) -> object:
    return Eraser(LocalSpark(), jobs_config(URL, folder)).erase(device)


def end_at(owner: type, name: str, when: str, number: int = 1) -> None:
    """Let this process kill itself `when`, "before" or "after", it calls the method `name` of `owner` for the `number`-th time."""
    real, left = getattr(owner, name), [number]

    def step(*given: Any, **more: Any) -> Any:
        left[0] -= 1
        if not left[0] and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given, **more)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, step)


def _run(environment: dict[str, str], step: str, job: Job, folder: Path, arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    try:
        owner, name, when, number = step.split()
        log = type(bronze_table(jobs_config(URL, folder))._log)
        end_at({"FileWriter": FileWriter, "LakeTable": LakeTable, "Log": log}[owner], name, when, int(number))
        ended = repr(job(folder, *arguments))
    except Exception:
        ended = traceback.format_exc()
    (folder / "ended.txt").write_text(ended)


def killed(job: Job, step: str, folder: Path, *arguments: Any) -> None:
    """Run `job` on the lake in `folder`, in a process that is killed at `step`.

    "LakeTable commit before 2": before the second call of this method. "Log" is the log of the lake's format.
    """
    process = _FORKS.Process(target=_run, args=(dict(os.environ), step, job, folder, arguments))
    process.start()
    process.join(ENDS_WITHIN_S)
    told = folder / "ended.txt"
    assert process.exitcode == -signal.SIGKILL, told.read_text() if told.exists() else process.exitcode
