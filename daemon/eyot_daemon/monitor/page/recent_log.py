"""The last lines of the log, kept in memory for the page and the support bundle."""

from __future__ import annotations

import logging
from collections import deque

from msgspec import Struct

from eyot_daemon.process.logs import LineFormatter
from eyot_wire.go.time import ns_to_rfc3339

#: Lines and their characters: 200 KB at the most.
LINES_MAX = 400
LINE_CHARS_MAX = 500
#: Warnings and errors are kept apart: many harmless lines do not displace them.
WARNINGS_MAX = 50


class LogLine(Struct, frozen=True):
    """A warning or an error; `level` in nats-server's letters."""

    at: str
    level: str
    text: str


class RecentLog(logging.Handler):
    """Keeps what the daemon logs from INFO on; debugging and traces, which may show payloads, are not kept."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(LineFormatter(utc=True))
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._warnings: deque[LogLine] = deque(maxlen=WARNINGS_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)[:LINE_CHARS_MAX]
        except Exception:
            self.handleError(record)
            return
        self._lines.append(line)
        if record.levelno >= logging.WARNING:
            level, _, text = line.partition(" [")[2].partition("] ")
            self._warnings.append(LogLine(ns_to_rfc3339(int(record.created * 1e9)), level, text))

    def lines(self) -> list[str]:
        """Return the kept lines, oldest first."""
        return list(self._lines)

    def warnings(self) -> list[LogLine]:
        """Return the kept warnings and errors, newest first."""
        return list(reversed(self._warnings))
