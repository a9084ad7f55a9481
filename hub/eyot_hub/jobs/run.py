"""The job `run`: ingest, aggregate, gaps, fleet, report and maintain at intervals in one process, and their lag."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Final, Generic, TypeVar

from pyspark.sql import SparkSession

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest, bronze_table, table_position
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, seconds
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.lake.lake import ExistingTables
from eyot_hub.jobs.maintenance.expiry import expired_rows
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.reports.quality import Quality, failed
from eyot_hub.jobs.reports.report import STATUSES, write_report
from eyot_hub.jobs.schedule import GaugeKey, Job, Result, Schedule
from eyot_hub.planning import Planner

log = logging.getLogger(__name__)

J = TypeVar("J")
STATES: Final = ("synced", "behind", "silent", "unknown")


class KeptJob(Generic[J]):
    """A job that keeps its open tables and connections between rounds, and is made anew after a round that failed."""

    def __init__(self, make: Callable[[], J], work: Callable[[J], Result], close: Callable[[J], None]) -> None:
        """`work`: one round."""
        self._make = make
        self._work = work
        self._close = close
        # All tables exist before the first round: two jobs that create one table would fail.
        self._job: J | None = make()

    def round(self) -> Result:
        if self._job is None:
            self._job = self._make()
        return self._work(self._job)

    def reset(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            self._close(job)


def ingest_round(job: Ingest) -> Result:
    done = job.round()
    return Result(done.rows, again=done.behind > 0, detail=asdict(done) if done.advanced else {})


def aggregate_round(job: Aggregate) -> Result:
    done = job.round()
    return Result(sum(one.added for one in done.silver), detail=asdict(done) if done.busy else {})


def fleet_round(job: Fleet) -> Result:
    rows = job.run()
    counts = dict.fromkeys(STATES, 0)
    for row in rows:
        state = row["state"] or "unknown"
        counts[state] = counts.get(state, 0) + 1
    gauges = {("devices", "state", state): float(count) for state, count in counts.items()}
    return Result(len(rows), detail={"devices": counts}, gauges=gauges)


def gaps_round(job: Gaps) -> Result:
    report = job.run()
    counts = {status: report.count(status) for status in STATUSES}
    answers = {"yes": len(report.known) - report.unheard, "no": report.unheard}
    gauges = {("gap_sequences", "status", status): float(count) for status, count in counts.items()}
    gauges |= {("origins", "answers", answer): float(count) for answer, count in answers.items()}
    return Result(detail={"sequences": counts, "unheard": report.unheard}, gauges=gauges)


class Lag:
    """How far the table is behind the streams. It is known while ingest fails, too."""

    def __init__(self, config: Config) -> None:
        self._table = bronze_table(config)
        self._planner = Planner(config.source())

    def round(self) -> Result:
        self._table.refresh()
        streams = self._planner.streams(must_exist=False)
        read = {name: table_position(self._table, info)[0] for name, info in streams.items()}
        gauges: dict[GaugeKey, float] = {}
        known = {name: at for name, at in read.items() if at is not None}
        for name, waiting in self._planner.waiting(streams, known).items():
            gauges["lag_messages", "stream", name] = waiting.messages
            if waiting.oldest_s is not None:  # not known, which is not zero
                gauges["oldest_seconds", "stream", name] = waiting.oldest_s
        return Result(gauges=gauges)

    def close(self) -> None:
        self._planner.close()


def run_jobs(spark: SparkSession, config: Config, stop: Callable[[], bool]) -> list[Job]:
    """Return the jobs that [run] names, in the order in which one needs the other's tables."""
    run = config.run
    ingest = KeptJob(partial(Ingest, spark, config), ingest_round, Ingest.close)
    lag = KeptJob(partial(Lag, config), Lag.round, Lag.close)
    aggregate = KeptJob(partial(Aggregate, spark, config), aggregate_round, _nothing)
    gaps = KeptJob(partial(Gaps, spark, config), gaps_round, _nothing)
    fleet = KeptJob(partial(Fleet, spark, config), fleet_round, _nothing)
    ruled = any(silver.quality for silver in config.silver)
    if ruled:
        Quality(config)

    def quality() -> Result:
        rows = {f"{row['silver']}/{row['name']}": row for row in Quality(config).run()}
        gauges = {("quality_violations", "rule", name): float(row["violations"]) for name, row in rows.items()}
        return Result(
            len(rows), detail={"failed": [name for name, row in rows.items() if failed([row])]}, gauges=gauges
        )

    def report() -> Result:
        write_report(spark, config, run.report_path, seconds(run.report))
        return Result(detail={"report": run.report_path})

    def maintain() -> Result:
        tables = ExistingTables(config.lake)
        done = [asdict(one) for one in Maintenance(config).round(stop, tables)]
        gone = {("expired_rows", "table", name): float(rows) for name, rows in expired_rows(config, tables).items()}
        return Result(detail={"tables": done}, gauges=gone)

    known = {
        "ingest": (run.ingest or config.bronze.poll, ingest.round, ingest.reset),
        "aggregate": (run.aggregate, aggregate.round, aggregate.reset),
        "gaps": (run.gaps, gaps.round, gaps.reset),
        "fleet": (run.fleet, fleet.round, fleet.reset),
        "quality": (run.quality if ruled else "0s", quality, _nothing),
        "report": (run.report if run.report_path else "0s", report, _nothing),
        "maintain": (run.maintain, maintain, _nothing),
        "lag": (run.lag, lag.round, lag.reset),
    }
    return [
        Job(name, seconds(every), _in_pool(spark, name, round_), reset)
        for name, (every, round_, reset) in known.items()
        if seconds(every) and (name != "aggregate" or config.silver)
    ]


def _nothing(*_: object) -> None:
    pass


def _in_pool(spark: SparkSession, name: str, work: Callable[[], Result]) -> Callable[[], Result]:
    """Give each job a pool of the scheduler, so that a long one leaves cores to the others."""

    def pooled() -> Result:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return work()

    return pooled


def usable(spark: SparkSession) -> bool:
    """Return whether the session can run anything: its JVM lives and its context has not been stopped."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # whatever a broken gateway raises
        return False


def finish(schedule: Schedule, spark: SparkSession, grace_s: float, abandon_s: float) -> list[str]:
    """Stop all jobs: rounds may end within `grace_s`, then they are cancelled. Return those that still run."""
    schedule.stop()
    left = schedule.join(grace_s)
    if left:
        log.warning("abandoning rounds: %s", ", ".join(left))
        if usable(spark):
            spark.sparkContext.cancelAllJobs()
        left = schedule.join(abandon_s)
    return left
