"""Publishes of MQTT clients, and wills.

A publish of QoS 1 or 2 is acknowledged when every stream that takes its subject has it on flash, and so have the queues
of persistent sessions and the retained messages; all of them, or none. Other subscribers get the message then, in the
order of the publishes. What needs no flash is delivered and acknowledged at once.

A publish that is refused is answered with a reason code (MQTT 5), or not at all (3.1.1 has no such answer): its
connection is closed after a pause, so that the client sends it again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from eyot_daemon.jetstream.nats_headers import MSG_ID
from eyot_daemon.mqtt import message, repetitions, stream_context
from eyot_daemon.mqtt.publication import Publication, Result
from eyot_daemon.mqtt.retained_store import RETAINED_PREFIX, Coming
from eyot_daemon.mqtt.session_queue import QUEUE_PREFIX
from eyot_daemon.router.delivery import Delivery
from eyot_daemon.router.subscription import Kind
from eyot_wire import headers
from eyot_wire.frames import Published
from eyot_wire.jetstream.error_codes import JSStreamMessageExceedsMaximumErr, JSStreamSealedErr
from eyot_wire.mapping import DROPPED
from eyot_wire.mqtt.reason_codes import ReasonCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.mqtt.counters import Drops
    from eyot_daemon.mqtt.repetitions import Repetitions
    from eyot_daemon.mqtt.session_record import SessionRecord
    from eyot_daemon.mqtt.store import MqttStore
    from eyot_daemon.mqtt.stored_topics import StoredTopics
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.route import Route
    from eyot_daemon.router.subscription import Origin
    from eyot_wire.jetstream.errors import ApiError

#: Subjects of the servers: MQTT clients publish there only if a permission says so. A device that may publish
#: everything must not delete streams with `$JS/API/STREAM/DELETE/ORDERS`.
RESERVED: Final = (b"$JS.", b"$SYS.", b"$NRG.", b"$JSC.")
#: Subjects of MQTT's own streams: never a client's.
OWN: Final = b"$MQTT."

_REASONS: Final = {
    JSStreamMessageExceedsMaximumErr: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    JSStreamSealedErr: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


class PublishContext(Protocol):
    """The sessions of an account, as a publish uses them."""

    drops: Drops
    stored_topics: StoredTopics
    repetitions: Repetitions

    @property
    def store(self) -> MqttStore: ...

    def queues(self, subject: bytes) -> bool:
        """Return whether a persistent session wants messages of QoS 1 and 2 on this subject."""
        ...

    def record_of(self, client_id: str) -> SessionRecord:
        """Return the record of the session that publishes with QoS 2."""
        ...

    def reply_subject(self, publisher: Publisher, publication: Publication) -> bytes:
        """Return the reply subject for subscribers of NATS; b"" without one."""
        ...


class Publisher:
    """The origin of publishes: a connection, or a session whose will is published. An `Origin` for the router.

    `current` is what it is publishing now: subscribers of MQTT look there for its QoS and its retain flag.
    """

    __slots__ = ("_headers", "access", "account", "client_id", "current", "sessions", "stored")

    kind = Kind.CLIENT
    echo = True

    def __init__(self, client_id: str, account: Account, access: Access | None, sessions: PublishContext) -> None:
        self.client_id = client_id
        self.account = account
        self.access = access
        self.sessions = sessions
        self.current: Publication | None = None
        #: the streams that have `current` on flash; None: what stores it does so now
        self.stored: list[stream_context.Place] | None = None
        #: headers of publishes without properties, by QoS; none before the first
        self._headers: dict[int, bytes] | None = None

    def plain_header(self, qos: int) -> bytes:
        """Return the header of a publish without properties."""
        known = self._headers
        if known is None:
            known = self._headers = {}
        header = known.get(qos)
        if header is None:
            header = known[qos] = message.header_of(None, qos, self.client_id, 0)
        return header

    @property
    def publisher(self) -> Publisher:
        """Itself: a connection that publishes has one, too."""
        return self

    def may_publish(self, subject: bytes) -> bool:
        """Return whether the client may publish on `subject`."""
        if subject.startswith(OWN):
            return False
        access = self.access
        if access is None:
            return not subject.startswith(RESERVED)
        return access.may_publish(subject, self.account.broker.clock.monotonic())

    def may_publish_always(self, subject: bytes) -> bool:
        """Return whether the client may publish on `subject` whatever it was asked: a permission to reply is not used."""
        access = self.access
        if access is None or subject.startswith(OWN):
            return self.may_publish(subject)
        return access.may_publish_always(subject)


def publish(publisher: Publisher, publication: Publication, origin: Origin, done: Callable[[Result], None]) -> None:
    """Publish; `done` is called once: at once for QoS 0 and where no flash is needed, else after the commit.

    `origin`: whom subscribers regard as the publisher.
    """
    account = publisher.account
    mapped = account.mappings.apply(publication.subject)
    if mapped == DROPPED:
        done(Result(ReasonCode.SUCCESS))
        return
    subject = publication.subject if mapped is None else mapped
    if not publisher.may_publish(subject):
        publisher.sessions.drops.count("denied")
        done(Result(ReasonCode.NOT_AUTHORIZED, "no permission to publish"))
        return
    if publication.properties is None:
        header = publisher.plain_header(publication.qos)
    else:
        header = message.header_of(
            publication.properties, publication.qos, publisher.client_id, account.broker.clock.now_ns()
        )
    plan = _Plan(publisher, publication, origin, subject, header)
    if not publication.qos:
        plan.deliver()
        if publication.retain:
            plan.retain()
        done(Result(ReasonCode.SUCCESS))
        return
    plan.commit(done)


class _Plan:
    """One publish on its way: where it goes, and what becomes of it."""

    def __init__(
        self, publisher: Publisher, publication: Publication, origin: Origin, subject: bytes, header: bytes
    ) -> None:
        self._publisher = publisher
        self._publication = publication
        self._origin = origin
        self._subject = subject
        self._header = header
        self._stored: list[stream_context.Place] | None = None

    def commit(self, done: Callable[[Result], None]) -> None:
        """Store a publish of QoS 1 or 2 wherever it belongs; then deliver it to all others, and tell `done`."""
        account, sessions = self._publisher.account, self._publisher.sessions
        self._stored = stream_context.places(account, self._subject)
        streams = [(place.stream, place.subject) for place in self._stored]
        queue = self._queue_entry() if sessions.queues(self._subject) else None

        def settled(error: ApiError | None) -> None:
            if error is not None:
                sessions.drops.count("refused")
                done(Result(reason_of(error), error.description))
            else:
                reached = self.deliver() + len(streams) + (queue is not None)
                done(Result(ReasonCode.SUCCESS if reached else ReasonCode.NO_MATCHING_SUBSCRIBERS))

        self.store(streams, queue, settled)

    def store(
        self,
        streams: Sequence[tuple[Stream, bytes]],
        queue: Published | None,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Store in one transaction; `done` at once when there is nothing to store."""
        publication, sessions = self._publication, self._publisher.sessions
        retain = unretain = None
        if publication.retain:
            if publication.payload:
                retain = Published(RETAINED_PREFIX + self._subject, b"", self._header, publication.payload)
            else:
                unretain = self._subject
        hold = publication.hold
        if not (streams or queue or retain or unretain or hold):
            done(None)
            return
        targets = [(stream, self._entry(stream, subject)) for stream, subject in streams]
        sessions.store.publish(
            targets,
            hold=None if hold is None else (self._record(), *hold),
            retain=retain,
            unretain=unretain,
            queue=queue,
            done=done,
        )

    def retain(self) -> None:
        """Retain a publish of QoS 0, which is delivered: who subscribes before the commit gets it from memory."""
        retained = self._publisher.sessions.store.retained
        coming = Coming(self._subject, self._header, self._publication.payload)
        retained.coming(coming)
        self.store((), None, lambda error: retained.settled(coming))

    def _record(self) -> SessionRecord:
        return self._publisher.sessions.record_of(self._publisher.client_id)

    def _entry(self, stream: Stream, subject: bytes) -> Published:
        header, properties = self._header, self._publication.properties
        if properties is not None and properties.message_expiry_interval and stream.config.allow_msg_ttl:
            header = headers.add_field(header, message.TTL, b"%d" % properties.message_expiry_interval)
        if self._publication.packet_id and repetitions.wanted(stream):
            known = self._publisher.sessions.repetitions
            msg_id = known.msg_id(stream, self._publisher.client_id, self._publication)
            header = headers.add_field(header, MSG_ID, msg_id)
        return Published(subject, b"", header, self._publication.payload)

    def _queue_entry(self) -> Published:
        header, properties = self._header, self._publication.properties
        if self._publication.retain:
            header = headers.add_field(header, message.RETAIN, b"1")
        if properties is not None and properties.message_expiry_interval is not None:
            # One that has expired at once is dropped when it is delivered, or a second later.
            header = headers.add_field(header, message.TTL, b"%d" % max(1, properties.message_expiry_interval))
        return Published(QUEUE_PREFIX + self._subject, b"", header, self._publication.payload)

    def deliver(self) -> int:
        """Deliver to subscribers other than streams; for QoS 0 to streams, too. Returns how many accepted it."""
        publisher, account = self._publisher, self._publisher.account
        route = account.route(self._subject)
        if self._publication.qos:
            route = route.without_streams()
        if not route:
            return 0
        publisher.current, publisher.stored = self._publication, self._stored
        try:
            return account.carry_out(self._delivery(account, route))
        finally:
            publisher.current = publisher.stored = None

    def _delivery(self, account: Account, route: Route) -> Delivery:
        reply = self._publisher.sessions.reply_subject(self._publisher, self._publication)
        return Delivery(route, reply, self._header, self._publication.payload, self._origin, b"", account.broker.random)


def reason_of(error: ApiError) -> ReasonCode:
    """Return the reason code for a refusal of the store: mostly that there is no room."""
    return _REASONS.get(error.err_code, ReasonCode.QUOTA_EXCEEDED)
