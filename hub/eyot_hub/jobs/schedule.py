"""Jobs at intervals, each in a thread of its own: a job that fails is repeated with back-off, and the others go on.

A stop lets every round that runs come to its end. A round that does not end in time is abandoned by `cancel`, which
makes it fail; the jobs commit a round as a whole or not at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
#: Failures in a row after which a job counts as failing.
FAILING: Final = 3

#: A gauge of the last round: its name, then its label and the label's value, or two empty texts.
GaugeKey = tuple[str, str, str]


@dataclass(frozen=True)
class Result:
    """What one round did. `again`: there is more to do, so the next round follows at once."""

    rows: int = 0
    again: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    gauges: Mapping[GaugeKey, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A job: `round` does one portion and raises what stops it, `reset` drops its connections after a failure."""

    name: str
    every_s: float
    round: Callable[[], Result]
    reset: Callable[[], None] = lambda: None


@dataclass
class State:
    """What a job has done since the start. Times are seconds of the epoch."""

    rounds: int = 0  # that succeeded
    failures: int = 0
    failed_in_a_row: int = 0
    rows: int = 0
    seconds: float = 0.0  # spent in rounds, failed ones included
    running: bool = False
    last_success: float | None = None
    error: str | None = None  # of the last round; None when it succeeded
    gauges: dict[GaugeKey, float] = field(default_factory=dict)


class Schedule:
    """Some jobs in threads; `start`, then `stop` and `join`."""

    def __init__(
        self,
        jobs: Iterable[Job],
        *,
        retry_max_s: float = 300.0,
        report: Callable[[str, Result], None] = lambda _job, _result: None,
        cause: Callable[[Exception], str] = str,
        usable: Callable[[], bool] = lambda: True,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`report` gets rounds that did something; `usable` says after a failure whether any job can still succeed.

        `stop` says whether a stop has come, which `stop()` may follow later.
        """
        self.jobs = list(jobs)
        self.stopped = threading.Event()
        self.broken = False  # what all jobs need is gone
        self._retry_max_s = retry_max_s
        self._report = report
        self._cause = cause
        self._usable = usable
        self._stop = stop
        self._lock = threading.Lock()
        self._states = {job.name: State() for job in self.jobs}
        self._threads = [
            threading.Thread(target=self._run, args=(job,), name=job.name, daemon=True) for job in self.jobs
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each job end after its present round."""
        self.stopped.set()

    def join(self, timeout_s: float) -> list[str]:
        """Wait until all jobs have ended; return the names of those that have not."""
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def once(self) -> bool:
        """Run the jobs one after the other in this thread, each until it has caught up; return whether all succeeded."""
        for job in self.jobs:
            while not self.stopped.is_set() and (result := self._round(job)) is not None and result.again:
                pass
        return not any(state.error for state in self.states().values())

    def states(self) -> dict[str, State]:
        """Return a copy of the jobs' states by name."""
        with self._lock:
            return {name: State(**vars(state)) for name, state in self._states.items()}

    def failing(self) -> list[str]:
        """Return the jobs that failed several times in a row."""
        return [name for name, state in self.states().items() if state.failed_in_a_row >= FAILING]

    def _run(self, job: Job) -> None:
        while not self.stopped.is_set():
            result = self._round(job)
            if result is None:
                wait_s = self.retry_s(job)
            else:
                wait_s = 0.0 if result.again else job.every_s
            self.stopped.wait(wait_s)

    def retry_s(self, job: Job) -> float:
        """Return how long to wait after a failure, in seconds: from RETRY_S on, twice as long each time."""
        failed = self.states()[job.name].failed_in_a_row
        return float(min(RETRY_S * 2.0 ** min(failed - 1, 30), self._retry_max_s))

    def _round(self, job: Job) -> Result | None:
        """Run one round and keep its figures; return None when it failed."""
        begun = time.monotonic()
        self._change(job, running=True)
        try:
            result = job.round()
        except Exception as error:
            self._failed(job, error, time.monotonic() - begun)
            return None
        with self._lock:
            state = self._states[job.name]
            state.rounds += 1
            state.rows += result.rows
            state.seconds += time.monotonic() - begun
            state.failed_in_a_row, state.error, state.running = 0, None, False
            state.last_success = time.time()
            state.gauges = dict(result.gauges)
        if result.detail:
            self._report(job.name, result)
        return result

    def _failed(self, job: Job, error: Exception, seconds: float) -> None:
        cause = self._cause(error) or type(error).__name__
        with self._lock:
            state = self._states[job.name]
            state.failures += 1
            state.failed_in_a_row += 1
            state.seconds += seconds
            state.error, state.running = cause, False
        if self.stopped.is_set() or self._stop():
            log.warning("%s: the round was abandoned: %s", job.name, cause, extra={"job": job.name})
            return
        log.error("%s failed: %s", job.name, cause, extra={"job": job.name, "error": cause})
        log.debug("%s failed", job.name, exc_info=error)
        try:
            job.reset()
        except Exception as again:  # of a connection that is gone
            log.info("%s: %s", job.name, again, extra={"job": job.name})
        if not self._usable():
            self.broken = True
            self.stop()

    def _change(self, job: Job, *, running: bool) -> None:
        with self._lock:
            self._states[job.name].running = running
