"""The scheduler of `eyot-hub run`, its endpoint and its log format."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_hub.jobs.config.config import ConfigError
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.health import CONNECTIONS_MAX, HealthServer, health, metrics
from eyot_hub.jobs.schedule import FAILING, Job, Result, Schedule
from eyot_hub.json_log import JsonFormatter

WAIT_S = 60.0


class Work:
    """A job whose rounds follow a script: a number of rows, or an error; then nothing new."""

    def __init__(self, *script: int | Exception) -> None:
        self._script: Iterator[int | Exception] = iter(script)
        self.rounds = 0
        self.resets = 0
        self.ended = threading.Event()

    def round(self) -> Result:
        self.rounds += 1
        now = next(self._script, None)
        if isinstance(now, Exception):
            raise now
        if now is None:
            self.ended.set()
            return Result()
        return Result(now, again=True, detail={"rows": now})

    def reset(self) -> None:
        self.resets += 1

    def job(self, name: str, every_s: float = 3600.0) -> Job:
        return Job(name, every_s, self.round, self.reset)


def test_a_failing_job_is_repeated_and_the_others_go_on() -> None:
    bad, good = Work(ValueError("no server"), ValueError("no server"), 3), Work(5, 7)
    seen: list[tuple[str, int]] = []
    schedule = Schedule(
        [bad.job("bad"), good.job("good")],
        retry_max_s=0.01,
        report=lambda name, result: seen.append((name, result.rows)),
    )
    schedule.start()
    assert good.ended.wait(WAIT_S)
    assert bad.ended.wait(WAIT_S)
    schedule.stop()
    assert schedule.join(WAIT_S) == []
    states = schedule.states()
    assert (states["bad"].failures, states["bad"].rounds, states["bad"].rows, states["bad"].error) == (2, 2, 3, None)
    assert (states["good"].failures, states["good"].rounds, states["good"].rows) == (0, 3, 12)
    assert (bad.resets, good.resets) == (2, 0)
    assert sorted(seen) == [("bad", 3), ("good", 5), ("good", 7)]
    assert not schedule.broken


def test_a_round_that_fails_after_a_stop_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """Before `stop()`, too: a signal for the whole process group ends Spark at once."""
    for stopped in (True, False):
        work = Work(ValueError("no Spark"))
        schedule = Schedule([work.job("bad")], usable=lambda: False, stop=lambda stopped=stopped: stopped)
        schedule.once()
        assert schedule.broken is not stopped
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_back_off_doubles_up_to_its_limit() -> None:
    work = Work(*[ValueError("x")] * 6)
    job = work.job("bad")
    schedule = Schedule([job], retry_max_s=10.0)
    waits = []
    for _ in range(6):
        assert not schedule.once()
        waits.append(schedule.retry_s(job))
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert schedule.once()


def test_a_stop_lets_the_round_end() -> None:
    begun, go = threading.Event(), threading.Event()

    def long_round() -> Result:
        begun.set()
        assert go.wait(WAIT_S)
        return Result(9, again=True)

    schedule = Schedule([Job("long", 1.0, long_round)])
    schedule.start()
    assert begun.wait(WAIT_S)
    schedule.stop()
    assert schedule.join(0.0) == ["long"]
    assert schedule.states()["long"].running
    go.set()
    assert schedule.join(WAIT_S) == []
    state = schedule.states()["long"]
    assert (state.rounds, state.rows, state.running) == (1, 9, False)


def test_without_what_all_jobs_need_the_schedule_ends() -> None:
    dead, other = Work(ValueError("the JVM is gone")), Work()
    schedule = Schedule([dead.job("dead"), other.job("other")], usable=lambda: False)
    schedule.start()
    assert schedule.stopped.wait(WAIT_S)
    assert schedule.join(WAIT_S) == []
    assert schedule.broken


def test_once_runs_each_job_until_it_has_caught_up() -> None:
    first, second = Work(1, 2), Work(ValueError("no table"))
    schedule = Schedule([first.job("first"), second.job("second")])
    assert not schedule.once()
    assert (first.rounds, second.rounds) == (3, 1)
    assert schedule.once()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_endpoint() -> None:
    work = Work(*[ValueError("no server")] * FAILING)
    gauges = {("lag_messages", "stream", 'a"b\\c\nd'): 4.0, ("gap_sequences", "status", "missing"): 0.0}
    jobs = [work.job("bad"), Job("lag", 1.0, lambda: Result(2, gauges=gauges))]
    schedule = Schedule(jobs)
    server = HealthServer(schedule, "127.0.0.1", 0)
    try:
        assert get(server.port, "/healthz")[0] == 200
        for _ in range(FAILING):
            schedule.once()
        status, text = get(server.port, "/healthz")
        assert status == 503
        assert json.loads(text)["failing"] == ["bad"]
        assert json.loads(text)["jobs"]["bad"]["error"] == "no server"
        status, text = get(server.port, "/metrics")
        assert status == 200
        lines = text.splitlines()
        assert f'eyot_hub_job_failures_total{{job="bad"}} {FAILING}' in lines
        assert 'eyot_hub_job_rows_total{job="lag"} 6' in lines
        assert 'eyot_hub_lag_messages{stream="a\\"b\\\\c\\nd"} 4.0' in lines
        assert 'eyot_hub_gap_sequences{status="missing"} 0.0' in lines
        assert not any(line.startswith('eyot_hub_job_last_success_timestamp_seconds{job="bad"}') for line in lines)
        assert get(server.port, "/other")[0] == 404
        schedule.once()
        assert get(server.port, "/healthz")[0] == 200
    finally:
        server.close()
    assert health(schedule)["status"] == "ok"
    assert metrics(schedule).endswith("\n")


def test_connections_of_the_endpoint_are_bounded_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that say nothing, or a byte at a time, hold a thread each: they keep nobody else away, and are counted."""
    monkeypatch.setattr("eyot_hub.jobs.health._Handler.timeout", 10 * WAIT_S)
    server = HealthServer(Schedule([]), "127.0.0.1", 0)
    silent: list[socket.socket] = []
    try:
        silent += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS_MAX)]
        for one in silent[::2]:
            one.sendall(b"GET /healthz HTTP/1.1\r\nX-A: ")
        for _ in range(3):
            assert get(server.port, "/healthz")[0] == 200
        for one in silent[:1]:
            one.settimeout(WAIT_S)
            assert one.recv(1) == b""
        text = get(server.port, "/metrics")[1]
        assert "eyot_hub_refused_connections_total 0" not in text
        assert 1 <= server.refused <= 4  # a thread that was free again takes the next one
    finally:
        for one in silent:
            one.close()
        server.close()


