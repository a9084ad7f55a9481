"""Publishes the device's own status periodically, for the operators of a fleet: `eyot { status { } }`.

The status is one JSON message (`eyot_wire.status.DeviceStatus`) on a subject of an account. If a stream of the device
stores it and the hub sources that stream, the device's history while offline arrives with everything else.
"""

from __future__ import annotations

import logging

import msgspec

from eyot_daemon.config.jetstream import EyotStatusOptions
from eyot_daemon.config.options import Options
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.turn.timers import TimerHandle
from eyot_daemon.version import own_version
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import DeviceStatus, all_synced

log = logging.getLogger("eyot")

#: Delay of the first status after the start, so that links can come up.
FIRST_S = 2.0
_SPOKE = "spoke"


class StatusService:
    """Publishes while it is configured."""

    name = "device status"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._options: EyotStatusOptions | None = None
        self._timer: TimerHandle | None = None

    def configure(self, options: Options) -> EyotStatusOptions | None:
        return options.eyot.status

    def start(self, prepared: EyotStatusOptions | None, runtime: Runtime) -> None:
        runtime.when_open(lambda: self._begin(prepared))

    def reload(self, prepared: EyotStatusOptions | None, steps: ReloadSteps) -> None:
        """Restart the status after a changed configuration."""
        if prepared != self._options:
            steps.last(lambda: self._begin(prepared))

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, options: EyotStatusOptions | None) -> None:
        self.stop()
        self._options = options
        if options is not None:
            self._publish_in(min(FIRST_S, options.every_s), options)

    def _publish_in(self, wait_s: float, options: EyotStatusOptions) -> None:
        self._timer = self._broker.timers.call_later(wait_s, lambda: self._publish(options))

    def _publish(self, options: EyotStatusOptions) -> None:
        self._publish_in(options.every_s, options)
        account = self._broker.accounts.get(options.account)
        if account is None:
            log.warning("The device status is not published: there is no account %s", options.account)
            return
        account.publish(options.subject, payload=msgspec.json.encode(device_status(self._broker, options.every_s)))


def device_status(broker: Broker, every_s: float) -> DeviceStatus:
    """Return the present status."""
    providers, now_ns = broker.providers, broker.clock.now_ns()
    links = [link for link in providers.links() if link.role == _SPOKE]
    up = [link for link in links if link.state == "up"]
    out, streams, store = providers.downstream(), providers.streams(), providers.store()
    furthest = max(out, key=lambda each: each.backlog, default=None)
    jetstream = broker.options.jetstream
    return DeviceStatus(
        device=broker.server_name,
        domain="" if jetstream is None else jetstream.domain,
        at=ns_to_rfc3339(now_ns),
        every_s=every_s,
        version=own_version(),
        uptime_s=(now_ns - broker.started_ns) / 1e9,
        linked=bool(up),
        rtt_ms=max((link.rtt_ms for link in up if link.rtt_ms is not None), default=None),
        attempts=sum(link.attempts for link in links),
        in_bytes=sum(link.in_bytes for link in links),
        out_bytes=sum(link.out_bytes for link in links),
        synced=all_synced(out),
        never_arrived=sum(each.never_arrived for each in out),
        backlog=None if furthest is None else furthest.backlog,
        backlog_bytes=None if furthest is None else furthest.backlog_bytes,
        oldest_s=max((each.oldest_s for each in out if each.oldest_s is not None), default=None),
        messages=sum(stream.messages for stream in streams),
        store_error=None if store is None else store.error,
        link_error=next((link.last_error for link in links if link.state != "up" and link.last_error), None),
    )
