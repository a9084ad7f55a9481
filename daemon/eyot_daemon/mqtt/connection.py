"""One MQTT connection: packets in, packets out, and the session that they belong to.

Packets are handled in their order. CONNECT waits for the login and for the session, and what follows it waits with it.
From then on nothing waits for flash but its own answer: PINGREQ and QoS 0 pass a slow disk.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from eyot_daemon.client.close_reasons import close_reason
from eyot_daemon.client.served import (
    AUTHENTICATION_TIMEOUT,
    AUTHORIZATION_VIOLATION,
    MAX_ACCOUNT_CONNECTIONS,
    MAX_CONNECTIONS,
    USER_EXPIRED,
)
from eyot_daemon.mqtt import stream_context
from eyot_daemon.mqtt.authentication import Reauthentication
from eyot_daemon.mqtt.fifo import Fifo
from eyot_daemon.mqtt.handshake import Handshake
from eyot_daemon.mqtt.plain_delivery import publish_mixed, publish_plain, send_run
from eyot_daemon.mqtt.publication import Publication, Result
from eyot_daemon.mqtt.publishing import Publisher, publish, reason_of
from eyot_daemon.mqtt.sending import MqttSender
from eyot_daemon.mqtt.session import BACKLOG_BYTES, Outgoing
from eyot_daemon.mqtt.stored_runs import publish_stored
from eyot_daemon.mqtt.subscribing import REST_SID, Subscriber
from eyot_daemon.net.transport import SERVER_SHUTDOWN
from eyot_daemon.turn.backpressure import Gate
from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.errors import MqttError, ProtocolError
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from eyot_wire.mqtt.plain_publishes import AckedPublishes, MixedPublishes, PlainPublishes
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import RUNS, PacketReader, Runs
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.mqtt.topic_aliases import InboundAliases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eyot_daemon.auth.login import Peer
    from eyot_daemon.client.context import ClientContext
    from eyot_daemon.client.served import Registry
    from eyot_daemon.mqtt.server import MqttServer
    from eyot_daemon.mqtt.session_record import SubOptions
    from eyot_daemon.net.transport import Transport
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.subscription import Origin, Subscription
    from eyot_wire.jetstream.errors import ApiError

log = logging.getLogger("eyot.mqtt")

#: The most bytes kept of a client whose CONNECT is not answered yet: before its login, and while its session is opened.
EARLY_BYTES_MAX: Final = 48 * 1024
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
#: Repetitions of one publish of QoS 2 that get an answer each when it is on flash.
WAITING_MAX: Final = 16
STORED: Final = Result(ReasonCode.SUCCESS)
#: DISCONNECT for what ends a connection from the server's side; CONNACK for what does so before.
DISCONNECTS: Final = {
    AUTHORIZATION_VIOLATION: ReasonCode.NOT_AUTHORIZED,
    USER_EXPIRED: ReasonCode.MAXIMUM_CONNECT_TIME,
    MAX_CONNECTIONS: ReasonCode.QUOTA_EXCEEDED,
    MAX_ACCOUNT_CONNECTIONS: ReasonCode.QUOTA_EXCEEDED,
}
ANSWERS: Final = {
    AUTHORIZATION_VIOLATION: ReasonCode.NOT_AUTHORIZED,
    AUTHENTICATION_TIMEOUT: ReasonCode.NOT_AUTHORIZED,
    MAX_ACCOUNT_CONNECTIONS: ReasonCode.SERVER_BUSY,
}


class _Answer:
    """An acknowledgement in the order of the publishes: sent when all before it are."""

    __slots__ = ("packet_id", "qos", "result")

    def __init__(self, packet_id: int, qos: int) -> None:
        self.packet_id = packet_id
        self.qos = qos
        self.result: Result | None = None


class MqttConnection(MqttSender):
    """A client of MQTT as the broker sees it."""

    __slots__ = (
        "_aliases_in",
        "_answers",
        "_contexts",
        "_handshake",
        "_packets",
        "_reader",
        "_reauthentication",
        "_refusing",
        "_unreleased",
        "_waiting_bytes",
    )

    def __init__(
        self,
        clients: ClientContext,
        registry: Registry,
        transport: Transport,
        peer: Peer,
        cid: int,
        *,
        server: MqttServer,
    ) -> None:
        super().__init__(clients, registry, transport, peer, cid, server=server)
        self._reader = PacketReader(
            server.limits.packet_bytes, connect_bytes_max=min(EARLY_BYTES_MAX, clients.options.max_payload)
        )
        self._handshake = Handshake(self)
        #: packets behind a CONNECT that is not answered yet
        self._packets: Fifo[Packet | Runs] = Fifo()
        self._answers: Fifo[_Answer] = Fifo()
        #: MQTT 5: publishes of QoS 2 that have their PUBREC and not their PUBCOMP; they count against the window
        self._unreleased: dict[int, None] = {}
        self._aliases_in = InboundAliases(server.limits.aliases)
        self._waiting_bytes = 0
        self._reauthentication: Reauthentication | None = None
        self._contexts: stream_context.ContextQueue | None = None
        #: a publish of 3.1.1 was refused, which has no answer: those behind it wait for the next connection, in their order
        self._refusing = False
        self.subscriber = Subscriber(self)

    @property
    def live(self) -> bool:
        """CONNECT was answered, and the connection has a session."""
        return self._handshake.complete and not self.closed

    # -- packets -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Wait for CONNECT."""
        log.debug("%r - Client connection created", self)
        self.set_authentication_timer()

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Handle the bytes of one read of the socket."""
        if self.closed:
            return
        self.last_in = self.clients.broker.clock.monotonic()
        failure: MqttError | None = None
        read: list[Packet | Runs] = []
        traffic = self.traffic
        try:
            for packet in self._reader.feed_runs(data):
                read.append(packet)
                traffic.packets_in += packet.count if isinstance(packet, RUNS) else 1
        except MqttError as error:
            failure = error
        traffic.bytes_in += len(data)
        if self._handshake.complete and not self._packets:
            for packet in read:
                if not self.closed:
                    self._handle(packet)
        elif not self._wait_with(read, len(data)):
            return
        if failure is not None and not self.closed:
            log.error("%r - %s", self, failure)
            self.refuse(failure.reason_code)

    def _wait_with(self, read: list[Packet | Runs], size: int) -> bool:
        """Put packets behind those that wait, and handle what nothing holds; False: too much waits, the connection has ended."""
        if self._handshake.waiting or self._handshake.challenged:
            self._waiting_bytes += size
            if self._waiting_bytes > (EARLY_BYTES_MAX if self.account is None else HELD_BYTES_MAX):
                self.close("Protocol Violation", linger=False)
                return False
        for packet in read:
            self._packets.append(packet)
        self.handle_waiting()
        return True

    def handle_waiting(self) -> None:
        """Handle the packets that were read, as far as nothing holds them."""
        packets = self._packets
        while packets and not self.closed and not self._handshake.waiting:
            packet = packets.popleft()
            if self._handshake.complete:
                self._handle(packet)
            elif type(packet) is Connect:
                self._handshake.begin(packet)
            elif type(packet) is Auth and self._handshake.challenged:
                self._handshake.answered(packet)
            else:
                log.error("%r - first packet should be a CONNECT", self)
                self.server.note_refused(ReasonCode.PROTOCOL_ERROR)
                self.close("Protocol Violation", linger=False)

    def _handle(self, packet: Packet | Runs) -> None:
        if type(packet) is AckedPublishes:
            self._publish_acked(packet)
        elif type(packet) is PlainPublishes:
            self._publish_run(packet)
        elif type(packet) is MixedPublishes:
            self._publish_mixed(packet)
        elif type(packet) is Publish:
            self._publish(packet)
        elif type(packet) is Puback:
            self.session.puback(packet.packet_id)
        elif type(packet) is Pubrec:
            self._pubrec(packet)
        elif type(packet) is Pubrel:
            self._pubrel(packet.packet_id)
        elif type(packet) is Pubcomp:
            self.session.pubcomp(packet.packet_id)
        elif type(packet) is Pingreq:
            self.send_packet(encoder.PINGRESP)
        elif type(packet) is Subscribe:
            self.subscriber.subscribe(packet)
        elif type(packet) is Unsubscribe:
            self.subscriber.unsubscribe(packet)
        elif type(packet) is Disconnect:
            self._disconnected(packet)
        elif type(packet) is Auth and self._handshake.authenticates:
            self._authenticate(packet)
        else:  # AUTH without a method [MQTT-4.12.0-1]
            self.refuse(ReasonCode.PROTOCOL_ERROR)

    def _authenticate(self, packet: Auth) -> None:
        if self._reauthentication is None:
            self._reauthentication = Reauthentication(self)
        self._reauthentication.handle(packet)

    def refuse(self, reason: ReasonCode) -> None:
        """End the connection for a fault of the client: DISCONNECT with the reason (MQTT 5), then close."""
        if not self._handshake.complete:
            self.server.note_refused(reason)
        elif self.level == V5:
            self.send_packet(encoder.disconnect(reason))
        self.close("Protocol Violation", linger=True)

    # -- PUBLISH of the client -------------------------------------------------------------------------------------------

    def _publish_run(self, run: PlainPublishes) -> None:
        """Publish a run as a whole, or packet by packet where it is not plain."""
        if self._is_plain(run) and publish_plain(self.publisher, run):
            self._count_in(run, 0)
        else:
            self._publish_each(run)

    def _publish_mixed(self, run: MixedPublishes) -> None:
        """Publish a run of several topics as a whole, or topic by topic."""
        if self._is_plain(run) and publish_mixed(self.publisher, run):
            self._count_in(run, 0)
            return
        for part in run.runs():
            if not self.closed:
                self._publish_run(part)

    def _publish_acked(self, run: AckedPublishes) -> None:
        """Publish a run of QoS 1 as a whole, or packet by packet where it is not only stored."""
        room = self.server.limits.inflight_in - len(self._answers) - len(self._unreleased)
        if run.count <= room and not self._refusing and self._is_plain(run):
            answers = [_Answer(packet_id, 1) for packet_id in run.packet_ids]
            if publish_stored(self.publisher, run, partial(self._stored, answers)):
                for answer in answers:
                    self._answers.append(answer)
                self._count_in(run, 1)
                return
        self._publish_each(run)

    def _is_plain(self, run: Runs) -> bool:
        """Return whether a run needs no look at its packets."""
        return self.clients.trace is None and run.payload_max <= self.clients.max_payload_of(self)

    def _publish_each(self, run: PlainPublishes | AckedPublishes) -> None:
        for packet in run.publishes():
            if self.closed:
                return
            self._publish(packet)

    def _count_in(self, run: Runs, qos: int) -> None:
        count, size = run.count, run.payload_bytes
        self.in_msgs += count
        self.in_bytes += size
        self.traffic.received[qos] += count
        self.traffic.payload_in += size
        assert self.account is not None
        self.account.count_in(count, size)

    def _publish(self, packet: Publish) -> None:
        try:
            topic = self._aliases_in.resolve(packet) if self.is_v5 else packet.topic
        except ProtocolError as error:
            self.refuse(error.reason_code)
            return
        self.in_msgs += 1
        self.in_bytes += len(packet.payload)
        self.traffic.received[packet.qos] += 1
        self.traffic.payload_in += len(packet.payload)
        assert self.account is not None
        self.account.count_in(1, len(packet.payload))
        if self._refusing and packet.qos:
            return
        if packet.qos == 2 and self._is_held(packet, topic):
            return
        if not self._accepts(packet):
            return
        answer = _Answer(packet.packet_id, packet.qos)
        if packet.qos:
            self._answers.append(answer)
        subject = topics.to_subject(topic)
        if subject is None:
            self._published(answer, Result(ReasonCode.TOPIC_NAME_INVALID, "not a topic that can be a subject"))
            return
        hold = None
        if packet.qos == 2:
            held = (packet.packet_id, digest_of(packet, topic))
            self.session.hold(*held)
            hold = held if self.session.persistent else None  # else nothing of the session is on flash
        publication = Publication(topic, subject, packet.payload, packet.qos, packet.retain, packet.properties, hold)
        publish(self.publisher, publication, self, partial(self._published, answer))

    def _accepts(self, packet: Publish) -> bool:
        """Check size, quality of service and the window [MQTT-3.3.4-9]; answer a PUBLISH that is refused.

        The window counts a publish of QoS 2 until its PUBCOMP, on this connection alone (MQTT 5, 4.9).
        """
        limits = self.server.limits
        if len(packet.payload) > self.clients.max_payload_of(self):
            self.refuse(ReasonCode.PACKET_TOO_LARGE)
            return False
        if packet.qos == 2 and self.server.options.reject_qos2_publish:
            self.refuse(ReasonCode.QOS_NOT_SUPPORTED)
            return False
        if packet.qos and len(self._answers) + len(self._unreleased) >= limits.inflight_in:
            if self.is_v5:
                self.refuse(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
                return False
            self._wait_for_answers()
        return True

    def _wait_for_answers(self) -> None:
        """Read no more of a client of 3.1.1 until what it published is on flash: it cannot be told a maximum."""
        if self.gate is None:
            limit = self.server.limits.inflight_in
            self.gate = Gate(self.clients.broker.timers, lambda: len(self._answers) >= limit and not self.closed)
        self.transport.hold(self.gate)

    def _is_held(self, packet: Publish, topic: str) -> bool:
        """Answer a PUBLISH of QoS 2 that came before; False: it is a new one."""
        held = self.session.held.get(packet.packet_id)
        if held is None or held.digest != digest_of(packet, topic):
            return False
        if held.committed:
            if self.is_v5:
                self._unreleased[packet.packet_id] = None
            self.send_packet(encoder.pubrec(self.level, packet.packet_id))
        elif len(held.waiting) < WAITING_MAX:
            answer = _Answer(packet.packet_id, 2)
            self._answers.append(answer)
            held.waiting.append(partial(self._published, answer))
        return True

    def _published(self, answer: _Answer, result: Result) -> None:
        """Answer a publish that has its result, and those behind it that wait for their turn."""
        if answer.qos == 2:
            for waiting in self.session.hold_settled(answer.packet_id, kept=result.reason < 0x80):
                waiting(result)
        if self.closed:
            return
        if not answer.qos:
            if result.reason >= 0x80:
                self._refused_without_answer(result)
            return
        answer.result = result
        self._answer_in_order()

    def _stored(self, answers: list[_Answer], outcomes: Sequence[ApiError | None] | None) -> None:
        """Answer a run of QoS 1, and those behind it that wait for their turn."""
        waiting = self._answers
        if outcomes is None and not self.closed and len(waiting) == len(answers):
            waiting.clear()  # nobody else waits
            self.send_packet(b"".join([encoder.puback(self.level, each.packet_id) for each in answers]), len(answers))
            self._open_gate()
            return
        for answer, outcome in zip(answers, outcomes or (None,) * len(answers), strict=True):
            if outcome is not None:
                self.sessions.drops.count("refused")
            answer.result = STORED if outcome is None else Result(reason_of(outcome), outcome.description)
        if not self.closed:
            self._answer_in_order()

    def _answer_in_order(self) -> None:
        """Answer what has its result, up to the first that has not."""
        answers = self._answers
        while answers and answers.first.result is not None:
            self._answer(answers.popleft())
        self._open_gate()

    def _open_gate(self) -> None:
        if self.gate is not None and not self.gate.shut:
            gate, self.gate = self.gate, None
            gate.open()

    def _answer(self, answer: _Answer) -> None:
        result = answer.result
        assert result is not None
        reason = result.reason
        if not self.is_v5:
            if reason >= 0x80 and reason is not ReasonCode.NOT_AUTHORIZED:
                self._refused_without_answer(result)
                return
            reason = ReasonCode.SUCCESS
        properties = None
        if result.text and reason >= 0x80 and self.tells_problems:
            properties = Properties(reason_string=result.text)
        if answer.qos == 2 and reason < 0x80 and self.is_v5:
            self._unreleased[answer.packet_id] = None
        encode = encoder.puback if answer.qos == 1 else encoder.pubrec
        self.send_packet(encode(self.level, answer.packet_id, reason, properties))

    def _refused_without_answer(self, result: Result) -> None:
        """Log a refusal that the protocol cannot tell; QoS 1 and 2 of 3.1.1 end the connection after a pause."""
        self.server.tell_refusal(self, result)
        if result.reason is ReasonCode.TOPIC_NAME_INVALID and not self.is_v5:
            self.close("Protocol Violation", linger=True)
        elif not self.is_v5 and result.reason is not ReasonCode.NOT_AUTHORIZED and not self._refusing:
            self._refusing = True
            self.clients.broker.timers.call_later(
                self.server.limits.refusal_pause_s, partial(self.close, "Store Refused", linger=True)
            )

    def _pubrel(self, packet_id: int) -> None:
        """PUBREL: the client will not send the message again; its identifier is forgotten on flash before PUBCOMP."""
        session = self.session
        held = session.held.get(packet_id)
        if held is None:
            self._unreleased.pop(packet_id, None)
            self.send_packet(encoder.pubcomp(self.level, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
        elif held.committed:
            session.release(packet_id, partial(self._released, packet_id))

    def _released(self, packet_id: int, error: str) -> None:
        if not error and not self.closed:
            self._unreleased.pop(packet_id, None)
            self.send_packet(encoder.pubcomp(self.level, packet_id))

    # -- answers of the client -------------------------------------------------------------------------------------------

    def _pubrec(self, packet: Pubrec) -> None:
        reason = self.session.pubrec(packet.packet_id, packet.reason_code)
        if reason is not None:
            self.send_packet(encoder.pubrel(self.level, packet.packet_id, reason))

    # -- messages to the client ------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Deliver one message of the account; see `Destination.deliver`."""
        options = self.subscriber.options.get(sub.sid)
        if self.closed or options is None or not self._may_receive(sub, subject, reply):
            return False
        if options.ignores_dollar and subject.startswith(b"$"):
            return False
        publisher: Publisher | None = getattr(origin, "publisher", None)
        current = publisher.current if publisher is not None else None
        if options.no_local and publisher is not None and publisher.client_id == self.client_id:
            return False
        qos = min(current.qos, options.qos) if current is not None else 0
        if current is not None and current.qos and options.group:
            if self.sessions.group_is_queued(sub.sid.removesuffix(REST_SID).decode()):
                return True  # comes from the group's queue, to one of its members
        elif qos and self.session.persistent:
            return True  # comes from the queue
        topic = topics.to_topic(subject)
        if topic is None:
            self.sessions.drops.count("no_topic")
            return False
        matched: Sequence[SubOptions] = (options,)
        if current is not None and self.level == V5 and not options.group:
            matched = self._matched(sub, subject, publisher, current.qos)
            if not matched:
                return False  # it comes once, for all filters that take it
            qos = min(current.qos, max(each.qos for each in matched))
        retain = current is not None and current.retain and any(each.retain_as_published for each in matched)
        identifiers = tuple(each.identifier for each in matched if each.identifier)
        sub.delivered += 1
        outgoing = Outgoing(topic, reply, header, payload, qos, retain, identifiers)
        if any(each.context for each in matched):
            return self._send_with_context(sub.sid, subject, outgoing, publisher)
        return self.session.send(outgoing)

    def _matched(
        self, sub: Subscription, subject: bytes, publisher: Publisher | None, qos: int
    ) -> Sequence[SubOptions]:
        """Return the options of the filters that a message of a client of MQTT stands for."""
        if publisher is None or publisher.account is not self.account:
            return (self.subscriber.options[sub.sid],)
        return self.subscriber.overlaps.matched(
            sub.sid,
            subject,
            is_own=publisher.client_id == self.client_id,
            is_queued=self.session.persistent and qos > 0,
        )

    def _send_with_context(self, sid: bytes, subject: bytes, outgoing: Outgoing, publisher: Publisher | None) -> bool:
        """Send a message with the streams that have it, once they have it on flash."""
        context = stream_context.of_delivery(outgoing.header, outgoing.reply)
        assert self.account is not None
        stored = publisher.stored if publisher is not None else None
        found = stream_context.places(self.account, subject) if stored is None else stored
        if context or not found:
            return self.session.send(outgoing._replace(context=context))
        if self._contexts is None:
            self._contexts = stream_context.ContextQueue(self.account, self.session.send, self.session.drops.count)
        return self._contexts.add(sid, outgoing, found, committed=stored is not None)

    def deliver_run(self, sub: Subscription, subject: bytes, run: PlainPublishes, publisher: Publisher) -> None:
        """Deliver a run of plain publishes as `deliver` does each of them."""
        options = self.subscriber.options.get(sub.sid)
        if self.closed or options is None or not self._may_receive(sub, subject, b""):
            return
        if options.ignores_dollar and subject.startswith(b"$"):
            return
        if options.no_local and publisher.client_id == self.client_id:
            return
        sub.delivered += run.count
        if self.session.link is self:
            send_run(self, run, options)

    def takes_mixed(
        self, sub: Subscription, subjects: Sequence[bytes], run: MixedPublishes, publisher: Publisher
    ) -> bool:
        """Return whether `deliver_run` would send the bytes of all parts of a run as they came."""
        options = self.subscriber.options.get(sub.sid)
        if self.closed or options is None or options.identifier or self.session.link is not self:
            return False
        if (self.level == V5) != (run.level == V5) or not self._takes_packets(run.packet_max()):
            return False
        if options.no_local and publisher.client_id == self.client_id:
            return False
        if self.backlog + len(run.packets) > BACKLOG_BYTES:
            return False
        return all(
            self._may_receive(sub, subject, b"") and not (options.ignores_dollar and subject.startswith(b"$"))
            for subject in subjects
        )

    def _may_receive(self, sub: Subscription, subject: bytes, reply: bytes) -> bool:
        access = self.access
        if access is None:
            return True
        if sub.deny_filter and not access.may_receive(subject):
            return False
        if reply and access.replies is not None:
            access.replies.delivered(reply, self.clients.broker.clock.monotonic())
        return True

    def refill(self) -> bool:
        """Everything was sent: let the queue hand over more."""
        if self.live:
            self.session.pull()
        return bool(self.out)

    # -- the account ---------------------------------------------------------------------------------------------------

    def enter(self, account: Account, access: Access | None, user: str, max_payload: int) -> None:
        """Enter `account` after the login: packets are larger than their payloads."""
        super().enter(account, access, user, max_payload)
        self.transport.admit(self.server.limits.packet_bytes)

    def reauthorized(self, access: Access | None) -> None:
        """Apply changed permissions after a reload: subscriptions that are no longer allowed end."""
        self.access = access
        if self.live:
            self.publisher.access = access
            self.subscriber.reauthorized()

    # -- the handshake -------------------------------------------------------------------------------------------------

    def welcome(self) -> None:
        self.cancel_timer()
        self._handshake.logged_in()

    def turned_away(self) -> None:
        self._handshake.refused()

    def go_on(self) -> None:
        """Handle what came behind CONNECT."""
        if not self._handshake.waiting and not self.closed:
            self._waiting_bytes = 0
            self.open_door()
            self.handle_waiting()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _disconnected(self, packet: Disconnect) -> None:
        """DISCONNECT: the will is dropped, unless the client asks for it (0x04)."""
        properties = packet.properties
        expiry = properties.session_expiry_interval if properties is not None else None
        if expiry is not None:
            if expiry and not self.session.record.expiry_s:
                self.refuse(ReasonCode.PROTOCOL_ERROR)  # [MQTT-3.14.2.2.2]
                return
            self.session.record.expiry_s = self.server.session_expiry(expiry)
        self._handshake.publishes_will = packet.reason_code == ReasonCode.DISCONNECT_WITH_WILL_MESSAGE
        self.close("Client Closed", linger=False)

    def taken_over(self) -> None:
        """Another connection has the session now."""
        log.info("%r - the client connected again; this connection ends", self)
        self.send_disconnect(ReasonCode.SESSION_TAKEN_OVER)
        self.close("Duplicate Client ID", linger=True)

    def session_deleted(self) -> None:
        """End the connection: an operator deletes the session."""
        log.info("%r - the session is deleted; this connection ends", self)
        self.send_disconnect(ReasonCode.ADMINISTRATIVE_ACTION)
        self.close("Kicked", linger=True)

    def fail(self, text: str) -> None:
        """End the connection for a reason of the server's, in the words of `-ERR`."""
        if self._handshake.begun and not self._handshake.complete:
            self._handshake.refuse(ANSWERS.get(text, ReasonCode.SERVER_BUSY), text)
        elif not self.closed:
            self.send_disconnect(DISCONNECTS.get(text, ReasonCode.ADMINISTRATIVE_ACTION))
            self.close(close_reason(text), linger=True)

    def close(self, reason: str, *, linger: bool) -> None:
        """End the connection; its session goes on without it, or ends."""
        if self.closed:
            return
        if reason == SERVER_SHUTDOWN:
            self.send_disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
        access, gate = self.access, self.gate
        super().close(reason, linger=linger)
        self._packets.clear()
        if self._contexts is not None:
            self._contexts.end()
            self._contexts = None
        if self._reauthentication is not None:
            self._reauthentication.abandon()
            self._reauthentication = None
        self._answers.clear()
        self._unreleased.clear()
        self.subscriber.end()
        self.gate = None
        if self._handshake.complete and self.session.link is self:
            self.traffic.client_left()
            self.sessions.connection_ended(self.session, access, publishes_will=self._handshake.publishes_will)
        self._handshake.abandon()
        if gate is not None:
            gate.open()

    # -- what the session and its subscriptions use --------------------------------------------------------------------

    def tell_violation(self, subject: bytes, topic_filter: str) -> None:
        self.clients.violations.subscribe(self, subject, b"", topic_filter.encode())

    @property
    def subscriptions_max(self) -> int:
        limits = [self.clients.options.max_subscriptions or -1]
        if self.account is not None:
            limits.append(self.account.subscriptions_max)
        if self.token is not None:
            limits.append(self.token.grant.subs)
        return min((limit for limit in limits if limit >= 0), default=-1)

    @property
    def downgrades_qos2(self) -> bool:
        return self.server.options.downgrade_qos2_subscribe


def digest_of(packet: Publish, topic: str) -> bytes:
    """Return what tells a message of QoS 2 from another one with its packet identifier: 16 bytes."""
    return hashlib.blake2b(packet.payload, digest_size=16, key=hashlib.sha256(topic.encode()).digest()).digest()
