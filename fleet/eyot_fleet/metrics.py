"""`/metrics` in Prometheus' text form, and `/healthz`."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from eyot_fleet.device_record import STATES
from eyot_serving.http_messages import HttpRequest, HttpResponse, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from eyot_fleet.service import Service
    from eyot_fleet.web.site import Site

_TEXT: str = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """Answers requests for the two pages. Nothing on them is secret, and nothing changes anything."""

    def __init__(self, service: Service, page: Site | None = None) -> None:
        self._service = service
        self._page = page
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request."""
        if request.method not in ("GET", "HEAD"):
            return plain_text("only GET", 405, [("Allow", "GET, HEAD")])
        if request.path == "/healthz":
            problem = self.problem()
            body = json.dumps({"status": "ok"} if not problem else {"status": "error", "error": problem})
            return HttpResponse(body.encode(), status=503 if problem else 200)
        if request.path == "/metrics":
            return HttpResponse(generate_latest(self._registry), _TEXT)
        return plain_text("there are /metrics and /healthz", 404)

    def problem(self) -> str:
        """Return what is wrong with the service itself; "" if nothing is."""
        session = self._service.session
        if session is None or not session.connection.is_open:
            return f"the hub is away: {self._service.error or 'the connection broke'}"
        if not session.loaded.is_set():
            return "the state is being loaded"
        if self._service.system_error:
            return f"the system account: {self._service.system_error}"
        return self._service.enrolment_error

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, as the registry asks for them."""
        service, fleet, session = self._service, self._service.fleet, self._service.session
        states = Counter(record.state for record in fleet.index)
        found = GaugeMetricFamily("eyot_fleet_devices", "Devices by state", labels=["state"])
        for state in STATES:
            found.add_metric([state], states[state])
        yield found
        alerts = Counter((alert.kind, alert.severity) for record in fleet.index for alert in record.alerts)
        found = GaugeMetricFamily("eyot_fleet_alerts", "Devices with an alert", labels=["kind", "severity"])
        for (kind, severity), count in sorted(alerts.items()):
            found.add_metric([kind, severity], count)
        yield found
        backlog = sum(record.backlog or 0 for record in fleet.index)
        yield GaugeMetricFamily("eyot_fleet_backlog_messages", "Messages that hubs lack, as devices report", backlog)
        lost = sum(record.never_arrived for record in fleet.index)
        yield GaugeMetricFamily("eyot_fleet_never_arrived_messages", "Messages that never arrived", lost)
        said = CounterMetricFamily("eyot_fleet_statuses", "Statuses by what became of them", labels=["outcome"])
        for outcome in ("applied", "late", "repeated", "unreadable", "forged", "no room"):
            said.add_metric([outcome], fleet.counts[outcome])
        yield said
        yield GaugeMetricFamily("eyot_fleet_connected", "Whether the hub is there", session is not None)
        yield CounterMetricFamily("eyot_fleet_connections", "Connections to the hub", service.connections)
        yield GaugeMetricFamily("eyot_fleet_leader", "Whether this service writes", service.leadership.is_leader)
        yield CounterMetricFamily(
            "eyot_fleet_foreign_links", "Links with a device's name, not its key", service.links.foreign
        )
        yield CounterMetricFamily("eyot_fleet_feed_reloads", "Subscribers told to reload", fleet.index.feed.reloads)
        yield GaugeMetricFamily(
            "eyot_fleet_unwritten_devices", "Devices to be written", len(fleet.urgent | fleet.waiting)
        )
        yield from self._of_page()
        if session is None:
            return
        yield GaugeMetricFamily(
            "eyot_fleet_statuses_dropped", "Statuses of this connection without room", session.dropped
        )
        yield GaugeMetricFamily("eyot_fleet_write_errors", "Writes of this connection that failed", session.save_errors)
        streams = GaugeMetricFamily("eyot_fleet_source_streams", "Streams of a rule", labels=["rule"])
        sources = GaugeMetricFamily("eyot_fleet_sources", "Sources of a rule", labels=["rule"])
        for rule, (count, of) in session.sourcing.shards.items():
            streams.add_metric([rule], count)
            sources.add_metric([rule], of)
        yield streams
        yield sources
        yield GaugeMetricFamily(
            "eyot_fleet_source_problems", "Rules that cannot be kept", len(session.sourcing.problems)
        )

    def _of_page(self) -> Iterator[Metric]:
        """Yield the metrics of the page, if it is served."""
        if self._page is None:
            return
        yield GaugeMetricFamily("eyot_fleet_page_sessions", "Sessions of the page", len(self._page.access))
        yield GaugeMetricFamily("eyot_fleet_page_viewers", "Viewers with live figures", len(self._page.feeds))
        yield CounterMetricFamily("eyot_fleet_page_viewers_refused", "Viewers refused", self._page.feeds.refused)
        logins = CounterMetricFamily("eyot_fleet_page_logins", "Logins by what became of them", labels=["outcome"])
        for outcome in ("done", "refused", "limited", "unavailable"):
            logins.add_metric([outcome], self._page.access.logins[outcome])
        yield logins
