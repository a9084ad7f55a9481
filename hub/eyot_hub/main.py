"""`eyot-hub`: the jobs, one command each.

    eyot-hub ingest    -c hub.toml            bronze: every message of the streams into a Delta table, continuously
    eyot-hub aggregate -c hub.toml            silver and gold: typed rows, windows corrected when late data arrives
    eyot-hub gaps      -c hub.toml            which sequences of which origin are not in the table, and why
    eyot-hub fleet     -c hub.toml            devices: last seen, delays, backlog
    eyot-hub devices   -c hub.toml            the same continuously: a streaming query with state per device
    eyot-hub backfill  -c hub.toml [TABLE..]  rebuild silver and gold tables
    eyot-hub maintain  -c hub.toml            joins small files, removes old ones; without Spark
    eyot-hub explain   -c hub.toml TABLE DEVICE METRIC TIME   a window's messages at hub and origin; without Spark
    eyot-hub quality   -c hub.toml            the rules of data quality over silver; without Spark
    eyot-hub replay    -c hub.toml --table T  quarantined rows that the present rules take, into silver; without Spark
    eyot-hub erase     -c hub.toml --device D the rows of one device, out of every table
    eyot-hub report    -c hub.toml -o FILE    all of it as one HTML page
    eyot-hub run       -c hub.toml            the jobs that go on (not devices) at intervals in one process

`--once` ends ingest, aggregate, devices and run when they have caught up. The same commands run under spark-submit.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eyot_hub.causes import cause
from eyot_hub.command_checks import check_command
from eyot_hub.errors import HubError
from eyot_hub.job_texts import (
    aggregate_text,
    erased_text,
    explained_text,
    gaps_text,
    maintained_text,
    replayed_text,
    round_text,
)
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.bronze.parquet import ingest_parquet
from eyot_hub.jobs.config.config import Config, ConfigError, seconds
from eyot_hub.jobs.config.config_file import load
from eyot_hub.jobs.config.settings_check import by_keys
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.health import HealthServer
from eyot_hub.jobs.maintenance.erasure import Eraser
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.reports.explain import explain
from eyot_hub.jobs.reports.quality import Quality, failed
from eyot_hub.jobs.reports.report import write_report
from eyot_hub.jobs.run import finish, run_jobs, usable
from eyot_hub.jobs.schedule import Result, Schedule
from eyot_hub.jobs.silver.replay import Condition, Replay, condition
from eyot_hub.jobs.spark.session import session
from eyot_hub.json_log import JsonFormatter
from eyot_hub.show import OutputFailed, Show, plain, shown
from eyot_hub.stopping import stop_on_signal, wait
from eyot_wire.argument_parser import ArgumentParser
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.program import run_program, told
from eyot_wire.quoting import printable

log = logging.getLogger("eyot_hub")

#: How long cancelled rounds may take to end, in seconds.
ABANDON_S: Final = 20.0
WITHOUT_SPARK: Final = ("maintain", "explain", "quality", "replay")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    return run_program("eyot-hub", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=options.log_level.upper())
    if options.log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    # py4j raises what it logs as errors, with tracebacks; the rest is for those who debug Spark.
    logging.getLogger("py4j").setLevel(logging.WARNING if options.log_level == "debug" else logging.CRITICAL)
    show, config, spark = Show(as_json=options.json), None, None
    try:
        config = load(options.config)
        check_command(config, options)
        if options.command in WITHOUT_SPARK:
            return int(options.run(config, options, show))
        command: Callable[[SparkSession, Config, argparse.Namespace, Show], int] = options.run
        settings = config.spark_settings()
        if options.command == "run":
            settings.setdefault("spark.scheduler.mode", "FAIR")
        spark = session(f"eyot-hub {options.command}", settings)
        return command(spark, config, options, show)
    except ConfigError as error:
        print(f"eyot-hub: {printable(str(error))}", file=sys.stderr)
        return 2
    except OutputFailed as failed:
        raise failed.error from None
    except Exception as error:
        ended = spark is not None and not usable(spark)  # killed, for want of memory perhaps
        # DeltaError: of a storage that is away, too. Any other error is unexpected: the cause is the last line.
        if not ended and not isinstance(error, HubError | PySparkException | OSError | DeltaError):
            traceback.print_exc()
        print(f"eyot-hub: {'Spark ended: ' if ended else ''}{_cause(config, error)}", file=sys.stderr)
        return 1


def _cause(config: Config | None, error: Exception) -> str:
    """Return an error's cause in one line, with the keys of the configuration."""
    text = by_keys(cause(error))
    named = isinstance(error, OSError) and error.filename
    if config is not None and not named and os.strerror(errno.ENOSPC) in text and config.lake.path not in text:
        text += f"; lake.path is {config.lake.path}"  # neither Arrow nor delta-rs tells which disk is full
    return printable(text)


