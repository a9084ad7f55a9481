"""The HTTP endpoint of `eyot-hub run`: `/healthz` as JSON, `/metrics` in Prometheus' text format 0.0.4, `/` the report."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from eyot_hub.jobs.schedule import Schedule, State

log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGE: Final = "text/html; charset=utf-8"
#: The page has neither scripts nor resources from elsewhere; its styles are its own.
_PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REQUEST_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 64  # a thread each
#: How long a new connection waits for the thread of the one that ended for it, seconds.
ROOM_TIMEOUT_S: Final = 1.0
_OF_JOBS: Final[tuple[tuple[str, str, str, Callable[[State], float | None]], ...]] = (
    ("rounds_total", "counter", "Rounds that succeeded.", lambda state: state.rounds),
    ("failures_total", "counter", "Rounds that failed.", lambda state: state.failures),
    ("rows_total", "counter", "Rows written.", lambda state: state.rows),
    ("seconds_total", "counter", "Time spent in rounds.", lambda state: state.seconds),
    ("failed_in_a_row", "gauge", "Failures since the last success.", lambda state: state.failed_in_a_row),
    ("running", "gauge", "1 while a round runs.", lambda state: float(state.running)),
    ("last_success_timestamp_seconds", "gauge", "End of the last success.", lambda state: state.last_success),
)
_GAUGES: Final = {
    "lag_messages": "Messages in the stream beyond the table.",
    "oldest_seconds": "Age of the oldest message beyond the table.",
    "gap_sequences": "Sequences that the job gaps lists, by status.",
    "origins": "Streams of the hub and origins, by whether they answered the job gaps.",
    "devices": "Devices by state.",
    "quality_violations": "Violations of a rule of data quality.",
    "expired_rows": "Rows that retention has removed, by table.",
}


def metrics(schedule: Schedule) -> str:
    """Return the metrics of all jobs. A gauge is that of its job's last round that succeeded."""
    return "".join(f"{line}\n" for line in _lines(schedule))


def _refusals(refused: int) -> str:
    name = "eyot_hub_refused_connections_total"
    return f"# HELP {name} Connections to this endpoint that ended for others beyond {CONNECTIONS_MAX}.\n# TYPE {name} counter\n{name} {refused}\n"


def _lines(schedule: Schedule) -> Iterator[str]:
    states = schedule.states()
    for name, kind, text, value in _OF_JOBS:
        yield f"# HELP eyot_hub_job_{name} {text}"
        yield f"# TYPE eyot_hub_job_{name} {kind}"
        for job, state in states.items():
            figure = value(state)
            if figure is not None:
                yield f'eyot_hub_job_{name}{{job="{job}"}} {figure}'
    for name, text in _GAUGES.items():
        yield f"# HELP eyot_hub_{name} {text}"
        yield f"# TYPE eyot_hub_{name} gauge"
        for state in states.values():
            for (gauge, label, content), figure in state.gauges.items():
                if gauge == name:
                    yield f'eyot_hub_{name}{{{label}="{_escaped(content)}"}} {figure}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def health(schedule: Schedule) -> dict[str, Any]:
    """Return the state of all jobs; `status` is "error" when a job failed several times in a row."""
    failing = schedule.failing()
    jobs = {
        name: {
            "rounds": state.rounds,
            "failures": state.failures,
            "running": state.running,
            "last_success": state.last_success,
            "error": state.error,
        }
        for name, state in schedule.states().items()
    }
    return {"status": "error" if failing or schedule.broken else "ok", "failing": failing, "jobs": jobs}


class _Server(ThreadingHTTPServer):
    """A thread for each connection, at most `CONNECTIONS_MAX`. For a further one the oldest ends, and is counted.

    Each connection has one request: the oldest is that of a client that says nothing, or one byte at a time.
    """

    request_queue_size = CONNECTIONS_MAX  # Python's five let the kernel drop a burst's handshakes, for seconds

    def __init__(self, host: str, port: int, schedule: Schedule, page: Path | None) -> None:
        self.schedule = schedule
        self.page = page
        self.refused = 0
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: dict[socket.socket, None] = {}
        self._open_lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.refused += 1
            self._end_oldest()
            if not self._free.acquire(timeout=ROOM_TIMEOUT_S):
                self.shutdown_request(request)
                return
        with self._open_lock:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def _end_oldest(self) -> None:
        """End the oldest connection: its thread no longer waits for the client."""
        with self._open_lock:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                with suppress(OSError):  # it ended already
                    oldest.shutdown(socket.SHUT_RDWR)

    def _done(self, request: socket.socket) -> None:
        with self._open_lock:
            self._open.pop(request, None)
        self._free.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        path, page = self.path.partition("?")[0], self.server.page
        if path == "/metrics":
            self._answer(200, _TEXT, metrics(self.server.schedule) + _refusals(self.server.refused))
        elif path == "/healthz":
            found = health(self.server.schedule)
            self._answer(200 if found["status"] == "ok" else 503, "application/json", json.dumps(found))
        elif path == "/" and page is not None:
            try:
                self._answer(200, _PAGE, page.read_text(encoding="utf-8"))
            except FileNotFoundError:
                self._answer(503, _TEXT, "the report is not written yet\n")
        else:
            self._answer(404, _TEXT, "/healthz, /metrics, and / where [run] report_path is set\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if kind == _PAGE:
            self.send_header("Content-Security-Policy", _PAGE_POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class HealthServer:
    """Serves the state of a schedule until `close`."""

    def __init__(self, schedule: Schedule, host: str, port: int, page: Path | None = None) -> None:
        """Listen; `page`: the file with the report. Raises OSError."""
        self._server = _Server(host, port, schedule, page)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def refused(self) -> int:
        """Connections that ended because there were `CONNECTIONS_MAX` others."""
        return self._server.refused

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