def test_an_endpoint_of_ip_version_6() -> None:
    server = HealthServer(Schedule([]), "::1", 0)
    try:
        assert get(server.port, "/healthz", "[::1]")[0] == 200
    finally:
        server.close()


def test_json_log() -> None:
    record = logging.LogRecord("hub", logging.ERROR, "f", 1, "%s failed\nbadly", ("ingest",), None)
    record.job = "ingest"
    text = JsonFormatter().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert line.pop("time").endswith("Z")
    assert line == {"level": "error", "logger": "hub", "message": "ingest failed\nbadly", "job": "ingest"}


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ({"gaps": "often"}, "run.gaps: 'often' is not a duration"),
        ({"ingest": "-1s"}, "run.ingest: -1s is negative"),
        ({"listen": "9100"}, "run.listen: '9100' is not HOST:PORT"),
        ({"listen": "host:99999"}, "run.listen: 'host:99999' is not HOST:PORT"),
        ({"report_path": "/no/such/folder/page.html"}, "run.report_path: there is no folder /no/such/folder"),
        ({"intervall": "1s"}, "run.intervall: there is no such key"),
    ],
)
def test_mistakes_in_run(run: dict[str, str], problem: str, tmp_path: Path) -> None:
    parsed = {
        "nats": {"servers": "nats://h"},
        "lake": {"path": str(tmp_path)},
        "bronze": {"streams": ["A"]},
        "run": run,
    }
    with pytest.raises(ConfigError, match=r"^hub\.toml: run\.") as failed:
        convert(parsed, "hub.toml")
    assert problem in str(failed.value)