@contextmanager
def _until_stop(spark: SparkSession, config: Config) -> Iterator[Callable[[], bool]]:
    """Yield what tells whether a stop has come. A round that fails after that is abandoned, with its cause as a warning.

    Whoever sends the signal to all processes, as `timeout` does, ends Spark in mid-round. The round has no commit then.
    """
    stop = stop_on_signal()
    try:
        yield stop
    except OutputFailed:
        raise
    except Exception as error:
        if not stop():
            raise
        log.warning("the round was abandoned: %s", _cause(config, error) if usable(spark) else "Spark ended first")
        log.debug("the round was abandoned", exc_info=error)


def _ingest(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    if config.bronze.format == "parquet":
        with _until_stop(spark, config) as stop:
            ingest_parquet(spark, config, once=options.once, stop=stop, report=show.batch)
        return 0
    job = Ingest(spark, config)
    try:
        with _until_stop(spark, config) as stop:
            job.run(once=options.once, report=lambda done: show.value(asdict(done), round_text(done)), stop=stop)
    finally:
        job.close()
    return 0


def _aggregate(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    job = Aggregate(spark, config)
    with _until_stop(spark, config) as stop:
        while not stop():
            done = job.round()
            if done.busy or options.once:
                show.value(asdict(done), aggregate_text(done))
            if options.once:
                break
            if not done.busy:
                wait(options.every, stop)
    return 0


def _backfill(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    done = Aggregate(spark, config).rebuild(set(options.tables))
    show.value(asdict(done), aggregate_text(done))
    return 0


def _maintain(config: Config, options: argparse.Namespace, show: Show) -> int:
    job = Maintenance(
        config, compact=not options.no_compact, vacuum=not options.no_vacuum, retention=not options.no_retention
    )
    stop = stop_on_signal()
    while not stop():
        for done in job.round(stop):
            show.value(asdict(done), maintained_text(done))
        if options.once:
            break
        wait(options.every, stop)
    return 0


def _explain(config: Config, options: argparse.Namespace, show: Show) -> int:
    gold = next((one for one in config.gold if one.name == options.table), None)
    if gold is None:
        raise ConfigError(f"{options.config}: there is no gold table {options.table!r}")
    if gold.metrics and options.metric not in gold.metrics:
        raise ConfigError(f"{options.config}: {options.metric!r} is no metric of gold table {gold.name}")
    done = explain(config, gold, options.device, options.metric, options.time)
    window = {name: value for name, value in asdict(done).items() if name != "readings"}
    show.value({**window, "agrees": done.agrees}, explained_text(done))
    show.table(
        done.readings,
        [
            "event_time",
            "value",
            "origin_domain",
            "origin_stream",
            "origin_sequence",
            "subject",
            "stored_at",
            "stream",
            "sequence",
            "counted",
        ],
    )
    return 0 if done.agrees else 1


def _quality(config: Config, options: argparse.Namespace, show: Show) -> int:
    if not any(silver.quality for silver in config.silver):
        raise ConfigError(f"{options.config}: quality needs rules: [[silver.quality]]")
    rows = Quality(config).run()
    names = ["silver", "name", "status", "checked", "violations", "devices", "since", "examples"]
    show.table(rows, names)
    return 1 if failed(rows) else 0


def _replay(config: Config, options: argparse.Namespace, show: Show) -> int:
    silver = next((one for one in config.silver if one.name == options.table), None)
    if silver is None:
        raise ConfigError(f"{options.config}: there is no silver table {options.table!r}")
    done = Replay(config, silver, options.where).run(dry_run=options.dry_run, stop=stop_on_signal())
    show.value({**asdict(done), "dry_run": options.dry_run}, replayed_text(done, dry_run=options.dry_run))
    return 0


def _erase(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    eraser = Eraser(spark, config)
    results = eraser.resume() if options.resume else [eraser.erase(options.device, options.subject)]
    for done in results:
        show.value(asdict(done), erased_text(done))
    if not results and not show.as_json:
        show.lines(
            ["no erasure is unfinished; one that was killed before it was noted has done nothing: give it again"]
        )
    return 0


def _gaps(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    report = Gaps(spark, config).run()
    rows = [
        {
            "kind": gap.source.kind,
            "domain": gap.source.domain,
            "stream": gap.source.name,
            "epoch": gap.epoch,
            "first": gap.first,
            "last": gap.last,
            "count": gap.count,
            "status": gap.status,
        }
        for gap in report.gaps
    ]
    if rows or show.as_json:
        show.table(rows, ["kind", "domain", "stream", "epoch", "first", "last", "count", "status"])
    if not show.as_json:
        show.lines([shown(gaps_text(report))])
    return 1 if options.check and report.bad else 0


def _fleet(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    rows = Fleet(spark, config).run()
    show.table(
        rows,
        [
            "device",
            "readings",
            "last_event_at",
            "last_stored_at",
            "delay_s_p50",
            "delay_s_p95",
            "late_readings",
            "backlog",
            "state",
            "reported_backlog",
            "link_up_share",
        ],
    )
    return 0


def _devices(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    from eyot_hub.jobs.devices.devices import SCHEMA, Devices  # pandas, which the other jobs do not need

    job = Devices(spark, config)
    with _until_stop(spark, config) as stop:
        job.run(once=options.once, stop=stop, report=show.batch)
    if options.once:
        rows = sorted(job.table.to_pylist(), key=lambda row: str(row["device"]))
        show.table(rows, SCHEMA.names)
    return 0


def _report(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    Gaps(spark, config).run()
    Fleet(spark, config).run()
    if any(silver.quality for silver in config.silver):
        Quality(config).run()
    write_report(spark, config, options.output)
    show.value({"report": options.output}, f"written to {options.output}")
    return 0


def _run_all(spark: SparkSession, config: Config, options: argparse.Namespace, show: Show) -> int:
    """Exit status: 0 after a stop; 1 when Spark ended, when a round could not be stopped, or (--once) when a job failed."""
    stop, printing = stop_on_signal(), threading.Lock()

    def report(job: str, result: Result) -> None:
        value = {"job": job, "rows": result.rows, **result.detail}
        try:
            with printing:
                show.value(value, f"{job}: {json.dumps({'rows': result.rows, **result.detail}, default=plain)}")
        except OutputFailed as failed:  # it must not end the job's thread
            log.warning("%s: the result cannot be printed: %s", job, told(failed.error), extra={"job": job})

    schedule = Schedule(
        run_jobs(spark, config, stop),
        retry_max_s=seconds(config.run.retry_max),
        report=report,
        cause=partial(_cause, config),
        usable=lambda: usable(spark),
        stop=stop,
    )
    address = config.run.address
    page = Path(config.run.report_path) if config.run.report_path else None
    health = _endpoint(schedule, address, page) if address and not options.once else None
    if address and health is not None:
        log.info("health and metrics on %s:%d", address[0], health.port, extra={"port": health.port})
    try:
        if options.once:
            threading.Thread(target=lambda: _stop_with(stop, schedule), daemon=True).start()
            return 0 if schedule.once() else 1
        schedule.start()
        while not stop() and not schedule.stopped.wait(0.2):
            pass
        left = finish(schedule, spark, seconds(config.run.stop_after), ABANDON_S)
        return 1 if left or schedule.broken else 0
    finally:
        if health is not None:
            health.close()


def _endpoint(schedule: Schedule, address: tuple[str, int], page: Path | None) -> HealthServer:
    try:
        return HealthServer(schedule, *address, page)
    except OSError as error:
        raise HubError(f"run.listen: {address[0]}:{address[1]}: {error.strerror or error}") from None


def _stop_with(stop: Callable[[], bool], schedule: Schedule) -> None:
    wait(math.inf, stop)
    schedule.stop()


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="eyot-hub",
        description="The hub's jobs: streams into tables. The same commands run under spark-submit.",
        epilog="Exit status: 0; 1 for an error (gaps --check: something is missing, lost or moved back; explain: silver and gold disagree; "
        "quality: a rule of severity error fails); "
        "2 for a mistake in the configuration.",
    )
    parser.add_argument("--version", action="version", version=f"eyot-hub {metadata.version('eyot')}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands", prog="eyot-hub"
    )

    def command(name: str, run: Callable[..., int], what: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        sub.set_defaults(run=run)
        sub.add_argument("-c", "--config", required=True, help="the configuration file (TOML)")
        sub.add_argument("--json", action="store_true", help="one JSON object a line instead of text")
        sub.add_argument(
            "--log-level", default="warning", choices=("debug", "info", "warning", "error"), help="default: warning"
        )
        sub.add_argument("--log-format", default="text", choices=("text", "json"), help="default: text")
        return sub

    _add_filling(command)
    _add_keeping(command)
    report = command("report", _report, "gaps and fleet, and all of it as one HTML page")
    report.add_argument(
        "-o",
        "--output",
        default="eyot-hub.html",
        metavar="FILE",
        help="where to write the page (default: eyot-hub.html)",
    )
    run = command("run", _run_all, "all jobs but devices at the intervals of [run] in one process")
    run.add_argument("--once", action="store_true", help="run each job once, one after the other, and end")
    return parser


def _add_filling(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands that fill tables, or tell what they lack."""
    ingest = command("ingest", _ingest, "bronze: every message of the streams into a Delta table, for ever")
    ingest.add_argument("--once", action="store_true", help="end when the table has caught up")
    aggregate = command(
        "aggregate", _aggregate, "silver and gold: typed rows, windows corrected when late data arrives"
    )
    aggregate.add_argument("--once", action="store_true", help="end after one round")
    aggregate.add_argument(
        "--every", type=_time, default="5s", metavar="TIME", help="how long to wait when nothing was new (default: 5s)"
    )
    gaps = command("gaps", _gaps, "which sequences of which origin are not in the table, and why")
    gaps.add_argument("--check", action="store_true", help="exit 1 when something is missing, lost or moved back")
    command("fleet", _fleet, "devices: last seen, delays, backlog")
    devices = command("devices", _devices, "the same as it changes: a streaming query with state per device")
    devices.add_argument("--once", action="store_true", help="end when it has caught up")
    backfill = command("backfill", _backfill, "fill silver and gold tables anew")
    backfill.add_argument("tables", nargs="*", metavar="TABLE", help="silver and gold tables (default: all)")


def _add_keeping(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands that look after filled tables: upkeep, lineage, quality, repetition and erasure."""
    maintain = command(
        "maintain",
        _maintain,
        "remove expired rows, join small files of all tables, and remove files that no recent version needs",
    )
    maintain.add_argument("--once", action="store_true", help="end after one round")
    maintain.add_argument(
        "--every", type=_time, default="1h", metavar="TIME", help="how long to wait between rounds (default: 1h)"
    )
    maintain.add_argument("--no-compact", action="store_true", help="join no files")
    maintain.add_argument("--no-vacuum", action="store_true", help="remove no files")
    maintain.add_argument("--no-retention", action="store_true", help="remove no expired rows")
    lineage = command("explain", _explain, "the messages that a window of gold was computed from, at hub and origin")
    lineage.add_argument("table", metavar="TABLE", help="the gold table")
    lineage.add_argument("device", metavar="DEVICE")
    lineage.add_argument("metric", metavar="METRIC")
    lineage.add_argument(
        "time", type=_instant, metavar="TIME", help="any time within the window (2026-01-31T08:00:00Z)"
    )
    command("quality", _quality, "which rules of data quality the silver tables break, and where")
    replay = command("replay", _replay, "parse quarantined rows again, and move those that pass to silver")
    replay.add_argument("--table", required=True, metavar="TABLE", help="the silver table")
    replay.add_argument(
        "--where",
        action="append",
        default=[],
        type=_condition,
        metavar="COND",
        help="only these rows: reason=TEXT (* stands for any characters), also subject, stream, origin_domain and origin_stream; "
        "or date, sequence and origin_sequence with =, >=, <=; may be given several times, then all must hold",
    )
    replay.add_argument("--dry-run", action="store_true", help="count only")
    erase = command("erase", _erase, "remove the rows of one device from every table")
    which = erase.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--device", metavar="DEVICE", help="the device, as silver names it ('': messages whose device's name is empty)"
    )
    which.add_argument("--resume", action="store_true", help="finish erasures that were killed")
    erase.add_argument(
        "--subject",
        action="append",
        default=[],
        metavar="PATTERN",
        help="also these messages of bronze and quarantine, whatever they hold; may be given several times",
    )


def _time(text: str) -> float:
    """Parse a duration of the command line, in seconds."""
    try:
        found = seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration (1s, 10m, 24h)") from None
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not longer than 0s")
    return found


def _instant(text: str) -> int:
    """Parse a time of the command line, in ns since 1970."""
    try:
        return rfc3339_to_ns(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time (2026-01-31T08:00:00Z)") from None


def _condition(text: str) -> Condition:
    """Parse a condition of the command line on rows of the quarantine."""
    try:
        return condition(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
