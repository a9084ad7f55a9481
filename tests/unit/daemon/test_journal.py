"""Records as systemd's journal gets them: fields by its native protocol, and a catalog that says what to do."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_daemon.config.options import Options
from eyot_daemon.process import logs as logs_module
from eyot_daemon.process.journal import KINDS, JournalHandler
from eyot_daemon.process.logs import PRIORITIES, Logs

TOP = Path(__file__).parents[3]
CATALOG = TOP / "systemd/eyot.catalog"


def decode(datagram: bytes) -> dict[str, str]:
    """Fields of one datagram, by the protocol's description."""
    fields = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest.startswith(b"\n")
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        datagram = rest
    return fields


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "journal"))
        sock.settimeout(60)
        yield sock


class Lines(logging.Handler):
    """Takes what the journal did not."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.taken.append(record.getMessage())


@pytest.fixture
def logger(tmp_path: Path, journald: socket.socket) -> Iterator[tuple[logging.Logger, Lines]]:
    lines, found = Lines(), logging.Logger("eyot.journal")
    handler = JournalHandler(lines, PRIORITIES, str(tmp_path / "journal"))
    found.addHandler(handler)
    yield found, lines
    handler.close()


def test_a_record_of_a_stream(logger: tuple[logging.Logger, Lines], journald: socket.socket) -> None:
    logger[0].error("Stream '%s > %s' cannot store: %s", "PLANT", "READINGS", "no room left")
    assert decode(journald.recv(65536)) == {
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "eyotd",
        "MESSAGE": "Stream 'PLANT > READINGS' cannot store: no room left",
        "MESSAGE_ID": "3df5cbd91f6a474b9fe1b950cfd715b8",
        "EYOT_ACCOUNT": "PLANT",
        "EYOT_STREAM": "READINGS",
    }
    logger[0].warning("Stream '%s > %s': nothing expires: %s", "PLANT", "READINGS", "x")
    fields = decode(journald.recv(65536))
    assert (fields["EYOT_ACCOUNT"], fields["EYOT_STREAM"], "MESSAGE_ID" in fields) == ("PLANT", "READINGS", False)


def test_a_record_of_a_link(logger: tuple[logging.Logger, Lines], journald: socket.socket) -> None:
    logger[0].error("%s: no connection to %s (attempt %d): %s", "hub", "a:7422", 3, "refused")
    fields = decode(journald.recv(65536))
    assert (fields["EYOT_LINK"], fields["MESSAGE_ID"]) == ("hub", "f4acb930cd7a46189337ffb11c7a6ce8")


def test_no_name_of_a_peer_makes_a_field(logger: tuple[logging.Logger, Lines], journald: socket.socket) -> None:
    logger[0].warning("Stream '%s > %s': x", "A", "B\nPRIORITY=0\nEYOT_LINK=x")
    fields = decode(journald.recv(65536))
    assert (fields["PRIORITY"], "EYOT_LINK" in fields, "\n" in fields["EYOT_STREAM"]) == ("4", False, False)


def test_a_traceback_is_one_record(logger: tuple[logging.Logger, Lines], journald: socket.socket) -> None:
    try:
        raise ValueError("of a test")
    except ValueError:
        logger[0].exception("Failed")
    fields = decode(journald.recv(65536))
    assert fields["MESSAGE"].startswith("Failed\n    Traceback ")
    assert fields["MESSAGE"].endswith("\n    ValueError: of a test")


def test_a_record_that_is_too_large_is_cut(logger: tuple[logging.Logger, Lines], journald: socket.socket) -> None:
    logger[0].info("%s", "x" * (64 << 20))
    assert decode(journald.recv(1 << 20))["MESSAGE"] == "x" * 16384 + " ..."


def test_without_a_journal_the_line_goes_to_stderr(
    logger: tuple[logging.Logger, Lines], journald: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "journal").unlink()
    logger[0].info("Server is ready")
    assert logger[1].taken == ["Server is ready"]


def test_the_journal_is_used_where_stderr_is_its_own(
    journald: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By JOURNAL_STREAM (systemd.exec(5)), and a stderr that is a socket: a file that was put in its place gets lines."""
    root, eyot = logging.getLogger(), logging.getLogger("eyot")
    before = (root.level, eyot.level)
    monkeypatch.setattr(logs_module, "JOURNAL_SOCKET", str(tmp_path / "journal"))
    stderr, other = socket.socketpair()
    with stderr, other, stderr.makefile("w") as file:
        status = os.fstat(stderr.fileno())
        monkeypatch.setattr(sys, "stderr", file)
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        logs = Logs()
        logs.configure(Options())
        try:
            eyot.info("Server is ready")
            assert decode(journald.recv(65536))["MESSAGE"] == "Server is ready"
        finally:
            handler = logs._handler
            assert isinstance(handler, JournalHandler)
            root.removeHandler(handler)
            handler.close()
            root.setLevel(before[0])
            eyot.setLevel(before[1])


def test_every_kind_is_logged_somewhere() -> None:
    """A template that was changed where it is logged would lose its fields."""
    sources = "\n".join(path.read_text() for top in ("daemon", "sync") for path in (TOP / top).rglob("*.py"))
    for template in KINDS:
        assert len(re.findall(rf'log\.\w+\(\s*"{re.escape(template)}"', sources)) >= 1, template


def test_every_kind_has_an_entry_in_the_catalog() -> None:
    entries = dict(re.findall(r"(?ms)^-- ([0-9a-f]{32})\n(.*?)(?=^-- |\Z)", CATALOG.read_text()))
    assert entries.keys() == {kind.message_id for kind in KINDS.values()}
    for entry in entries.values():
        assert re.match(r"Subject: \S", entry)
        documented = re.search(r"Support: file:///usr/share/doc/eyot/(docs/\S+)", entry)
        assert documented is not None
        assert (TOP / documented.group(1)).exists()


def test_systemd_reads_the_catalog(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/systemd/catalog"
    folder.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(CATALOG, folder)
    made = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--update-catalog"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    listed = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--list-catalog"], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in listed.splitlines()} == {kind.message_id for kind in KINDS.values()}
