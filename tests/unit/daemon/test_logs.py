"""Log lines in nats-server's form, files that are reopened and rotated."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.options import Options
from eyot_daemon.process.logs import TRACE, FileHandler, LineFormatter, Logs

log = logging.getLogger("eyot.test")


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Puts logging back as it was."""
    root, eyot = logging.getLogger(), logging.getLogger("eyot")
    before = (list(root.handlers), root.level, eyot.level)
    yield Logs()
    for handler in list(root.handlers):
        if handler not in before[0]:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(before[1])
    eyot.setLevel(before[2])


def record(level: int, text: str, created: float = 1795251600.123456) -> logging.LogRecord:
    made = logging.LogRecord("eyot", level, "x.py", 1, text, (), None)
    made.created = created
    return made


@pytest.mark.parametrize(
    ("level", "label"),
    [
        (TRACE, "TRC"),
        (logging.DEBUG, "DBG"),
        (logging.INFO, "INF"),
        (logging.WARNING, "WRN"),
        (logging.ERROR, "ERR"),
        (logging.CRITICAL, "FTL"),
    ],
)
def test_lines(level: int, label: str) -> None:
    line = LineFormatter(utc=True).format(record(level, "Server is ready"))
    assert line == f"[{os.getpid()}] 2026/11/21 09:00:00.123456 [{label}] Server is ready"
    assert LineFormatter(logtime=False).format(record(level, "x")) == f"[{os.getpid()}] [{label}] x"


def test_time_goes_on() -> None:
    formatter = LineFormatter(utc=True)
    stamps = [formatter.format(record(logging.INFO, "x", 1795251600.5 + step)).split(" [INF]")[0] for step in range(2)]
    assert [stamp[-15:] for stamp in stamps] == ["09:00:00.500000", "09:00:01.500000"]


def test_levels(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "x.log"

    def labels(options: Options) -> list[str]:
        path.unlink(missing_ok=True)
        logs.configure(options)
        log.log(TRACE, "t")
        log.debug("d")
        log.info("i")
        log.error("e")
        return re.findall(r"\[(TRC|DBG|INF|ERR)\]", path.read_text())

    file = str(path)
    assert labels(Options(log_file=file)) == ["INF", "ERR"]
    assert labels(Options(log_file=file, debug=True)) == ["DBG", "INF", "ERR"]
    assert labels(Options(log_file=file, trace=True)) == ["TRC", "INF", "ERR"]
    assert labels(Options(log_file=file, trace=True, debug=True)) == ["TRC", "DBG", "INF", "ERR"]


def test_a_moved_file_is_reopened(logs: Logs, tmp_path: Path) -> None:
    path, moved = tmp_path / "x.log", tmp_path / "x.log.1"
    logs.configure(Options(log_file=str(path)))
    log.info("before")
    path.rename(moved)
    log.info("between")
    logs.reopen()
    log.info("after")
    assert "between" in moved.read_text()
    assert [line.split("] ")[-1] for line in path.read_text().splitlines()] == ["File log re-opened", "after"]


def test_a_file_that_cannot_be_opened_leaves_the_old_output(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    logs.configure(Options(log_file=str(path)))
    with pytest.raises(OSError):
        logs.configure(Options(log_file="/nonexistent/x.log"))
    log.info("still here")
    assert "still here" in path.read_text()


def test_rotation_keeps_so_many(tmp_path: Path) -> None:
    handler = FileHandler(tmp_path / "x.log", size_limit=200, max_num=3)
    handler.setFormatter(LineFormatter())
    for number in range(40):
        handler.handle(record(logging.INFO, f"line {number}"))
    handler.close()
    files = sorted(tmp_path.iterdir())
    assert 2 <= len(files) <= 3
    assert (tmp_path / "x.log") in files
    assert "line 39" in "".join(path.read_text() for path in files)


def test_exceptions_are_logged_with_their_trace(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    logs.configure(Options(log_file=str(path)))
    try:
        raise ValueError("what went wrong")
    except ValueError:
        log.exception("it failed")
    assert "[ERR] it failed\n    Traceback" in path.read_text()
    assert "ValueError: what went wrong" in path.read_text()


def test_the_systems_log(logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.process.logs.SYSLOG_SOCKET", str(tmp_path / "log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        daemon.settimeout(10)
        logs.configure(Options(syslog=True, trace=True, debug=True))
        said = (
            (logging.INFO, b"<30>eyotd: [INF] word"),
            (logging.WARNING, b"<28>eyotd: [WRN] word"),
            (logging.CRITICAL, b"<26>eyotd: [FTL] word"),
            (TRACE, b"<31>eyotd: [TRC] word"),
        )
        for level, line in said:
            log.log(level, "word")
            assert daemon.recv(1000) == line


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_a_remote_log(logs: Logs, scheme: str) -> None:
    kind = socket.SOCK_STREAM if scheme == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as remote:
        remote.bind(("127.0.0.1", 0))
        remote.settimeout(10)
        if scheme == "tcp":
            remote.listen()
        logs.configure(Options(remote_syslog=f"{scheme}://127.0.0.1:{remote.getsockname()[1]}"))
        log.error("first")
        if scheme == "udp":
            assert remote.recv(1000) == b"<27>eyotd: [ERR] first"
            return
        log.error("second")
        accepted, _ = remote.accept()
        with accepted, accepted.makefile("rb") as lines:
            assert [next(lines), next(lines)] == [b"<27>eyotd: [ERR] first\n", b"<27>eyotd: [ERR] second\n"]


def test_a_name_cannot_forge_a_line() -> None:
    formatter = LineFormatter(logtime=False, pid=False)

    def formatted(text: str, *args: object, exc_info: Any = None) -> str:
        return formatter.format(logging.LogRecord("eyot", logging.INFO, "", 0, text, args, exc_info))

    assert formatted("%s came", "x\n[INF] forged\x1b[2J\u202e\r") == "[INF] x\\n[INF] forged\\x1b[2J\\u202e\\r came"
    try:
        raise ValueError("bad\n[ERR] forged")
    except ValueError as error:
        text = formatted("failed", exc_info=(ValueError, error, error.__traceback__))
    assert text.splitlines()[0] == "[INF] failed"
    assert all(line.startswith("    ") for line in text.splitlines()[1:])
    assert "\x1b" not in text
