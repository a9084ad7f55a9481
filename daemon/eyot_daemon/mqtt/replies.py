"""Requests of MQTT 5 that services of NATS answer: response topic and correlation data as reply subjects.

A service of NATS answers on the reply subject and does not echo headers. A request with correlation data therefore gets
a reply subject of its own, and the answer is published on the response topic with the correlation data. A request
without any is answered on the subject of its response topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eyot_daemon.mqtt import message
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_wire import headers
from eyot_wire.mqtt import topics
from eyot_wire.nuid import nuid, short_id

if TYPE_CHECKING:
    from eyot_daemon.mqtt.publication import Publication
    from eyot_daemon.router.account import Account

#: Requests that wait for answers, in one account; the oldest is forgotten first.
PENDING_MAX: Final = 4096
#: How long a request waits for answers.
ANSWER_S: Final = 60.0


class MayPublish(Protocol):
    """A publisher, as far as its permissions matter."""

    def may_publish(self, subject: bytes) -> bool: ...


class _Request(NamedTuple):
    subject: bytes
    header: bytes
    until: float


class Replies:
    """The pending requests of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._prefix = b"_INBOX.%b." % nuid(account.broker.ids).encode()
        self._pending: dict[bytes, _Request] = {}
        self._subscription: Subscription | None = None

    def subject_for(self, publisher: MayPublish, publication: Publication) -> bytes:
        """Return the reply subject of a publish; b"" if it asks for no response, or may not be answered there."""
        properties = publication.properties
        if properties is None or not properties.response_topic:
            return b""
        subject = topics.to_subject(properties.response_topic)
        if subject is None or not publisher.may_publish(subject):
            return b""
        if properties.correlation_data is None:
            return subject
        return self._wait(subject, properties.correlation_data)

    def _wait(self, subject: bytes, correlation: bytes) -> bytes:
        broker = self._account.broker
        now = broker.clock.monotonic()
        while self._pending:
            oldest = next(iter(self._pending))
            if len(self._pending) < PENDING_MAX and self._pending[oldest].until > now:
                break
            del self._pending[oldest]
        if self._subscription is None:
            dest = CallbackDest(self._answered, Kind.SYSTEM, "mqtt replies")
            self._subscription = self._account.subscribe(self._prefix + b"*", dest)
        inbox = self._prefix + short_id(broker.ids).encode()
        header = headers.add_field(b"", message.CORRELATION, message.encoded(correlation))
        self._pending[inbox] = _Request(subject, header, now + ANSWER_S)
        return inbox

    def _answered(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        request = self._pending.get(subject)
        if request is None:
            return
        if header:
            correlation = headers.get(request.header, message.CORRELATION) or b""
            merged = headers.set_field(header, message.CORRELATION, correlation)
        else:
            merged = request.header
        self._account.publish(request.subject, reply, merged, payload)

    def stop(self) -> None:
        if self._subscription is not None:
            self._account.unsubscribe(self._subscription)
            self._subscription = None
        self._pending.clear()
