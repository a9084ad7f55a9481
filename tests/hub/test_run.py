"""`eyot-hub run`: all jobs in one process, ended by SIGTERM in mid-work; a job that fails leaves the others running."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import load
from eyot_hub.jobs.run import finish, run_jobs, usable
from eyot_hub.jobs.schedule import Job, Result, Schedule
from eyot_hub.jobs.silver.silver import silver_table
from support.hub.job_process import JobProcess
from support.hub.jobs_config import GOLD, SILVER, jobs_config
from support.hub.streams import Message, Streams
from support.hub.truth import NEW_YEAR_MS

WAIT_S = 180.0
COUNT = 1500


def readings(first: int) -> list[Message]:
    return [
        (
            "readings.d",
            json.dumps({"device": "d", "metric": "m", "at": NEW_YEAR_MS + number, "value": 1.0}).encode(),
        )
        for number in range(first, first + COUNT)
    ]


def toml(table: dict[str, Any], *path: str) -> str:
    """Sections of plain values and of inline tables, which is what these tests need."""
    lines = [f"[{'.'.join(path)}]"] + [f"{key} = {value(one)}" for key, one in table.items()]
    return "\n".join(lines) + "\n"


def value(one: Any) -> str:
    if isinstance(one, dict):
        return "{ " + ", ".join(f"{key} = {value(inner)}" for key, inner in one.items()) + " }"
    return json.dumps(one)


def written_config(url: str, folder: Path) -> Path:
    path = folder / "hub.toml"
    run = {
        "aggregate": "100ms",
        "report_path": str(folder / "page.html"),
        "lag": "100ms",
        "listen": "127.0.0.1:0",
    }
    path.write_text(
        toml({"servers": [url], "retryFor": "20s"}, "nats")
        + toml({"path": str(folder / "lake")}, "lake")
        + toml({"streams": ["READINGS"], "max_messages_per_commit": 500, "poll": "100ms"}, "bronze")
        + toml({'"spark.master"': "local[2,4]"}, "spark")
        + toml(run, "run")
        + toml(SILVER, "[silver]")
        + toml({"rule": "range", "column": "value", "max": 0}, "[silver.quality]")
        + toml(GOLD, "[gold]")
    )
    return path


class Running:
    """The process and what it has printed."""

    def __init__(self, config: Path, log: Path) -> None:
        self._log = log
        arguments = [
            "-m",
            "eyot_hub.main",
            "run",
            "-c",
            str(config),
            "--json",
            "--log-format",
            "json",
            "--log-level",
            "info",
        ]
        self.process = JobProcess(arguments, log)

    def lines(self) -> list[dict[str, Any]]:
        """All complete lines that are JSON; Java's own warnings are not."""
        text = self._log.read_text(errors="replace").rpartition("\n")[0]
        return [json.loads(line) for line in text.split("\n") if line.startswith("{")]

    def until(self, ready: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + WAIT_S
        while not (found := ready()):
            assert self.process.running, self.process.log()
            assert time.monotonic() < deadline, self.process.log()
            time.sleep(0.05)
        return found

    def rows(self, job: str) -> int:
        return sum(line["rows"] for line in self.lines() if line.get("job") == job and "rows" in line)


def metric(port: int, name: str) -> float | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
    return None


def check(spark: SparkSession, config: Config, count: int) -> None:
    rows = bronze_table(config).dataframe(spark, columns=["sequence"]).toArrow()
    assert sorted(rows["sequence"].to_pylist()) == list(range(1, count + 1))
    times = silver_table(config, config.silver[0]).dataframe(spark, columns=["event_time"]).distinct().count()
    assert times == count


def test_all_jobs_run_and_stop_in_mid_work(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(readings(0))
    path = written_config(streams.url, tmp_path)
    running = Running(path, tmp_path / "log")
    try:
        port = running.until(lambda: next((line["port"] for line in running.lines() if "port" in line), None))
        running.until(lambda: running.rows("ingest") == COUNT and running.rows("aggregate") == COUNT)
        seen = {"gaps", "fleet", "quality", "report", "maintain"}
        running.until(lambda: seen <= {line.get("job") for line in running.lines()})
        running.until(lambda: metric(port, 'eyot_hub_lag_messages{stream="READINGS"}') == 0.0)
        assert metric(port, 'eyot_hub_job_rows_total{job="ingest"}') == COUNT
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            assert json.load(answer)["status"] == "ok"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            assert b"made again every 10 min" in answer.read()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        streams.publish(readings(COUNT))
        running.until(lambda: running.rows("ingest") > COUNT)
        running.process.terminate()
        assert running.process.wait() == 0, running.process.log()
    finally:
        running.process.kill()
    assert "<html" in (tmp_path / "page.html").read_text()
    config = load(path)
    schedule = Schedule(run_jobs(spark, config, lambda: False))
    assert schedule.once(), schedule.states()
    check(spark, config, 2 * COUNT)
    assert schedule.states()["lag"].gauges["lag_messages", "stream", "READINGS"] == 0.0
    found = schedule.states()["gaps"].gauges
    assert found["gap_sequences", "status", "missing"] == found["origins", "answers", "no"] == 0.0
    violations = schedule.states()["quality"].gauges["quality_violations", "rule", "readings/range value"]
    assert violations == 2 * COUNT
    assert "1 of 1 rule of data quality fails" in (tmp_path / "page.html").read_text()


def test_a_round_that_does_not_end_is_cancelled(spark: SparkSession) -> None:
    def endless() -> Result:
        spark.sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(3600))
        return Result()

    schedule = Schedule([Job("endless", 1.0, endless)])
    schedule.start()
    deadline, tracker = time.monotonic() + WAIT_S, spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert finish(schedule, spark, 0.0, WAIT_S) == []
    state = schedule.states()["endless"]
    assert (state.rounds, state.failures, schedule.broken) == (0, 1, False)
    assert spark.range(3).count() == 3  # the session is whole
    assert usable(spark)


def test_ingest_fails_and_the_lag_is_known(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """A stream that lost messages ends ingest; aggregate and the others succeed, and lag says what waits."""
    streams.create("READINGS", ["readings.>"])
    streams.publish(readings(0))
    config = jobs_config(streams.url, tmp_path)
    assert Schedule(run_jobs(spark, config, lambda: False)).once()
    streams.publish(readings(COUNT))
    streams.purge("READINGS", COUNT + 11)
    schedule = Schedule(run_jobs(spark, config, lambda: False))
    assert not schedule.once()
    states = schedule.states()
    assert {name for name, state in states.items() if state.error} == {"ingest"}
    assert "READINGS" in (states["ingest"].error or "")
    assert states["lag"].gauges["lag_messages", "stream", "READINGS"] == COUNT - 10
    assert states["lag"].gauges["oldest_seconds", "stream", "READINGS"] > 0.0
    check(spark, config, COUNT)
