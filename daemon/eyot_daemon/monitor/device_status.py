"""Publishes the device's own status periodically, for the operators of a fleet: `eyot { status { } }`.

The status is one JSON message (`eyot_wire.status.DeviceStatus`) on a subject of an account. If a stream of the device
stores it and the hub sources that stream, the device's history while offline arrives with everything else.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.config.jetstream import EyotStatusOptions
from eyot_daemon.config.options import Options
from eyot_daemon.monitor.hardware import memory
from eyot_daemon.monitor.server import memory_bytes
from eyot_daemon.net.cert_dates import not_after, own_certificates
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.turn.timers import TimerHandle
from eyot_daemon.version import own_version
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import DeviceStatus, DeviceStreamStatus, LinkStatus, StreamStatus, SyncStatus, all_synced

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

log = logging.getLogger("eyot")

#: Delay of the first status after the start, so that links can come up.
FIRST_S = 2.0
#: Least time between a status and one that a link's coming causes: a link that flaps must not fill a stream.
LINK_GAP_S = 10.0
_SPOKE = "spoke"


class StatusService:
    """Publishes while it is configured."""

    name = "device status"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._options: EyotStatusOptions | None = None
        self._timer: TimerHandle | None = None
        self._end_watch: Callable[[], None] | None = None
        #: when the last status was published, seconds of the monotonic clock
        self._published_at = -LINK_GAP_S
        self._number = 0

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
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None

    def _begin(self, options: EyotStatusOptions | None) -> None:
        self.stop()
        self._options = options
        if options is not None:
            self._publish_in(min(FIRST_S, options.every_s), options)
            self._end_watch = self._broker.links.on_link_up(None, lambda link: self._link_came(link, options))

    def _link_came(self, link: LeafConnection, options: EyotStatusOptions) -> None:
        """Publish now, or LINK_GAP_S after the last status: the hub learns of this device without waiting for `every`."""
        timer, timers = self._timer, self._broker.timers
        if not link.state.solicited or timer is None:
            return
        at = max(self._broker.clock.monotonic(), self._published_at + LINK_GAP_S)
        if at < timer.deadline:
            timer.cancel()
            self._timer = timers.call_at(at, lambda: self._publish(options))

    def _publish_in(self, wait_s: float, options: EyotStatusOptions) -> None:
        self._timer = self._broker.timers.call_later(wait_s, lambda: self._publish(options))

    def _publish(self, options: EyotStatusOptions) -> None:
        self._publish_in(options.every_s, options)
        account = self._broker.accounts.get(options.account)
        if account is None:
            log.warning("The device status is not published: there is no account %s", options.account)
            return
        self._published_at = self._broker.clock.monotonic()
        self._number += 1
        status = device_status(self._broker, options, self._number)
        account.publish(options.subject, payload=msgspec.json.encode(status))


def device_status(broker: Broker, options: EyotStatusOptions, number: int = 0) -> DeviceStatus:
    """Return the present status. `number`: which one it is since the start."""
    providers, now_ns = broker.providers, broker.clock.now_ns()
    links = [link for link in providers.links() if link.role == _SPOKE]
    up = [link for link in links if link.state == "up"]
    out, streams, store = providers.downstream(), providers.streams(), providers.store()
    furthest = max(out, key=lambda each: each.backlog, default=None)
    jetstream, flash = broker.options.jetstream, providers.flash()
    told = stream_statuses(streams, out)
    used = memory(memory_bytes())
    return DeviceStatus(
        device=broker.server_name,
        domain="" if jetstream is None else jetstream.domain,
        at=ns_to_rfc3339(now_ns),
        every_s=options.every_s,
        boot=broker.server_id,
        number=number,
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
        eta_s=_longest_eta(out),
        messages=sum(stream.messages for stream in streams),
        store_error=None if store is None else store.error,
        link_error=next((link.last_error for link in links if link.state != "up" and link.last_error), None),
        streams=told[: options.streams],
        streams_left_out=max(0, len(told) - options.streams),
        disk_free_bytes=None if store is None else store.free_bytes,
        disk_total_bytes=None if store is None else store.total_bytes,
        flash_used_percent=None if flash is None else flash.used_percent,
        flash_lifetime_days=None if flash is None else flash.lifetime_days,
        memory_bytes=used.resident_bytes,
        memory_free_bytes=used.available_bytes,
        certificate_expires=_first_certificate(broker.options),
        token_expires=_first_token(links),
        clock_synchronized=broker.clock.is_synchronized(),
    )


def stream_statuses(streams: Iterable[StreamStatus], out: Iterable[SyncStatus]) -> list[DeviceStreamStatus]:
    """Return what a status tells of each stream, those that need somebody first."""
    downstreams: defaultdict[tuple[str, str], list[SyncStatus]] = defaultdict(list)
    for each in out:
        downstreams[each.account, each.stream].append(each)
    found = [_stream_status(stream, downstreams[stream.account, stream.name]) for stream in streams]
    return sorted(found, key=_need)


def _stream_status(stream: StreamStatus, downstreams: list[SyncStatus]) -> DeviceStreamStatus:
    found = DeviceStreamStatus(
        account=stream.account, name=stream.name, messages=stream.messages, last_seq=stream.last_seq
    )
    if not downstreams:
        return found
    furthest = max(downstreams, key=lambda each: each.backlog)
    found.peer, found.confirmed_seq = furthest.peer, furthest.confirmed_seq
    found.backlog, found.backlog_bytes = furthest.backlog, furthest.backlog_bytes
    found.oldest_s, found.eta_s, found.error = furthest.oldest_s, furthest.eta_s, furthest.error
    found.never_arrived = sum(each.never_arrived for each in downstreams)
    return found


def _need(stream: DeviceStreamStatus) -> tuple[bool, bool, int, bool, str, str]:
    lacks = stream.backlog or 0
    return (
        not stream.never_arrived,
        not (stream.error and lacks),
        -lacks,
        not stream.peer,
        stream.account,
        stream.name,
    )


def _longest_eta(out: list[SyncStatus]) -> float | None:
    """Return the time until everything is confirmed, 0 if it is; None: one of them is not known."""
    etas = [each.eta_s for each in out if each.backlog]
    known = [eta for eta in etas if eta is not None]
    if not out or len(known) < len(etas):
        return None
    return max(known, default=0.0)


def _first_certificate(options: Options) -> str | None:
    ends = [end for file in own_certificates(options) if (end := not_after(file)) is not None]
    return min(ends).strftime("%Y-%m-%dT%H:%M:%SZ") if ends else None


def _first_token(links: list[LinkStatus]) -> str | None:
    return min((link.credentials_expire for link in links if link.credentials_expire is not None), default=None)
