"""Advisories about streams (ADR-3) and consumers (ADR-1): events in the stream's account, published only with a subscriber."""

from typing import TYPE_CHECKING, Literal

from eyot_wire.go.time import ZERO_TIME, ns_to_rfc3339
from eyot_wire.jetstream.struct import JsStruct, always, empty, encode
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account

PREFIX = "$JS.EVENT.ADVISORY"
#: Why an atomic batch was dropped.
AbandonReason = Literal["timeout", "large", "incomplete", "unsupported"]
_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}


class Advisory(JsStruct, kw_only=True):
    """The common members of all advisories."""

    type: str = always("")
    id: str = always("")
    timestamp: str = always("")


class StreamAction(Advisory, kw_only=True):
    stream: str = always("")
    action: str = always("")
    domain: str = ""


class BatchAbandoned(Advisory, kw_only=True):
    stream: str = always("")
    batch: str = always("")
    reason: str = always("")


class AuditClient(JsStruct, kw_only=True):
    """The requester. `svc`: the account of the API, if the request came through an import. `rtt` in nanoseconds."""

    start: str = ""
    host: str = ""
    id: int = 0
    acc: str = always("")
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    server: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = empty(list)
    kind: str = ""
    client_type: str = ""


def wanted(account: "Account", subject: bytes) -> bool:
    """Return whether `subject` has a subscriber in the account."""
    return account.has_interest(subject)


def publish(account: "Account", subject: bytes, event: Advisory, kind: str) -> None:
    """Publish `event` with its type, id and time filled in. `kind`: the type's last part."""
    event.type = f"io.nats.jetstream.advisory.v1.{kind}"
    event.id = nuid()
    event.timestamp = ns_to_rfc3339(account.broker.clock.now_ns())
    account.publish(subject, payload=encode(event))


def stream_action(account: "Account", stream: str, action: Literal["create", "modify", "delete"], domain: str) -> None:
    """Publish that a stream was created, changed or deleted."""
    subject = f"{PREFIX}.STREAM.{_STREAM_EVENTS[action]}.{stream}".encode()
    if wanted(account, subject):
        publish(account, subject, StreamAction(stream=stream, action=action, domain=domain), "stream_action")


def batch_abandoned(account: "Account", stream: str, batch: bytes, reason: AbandonReason) -> None:
    """Publish that an incomplete atomic batch was dropped."""
    subject = f"{PREFIX}.STREAM.BATCH_ABANDONED.{stream}".encode()
    if wanted(account, subject):
        event = BatchAbandoned(stream=stream, batch=batch.decode("utf-8", "replace"), reason=reason)
        publish(account, subject, event, "stream_batch_abandoned")


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
