"""A consumer's advisories (ADR-1), published only with a subscriber."""

from typing import TYPE_CHECKING

from eyot_wire.go.time import ZERO_TIME, ns_to_rfc3339
from eyot_wire.jetstream.struct import JsStruct, always, encode
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account

_ADVISORY = b"$JS.EVENT.ADVISORY.CONSUMER."
_METRIC = b"$JS.EVENT.METRIC.CONSUMER.ACK."


class _Event(JsStruct, kw_only=True):
    """Members in nats-server's order: `domain` is the last one, but before a pin's."""

    type: str = always("")
    id: str = always("")
    timestamp: str = always("")
    account: str = ""  # in some kinds only
    stream: str = always("")
    consumer: str = always("")


class _MaxDeliver(_Event, kw_only=True):
    stream_seq: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class _Nak(_Event, kw_only=True):
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class _Terminated(_Event, kw_only=True):
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    deliveries: int = always(0)
    reason: str = ""
    domain: str = ""


class _AckMetric(_Event, kw_only=True):
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    ack_time: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class _Action(_Event, kw_only=True):
    action: str = always("")
    domain: str = ""


class _Pause(_Event, kw_only=True):
    paused: bool = always(False)
    pause_until: str = always(ZERO_TIME)
    domain: str = ""


class _Pinned(_Event, kw_only=True):
    domain: str = ""
    group: str = always("")
    pinned_id: str = always("")


class _Unpinned(_Event, kw_only=True):
    domain: str = ""
    group: str = always("")
    reason: str = always("")


_AnyEvent = _MaxDeliver | _Nak | _Terminated | _AckMetric | _Action | _Pause | _Pinned | _Unpinned


class Advisories:
    """The voice of one consumer. Sequences as in the acknowledgement subject, `ack_time_ns` in nanoseconds."""

    def __init__(self, account: "Account", stream: str, consumer: str, domain: str) -> None:
        self._account = account
        self._stream = stream
        self._consumer = consumer
        self._domain = domain
        self._tail = f"{stream}.{consumer}".encode()

    def created(self) -> None:
        self._publish(_ADVISORY + b"CREATED.", "advisory.v1.consumer_action", _Action(action="create"))

    def deleted(self) -> None:
        self._publish(_ADVISORY + b"DELETED.", "advisory.v1.consumer_action", _Action(action="delete"))

    def paused(self, until: str, paused: bool) -> None:
        event = _Pause(paused=paused, pause_until=until or ZERO_TIME)
        self._publish(_ADVISORY + b"PAUSE.", "advisory.v1.consumer_pause", event)

    def pinned(self, group: str, pin_id: str) -> None:
        event = _Pinned(account=self._account.name, group=group, pinned_id=pin_id)
        self._publish(_ADVISORY + b"PINNED.", "advisory.v1.consumer_group_pinned", event)

    def unpinned(self, group: str, reason: str) -> None:
        event = _Unpinned(account=self._account.name, group=group, reason=reason)
        self._publish(_ADVISORY + b"UNPINNED.", "advisory.v1.consumer_group_unpinned", event)

    def max_deliveries(self, sseq: int, deliveries: int) -> None:
        event = _MaxDeliver(stream_seq=sseq, deliveries=deliveries)
        self._publish(_ADVISORY + b"MAX_DELIVERIES.", "advisory.v1.max_deliver", event)

    def naked(self, cseq: int, sseq: int, deliveries: int) -> None:
        event = _Nak(consumer_seq=cseq, stream_seq=sseq, deliveries=deliveries)
        self._publish(_ADVISORY + b"MSG_NAKED.", "advisory.v1.nak", event)

    def terminated(self, cseq: int, sseq: int, deliveries: int, reason: str) -> None:
        event = _Terminated(consumer_seq=cseq, stream_seq=sseq, deliveries=deliveries, reason=reason)
        self._publish(_ADVISORY + b"MSG_TERMINATED.", "advisory.v1.terminated", event)

    def acked(self, cseq: int, sseq: int, ack_time_ns: int, deliveries: int) -> None:
        event = _AckMetric(consumer_seq=cseq, stream_seq=sseq, ack_time=ack_time_ns, deliveries=deliveries)
        self._publish(_METRIC, "metric.v1.consumer_ack", event)

    def _publish(self, prefix: bytes, kind: str, event: _AnyEvent) -> None:
        account = self._account
        subject = prefix + self._tail
        if not account.has_interest(subject):
            return
        event.type = "io.nats.jetstream." + kind
        event.id = nuid()
        event.timestamp = ns_to_rfc3339(account.broker.clock.now_ns())
        event.stream = self._stream
        event.consumer = self._consumer
        event.domain = self._domain
        account.publish(subject, payload=encode(event))
