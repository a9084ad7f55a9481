"""The job `run`: ingest, aggregate, gaps, fleet, report and maintain at intervals in one process, and their lag."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

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

STATES: Final = ("synced", "behind", "silent", "unknown")


class IngestRounds:
    """Rounds of ingest; a failure drops the connection."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._job: Ingest | None = None

    def round(self) -> Result:
        if self._job is None:
            self._job = Ingest(self._spark, self._config)
        done = self._job.round()
        return Result(done.rows, again=done.behind > 0, detail=asdict(done) if done.advanced else {})

    def reset(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close()


class AggregateRounds:
    """Rounds of aggregate; a failure opens the tables again."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._job: Aggregate | None = Aggregate(spark, config)

    def round(self) -> Result:
        if self._job is None:
            self._job = Aggregate(self._spark, self._config)
        done = self._job.round()
        return Result(sum(one.added for one in done.silver), detail=asdict(done) if done.busy else {})

    def reset(self) -> None:
        self._job = None


class FleetRounds:
    """The job fleet, with its sums of devices."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._job: Fleet | None = Fleet(spark, config)

    def round(self) -> Result:
        if self._job is None:
            self._job = Fleet(self._spark, self._config)
        rows = self._job.run()
        counts = dict.fromkeys(STATES, 0)
        for row in rows:
            state = row["state"] or "unknown"
            counts[state] = counts.get(state, 0) + 1
        gauges = {("devices", "state", state): float(count) for state, count in counts.items()}
        return Result(len(rows), detail={"devices": counts}, gauges=gauges)

    def reset(self) -> None:
        self._job = None


class GapsRounds:
    """The job gaps, with its tables open: to open one reads all of its log since the last checkpoint."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._job: Gaps | None = Gaps(spark, config)

    def round(self) -> Result:
        if self._job is None:
            self._job = Gaps(self._spark, self._config)
        report = self._job.run()
        counts = {status: report.count(status) for status in STATUSES}
        gauges = {("gap_sequences", "status", status): float(count) for status, count in counts.items()}
        return Result(detail={"sequences": counts}, gauges=gauges)

    def reset(self) -> None:
        self._job = None


class LagRounds:
    """How far the table is behind the streams. It works while ingest fails, too."""

    def __init__(self, config: Config) -> None:
        self._table = bronze_table(config)
        self._config = config
        self._planner: Planner | None = None

    def round(self) -> Result:
        if self._planner is None:
            self._planner = Planner(self._config.source())
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

    def reset(self) -> None:
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()


def run_jobs(spark: SparkSession, config: Config, stop: Callable[[], bool]) -> list[Job]:
    """Return the jobs that [run] names, in the order in which one needs the other's tables."""
    run, ingest, lag = config.run, IngestRounds(spark, config), LagRounds(config)
    aggregate = AggregateRounds(spark, config)
    # All tables exist before the first job starts: two jobs that create one table would fail.
    gaps = GapsRounds(spark, config)
    fleet = FleetRounds(spark, config)
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
        part = f"{run.report_path}.part"  # readers see the old page or the new one
        write_report(spark, config, part, seconds(run.report))
        os.replace(part, run.report_path)
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


def _nothing() -> None:
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
