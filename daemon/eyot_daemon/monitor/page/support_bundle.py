"""The support bundle on demand: for the control socket, and for who asks the device over NATS. The page makes its own alike.

The last lines of the log are kept from the start on, with or without the page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.monitor import accounts as monitor_accounts
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.page.recent_log import RecentLog
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, JszQuery, LeafzQuery, Unhealthy
from eyot_daemon.turn.slices import at_once
from eyot_serving.http_messages import HttpResponse
from eyot_wire.go.time import ns_to_rfc3339

if TYPE_CHECKING:
    from eyot_daemon.monitor.page.history import HistoryReport

log = logging.getLogger("eyot")


class SupportBundle:
    """Makes archives. `history`: the page's last day of each stream, None while there is no page."""

    name = "support bundle"

    def __init__(self, clients: Clients, history: Callable[[], HistoryReport | None] = lambda: None) -> None:
        self._clients = clients
        self._history = history
        self.recent = RecentLog()

    def configure(self, options: Options) -> None:
        return None

    def start(self, prepared: None, runtime: Runtime) -> None:
        log.addHandler(self.recent)

    def reload(self, prepared: None, steps: ReloadSteps) -> None:
        """Do nothing: the configuration is read when an archive is made."""

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        log.removeHandler(self.recent)

    def make(self) -> tuple[str, bytes]:
        """Return an archive's name without extension, and the archive (`.tar.gz`)."""
        from eyot_daemon.monitor.page.bundle import archive, bundle_name

        broker = self._clients.broker
        now_ns = broker.clock.now_ns()
        name = bundle_name(broker.server_name, ns_to_rfc3339(now_ns))
        return name, archive(name, self._files(), now_ns // 10**9)

    def _files(self) -> Mapping[str, bytes]:
        from eyot_daemon.monitor.page.redacted_config import redacted_config, redacted_text
        from eyot_daemon.monitor.page.report import PageReporter

        clients, broker = self._clients, self._clients.broker
        jsz = JszQuery(accounts=True, streams=True, consumers=True)
        pages: dict[str, object] = {
            "page.json": PageReporter(clients, self.recent).report(),
            "healthz.json": monitor_server.healthz(clients, HealthzQuery(details=True)),
            "leafz.json": monitor_accounts.leafz(broker, LeafzQuery()),
            "jsz.json": at_once(monitor_accounts.jsz(broker, jsz)),
        }
        if (history := self._history()) is not None:
            pages["history.json"] = history
        shown = {path: msgspec.json.format(msgspec.json.encode(page), indent=2) for path, page in pages.items()}
        # A stream's description or an error may quote an address with its password.
        files = {path: redacted_text(page.decode()).encode() for path, page in shown.items()}
        files["configuration.json"] = redacted_config(broker.options.config_file).encode()
        lines = "".join(f"{redacted_text(line)}\n" for line in self.recent.lines())
        files["log.txt"] = lines.encode("utf-8", "backslashreplace")
        return files


def as_response(name: str, content: bytes, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    """Return an archive as a download."""
    disposition = ("Content-Disposition", f'attachment; filename="{name}.tar.gz"')
    return HttpResponse(content, "application/gzip", 200, (*headers, disposition))
