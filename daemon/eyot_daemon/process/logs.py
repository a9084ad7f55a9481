"""Log lines in nats-server's form: `[pid] 2026/11/21 09:00:00.123456 [INF] text`.

A record is one line, whatever names of peers it contains: unprintable characters are escaped here, and only here. Lines
of a traceback are indented. Everything in the daemon logs to loggers below `eyot`; `Logs` installs their one handler:
stderr, a file that can be reopened and rotated, or syslog. `TRACE` is nats-server's protocol trace, `CRITICAL` its FTL.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import time
from pathlib import Path
from typing import ClassVar

from eyot_daemon.config.options import Options
from eyot_daemon.process.journal import JOURNAL_SOCKET, JournalHandler, journal_listens
from eyot_wire.quoting import printable

TRACE = 5
#: Where the system's log listens.
SYSLOG_SOCKET = "/dev/log"
LABELS = {
    TRACE: "TRC",
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
}

#: syslog's numbers, which systemd's journal reads from the start of a line: `<4>`.
PRIORITIES = {
    TRACE: 7,
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}

log = logging.getLogger("eyot")


def priority(level: int) -> str:
    """Return the prefix with a line's priority for systemd's journal (sd-daemon(3))."""
    return f"<{PRIORITIES.get(level, 6)}>"


def stderr_is_journal() -> bool:
    """Return whether stderr is still the journal's socket that systemd passed to this process (systemd.exec(5))."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        file = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return (device, inode) == (str(file.st_dev), str(file.st_ino))


class JournalFormatter(logging.Formatter):
    """Puts the priority before every line that `lines` formats for a record."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        prefix = priority(record.levelno)
        return prefix + self._lines.format(record).replace("\n", f"\n{prefix}")


class LineFormatter(logging.Formatter):
    """Formats a record as nats-server would. The date and time up to the second are made once a second."""

    def __init__(self, *, logtime: bool = True, utc: bool = False, pid: bool = True, end: str = "") -> None:
        super().__init__()
        self._logtime = logtime
        self._end = end
        self._convert = time.gmtime if utc else time.localtime
        self._pid = f"[{os.getpid()}] " if pid else ""
        self._second = -1
        self._stamp = ""

    def format(self, record: logging.LogRecord) -> str:
        label = LABELS.get(record.levelno, "INF")
        text = printable(record.getMessage())
        if record.exc_info:
            trace = (f"    {printable(line)}" for line in self.formatException(record.exc_info).split("\n"))
            text = "\n".join((text, *trace))
        if not self._logtime:
            return f"{self._pid}[{label}] {text}{self._end}"
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", self._convert(second))
        micros = int((record.created - second) * 1e6)
        return f"{self._pid}{self._stamp}.{micros:06d} [{label}] {text}"


class FileHandler(logging.Handler):
    """Appends lines to a file. `size_limit` bytes: beyond it the file is renamed with the time, `max_num` are kept."""

    def __init__(self, path: Path, *, size_limit: int = 0, max_num: int = 0) -> None:
        super().__init__()
        self.path = path
        self._size_limit = size_limit
        self._max_num = max_num
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
            self._size += os.write(self._fd, line)
            if self._size_limit and self._size > self._size_limit:
                self._rotate()
        except OSError:
            self.handleError(record)

    def reopen(self) -> None:
        """Reopen the path, after the file was moved away. On failure (OSError) the old file stays in use."""
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        self._size = os.fstat(fresh).st_size

    def _rotate(self) -> None:
        now_ns = time.time_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(now_ns // 10**9))
        self.path.rename(self.path.with_name(f"{self.path.name}.{stamp}.{now_ns % 10**9:09d}"))
        self.reopen()
        if self._max_num:
            kept = sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*"))
            for old in kept[: max(0, len(kept) + 1 - self._max_num)]:
                old.unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()


class Logs:
    """The daemon's log output. `configure` may be called again, on reload."""

    def __init__(self) -> None:
        self._handler: logging.Handler | None = None
        logging.addLevelName(TRACE, "TRACE")

    def configure(self, options: Options) -> None:
        """Send log lines to the configured place. Raises OSError if the file cannot be opened; the old handler then stays."""
        handler = _make_handler(options)
        level = TRACE if options.trace else logging.DEBUG if options.debug else logging.INFO
        root = logging.getLogger()
        # Libraries (trio) may warn through the root logger; ours go through `eyot` with their own level.
        root.setLevel(logging.WARNING)
        log.setLevel(level)
        root.addHandler(handler)
        if self._handler is not None:
            root.removeHandler(self._handler)
            self._handler.close()
        self._handler = handler
        # With trace alone, DEBUG lines are filtered.
        handler.addFilter(_without_debug if options.trace and not options.debug else _everything)

    def reopen(self) -> None:
        """Reopen the log file on SIGUSR1."""
        if not isinstance(self._handler, FileHandler):
            log.info("File log re-open ignored, not a file logger")
            return
        try:
            self._handler.reopen()
        except OSError as error:
            log.error("File log could not be re-opened: %s", error)
        else:
            log.info("File log re-opened")


def _everything(_: logging.LogRecord) -> bool:
    return True


def _without_debug(record: logging.LogRecord) -> bool:
    return record.levelno != logging.DEBUG


def _make_handler(options: Options) -> logging.Handler:
    if options.syslog or options.remote_syslog:
        return _syslog_handler(options)
    handler: logging.Handler
    if options.log_file:
        path = Path(options.log_file)
        handler = FileHandler(path, size_limit=options.log_size_limit, max_num=options.log_max_num)
    else:
        handler = logging.StreamHandler(sys.stderr)
    lines: logging.Formatter = LineFormatter(logtime=options.logtime, utc=options.logtime_utc)
    to_journal = not options.log_file and stderr_is_journal()
    handler.setFormatter(JournalFormatter(lines) if to_journal else lines)
    if to_journal and stat.S_ISSOCK(os.fstat(sys.stderr.fileno()).st_mode) and journal_listens(JOURNAL_SOCKET):
        return JournalHandler(handler, PRIORITIES, JOURNAL_SOCKET)
    return handler


def _syslog_handler(options: Options) -> logging.Handler:
    import socket
    from logging.handlers import SysLogHandler
    from urllib.parse import urlsplit

    class Handler(SysLogHandler):
        append_nul = False  # a habit of old daemons; today's show it
        priority_map: ClassVar[dict[str, str]] = SysLogHandler.priority_map | {"TRACE": "debug"}

    handler: Handler
    if options.remote_syslog:
        parts = urlsplit(options.remote_syslog)
        kind = socket.SOCK_STREAM if parts.scheme == "tcp" else socket.SOCK_DGRAM
        address = (parts.hostname or "localhost", parts.port or 514)
        handler = Handler(address, SysLogHandler.LOG_DAEMON, kind)
    else:
        handler = Handler(SYSLOG_SOCKET, SysLogHandler.LOG_DAEMON)
    handler.ident = "eyotd: "
    if handler.socktype == socket.SOCK_STREAM:
        # RFC 6587, 3.4.2: over TCP a line feed ends a message
        handler.setFormatter(LineFormatter(logtime=False, pid=False, end="\n"))
        return handler
    handler.setFormatter(LineFormatter(logtime=False, pid=False))
    return handler
