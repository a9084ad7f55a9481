"""The device's own status, published again and again for whoever keeps an eye on a fleet: `eyot { status { } }`.

One JSON message (`eyot_wire.status.DeviceStatus`) on a subject of an account. Let a stream of the device take it in and the hub
source that stream, and what the device went through while it was offline arrives with everything else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.config.jetstream import EyotStatusOptions
from eyot_daemon.version import own_version
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import DeviceStatus, all_synced

if TYPE_CHECKING:
    from eyot_daemon.router.broker import Broker

log = logging.getLogger("eyot")

#: The first status after the start: links have had a moment by then.
FIRST_S = 2.0
_SPOKE = "spoke"


class StatusPublisher:
    """`start` begins; it ends with the daemon."""

    def __init__(self, broker: Broker, options: EyotStatusOptions) -> None:
        self._broker = broker
        self._options = options

    def start(self) -> None:
        """Needs the clock of a running daemon."""
        self._broker.timers.call_later(min(FIRST_S, self._options.every_s), self._publish)

    def _publish(self) -> None:
        options = self._options
        self._broker.timers.call_later(options.every_s, self._publish)
        account = self._broker.accounts.get(options.account)
        if account is None:
            log.warning("The status goes nowhere: there is no account %s", options.account)
            return
        account.publish(options.subject, payload=msgspec.json.encode(device_status(self._broker, options.every_s)))


def device_status(broker: Broker, every_s: float) -> DeviceStatus:
    """The status at this moment."""
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
