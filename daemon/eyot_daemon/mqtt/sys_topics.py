"""`$SYS/broker/…`: the topics that dashboards for mosquitto read, about the clients of one account.

They exist in the MQTT layer alone: no stream and no NATS subscriber gets them, since `$SYS.` is the system account's. A
client gets them by a filter that begins with `$SYS/`, as far as its permissions let it subscribe to `$SYS.broker.>`.

Nothing is computed while nobody subscribes. Then values are sent as they are, with the retain flag, and every
`interval_s` those that changed. Averages (`load/`) are exponentially weighted as mosquitto's; of the time in which nobody
listened, only the mean rate is known.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from eyot_daemon.mqtt.session import Session
from eyot_daemon.mqtt.session_link import Outgoing
from eyot_daemon.version import own_version
from eyot_wire.mqtt import topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eyot_daemon.mqtt.counters import Drops, Traffic
    from eyot_daemon.mqtt.session_record import SubOptions
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.core import BrokerCore
    from eyot_daemon.turn.timers import TimerHandle

PREFIX: Final = "$SYS/broker/"
#: Until the next look, where a reload switched the topics off.
IDLE_S: Final = 60.0
#: Minutes of the averages.
_MINUTES: Final = (1, 5, 15)
_NS: Final = 1_000_000_000


class SysSource(Protocol):
    """The account whose figures are published."""

    traffic: Traffic
    drops: Drops

    def each(self) -> Iterable[Session]: ...

    @property
    def queued_state(self) -> tuple[int, int]:
        """Messages on flash for sessions, and their bytes."""
        ...

    @property
    def retained_count(self) -> int: ...


class SysReceiver(Protocol):
    """A connection that subscribes to the topics."""

    session: Session
    access: Access | None
    closed: bool

    def allows(self, topic_filter: str) -> bool:
        """Return whether the client may have messages for one of its filters."""
        ...


def is_sys_filter(topic_filter: str) -> bool:
    """Return whether a filter names the topics; those that begin with a wildcard do not [MQTT-4.7.2-1]."""
    return topic_filter.startswith("$SYS/")


def filter_subjects(topic_filter: str) -> tuple[bytes, ...] | None:
    """Return the subjects that stand for a filter in permissions: `retained messages` has a blank, which none has."""
    return topics.filter_subjects(topic_filter.replace(" ", "_"))


class SysTopics:
    """The topics of one account, and who subscribes to them. `interval_s`: 0 for no topics."""

    def __init__(self, broker: BrokerCore, source: SysSource, interval_s: float) -> None:
        self.interval_s = interval_s
        self._broker = broker
        self._source = source
        self._filters: dict[SysReceiver, dict[str, SubOptions]] = {}
        self._told: dict[str, bytes] = {}
        self._load = _Load(broker.clock.monotonic())
        self._timer: TimerHandle | None = None

    def subscribe(self, receiver: SysReceiver, topic_filter: str, options: SubOptions) -> None:
        """Send a connection what changes from now on; see `replay` for what is."""
        if not self.interval_s:
            return
        if not self._filters:
            self._told = self._values()
            self._timer = self._broker.timers.call_later(self.interval_s, self._tick)
        self._filters.setdefault(receiver, {})[topic_filter] = options

    def replay(self, receiver: SysReceiver, topic_filter: str) -> None:
        """Send a connection all values of a filter that it has subscribed to."""
        options = self._filters.get(receiver, {}).get(topic_filter)
        if options is not None and receiver.allows(topic_filter):
            for topic, payload in self._told.items():
                if topics.filter_matches(topic_filter, topic):
                    self._send(receiver, topic, payload, [options], retain=True)

    def unsubscribe(self, receiver: SysReceiver, topic_filter: str) -> None:
        filters = self._filters.get(receiver, {})
        filters.pop(topic_filter, None)
        if not filters:
            self.leave(receiver)

    def leave(self, receiver: SysReceiver) -> None:
        """Forget a connection; without any, the timer ends."""
        self._filters.pop(receiver, None)
        if not self._filters:
            self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_running(self) -> bool:
        """Whether anybody listens, so that values are computed."""
        return self._timer is not None

    # -- publishing --------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._broker.timers.call_later(self.interval_s or IDLE_S, self._tick)
        if not self.interval_s:
            return
        values = self._values()
        changed = {topic: payload for topic, payload in values.items() if self._told.get(topic) != payload}
        self._told = values
        for receiver, filters in list(self._filters.items()):
            for topic, payload in changed.items():
                wanted = [
                    each
                    for name, each in filters.items()
                    if topics.filter_matches(name, topic) and receiver.allows(name)
                ]
                if wanted:
                    self._send(receiver, topic, payload, wanted, retain=False)

    def _send(
        self, receiver: SysReceiver, topic: str, payload: bytes, options: list[SubOptions], *, retain: bool
    ) -> None:
        subject = topics.to_subject(topic.replace(" ", "_"))
        if receiver.closed or (receiver.access is not None and not receiver.access.may_receive(subject or b"")):
            return
        identifiers = tuple(each.identifier for each in options if each.identifier)
        receiver.session.send(Outgoing(topic, b"", b"", payload, 0, retain, identifiers))

    def _values(self) -> dict[str, bytes]:
        source, broker = self._source, self._broker
        traffic = source.traffic
        sessions = filters = shared = 0
        for session in source.each():
            sessions += 1
            filters += len(session.record.subs)
            shared += len(session.shared)
        dropped = sum(source.drops.by_reason.values())
        stored, stored_bytes = source.queued_state
        retained = source.retained_count
        received, sent = sum(traffic.received), sum(traffic.sent)
        counts = {
            "bytes/received": traffic.bytes_in,
            "bytes/sent": traffic.bytes_out,
            "clients/active": traffic.clients,
            "clients/connected": traffic.clients,
            "clients/disconnected": sessions - traffic.clients,
            "clients/expired": traffic.expired,
            "clients/inactive": sessions - traffic.clients,
            "clients/maximum": traffic.clients_max,
            "clients/total": sessions,
            "messages/received": traffic.packets_in,
            "messages/sent": traffic.packets_out,
            "messages/stored": stored + retained,
            "publish/bytes/received": traffic.payload_in,
            "publish/bytes/sent": traffic.payload_out,
            "publish/messages/dropped": dropped,
            "publish/messages/received": received,
            "publish/messages/sent": sent,
            "retained messages/count": retained,
            "shared_subscriptions/count": shared,
            "store/messages/bytes": stored_bytes,
            "store/messages/count": stored + retained,
            "subscriptions/count": filters,
        }
        rates = {
            "bytes/received": traffic.bytes_in,
            "bytes/sent": traffic.bytes_out,
            "connections": traffic.connects,
            "messages/received": traffic.packets_in,
            "messages/sent": traffic.packets_out,
            "publish/dropped": dropped,
            "publish/received": received,
            "publish/sent": sent,
            "sockets": traffic.connects,
        }
        uptime_s = (broker.clock.now_ns() - broker.started_ns) // _NS
        values = {PREFIX + name: b"%d" % value for name, value in counts.items()}
        for name, value in self._load.at(broker.clock.monotonic(), rates).items():
            values[f"{PREFIX}load/{name}"] = b"%.2f" % value
        values[PREFIX + "uptime"] = b"%d seconds" % uptime_s
        values[PREFIX + "version"] = b"Eyot %b" % own_version().encode()
        return values


class _Load:
    """Rates per minute, averaged over 1, 5 and 15 minutes; `began`: monotonic time of the start, seconds."""

    def __init__(self, began: float) -> None:
        self._at = began
        self._totals: dict[str, int] = {}
        self._averages: dict[tuple[str, int], float] = {}

    def at(self, now: float, totals: dict[str, int]) -> dict[str, float]:
        """Return the averages by name (`messages/sent/5min`), after these totals at `now`."""
        elapsed = now - self._at
        if elapsed > 0:
            for name, total in totals.items():
                rate = (total - self._totals.get(name, 0)) * 60.0 / elapsed
                for minutes in _MINUTES:
                    kept = math.exp(-elapsed / (60.0 * minutes))
                    before = self._averages.get((name, minutes), 0.0)
                    self._averages[name, minutes] = rate + kept * (before - rate)
            self._at, self._totals = now, dict(totals)
        return {f"{name}/{minutes}min": value for (name, minutes), value in self._averages.items()}
