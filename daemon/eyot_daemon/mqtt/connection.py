"""One MQTT connection: packets in, packets out, and the session that they belong to.

Packets are handled in their order. CONNECT waits for the login and for the session, and what follows it waits with it.
From then on nothing waits for flash but its own answer: PINGREQ and QoS 0 pass a slow disk.
"""

from __future__ import annotations

import logging
import math
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
from eyot_daemon.mqtt.plain_delivery import send_run
from eyot_daemon.mqtt.publishing import Publisher
from eyot_daemon.mqtt.received_publishes import ReceivedPublishes
from eyot_daemon.mqtt.sending import MqttSender
from eyot_daemon.mqtt.session_link import BACKLOG_BYTES, Outgoing
from eyot_daemon.mqtt.subscribing import Subscriber, filter_of
from eyot_daemon.net.transport import INTERNAL_ERROR, SERVER_SHUTDOWN
from eyot_daemon.turn.backpressure import Gate
from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.errors import MqttError
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
from eyot_wire.mqtt.reader import RUNS, PacketReader, Runs
from eyot_wire.mqtt.reason_codes import ReasonCode

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

log = logging.getLogger("eyot.mqtt")

#: The most bytes kept of a client whose CONNECT is not answered yet: before its login, and while its session is opened.
EARLY_BYTES_MAX: Final = 48 * 1024
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
#: What one client may have done in one turn: a packet counts as one, of SUBSCRIBE and UNSUBSCRIBE each filter, and consecutive
#: plain publishes together. 512 take 5 to 10 ms, and others wait meanwhile.
OPS_MAX: Final = 512
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


class MqttConnection(MqttSender):
    """A client of MQTT as the broker sees it."""

    __slots__ = (
        "_awaits_filters",
        "_contexts",
        "_failure",
        "_handshake",
        "_packets",
        "_pause",
        "_publishes",
        "_reader",
        "_reauthentication",
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
        #: packets behind a CONNECT that is not answered yet, or for later turns
        self._packets: Fifo[Packet | Runs] = Fifo()
        self._publishes = ReceivedPublishes(self)
        self._waiting_bytes = 0
        #: where the client waits while its packets go on in later turns
        self._pause: Gate | None = None
        #: the turn after this one comes when filters are on flash
        self._awaits_filters = False
        #: the client sent what cannot be read; the connection ends behind what waits
        self._failure: MqttError | None = None
        self._reauthentication: Reauthentication | None = None
        self._contexts: stream_context.ContextQueue | None = None
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
        if self.closed or self._failure is not None:
            return
        self.last_in = self.clients.broker.clock.monotonic()
        traffic = self.traffic
        is_free = self._handshake.complete and not self._packets
        run = self._reader.acked_alone(data) if is_free else None
        if run is not None:  # nearly all that a publisher of QoS 1 sends
            traffic.packets_in += run.count
            traffic.bytes_in += len(data)
            self._publishes.acked_run(run)
            return
        read: list[Packet | Runs] = []
        try:
            for packet in self._reader.feed_runs(data):
                read.append(packet)
                traffic.packets_in += packet.count if isinstance(packet, RUNS) else 1
        except MqttError as error:
            self._failure = error
        traffic.bytes_in += len(data)
        if is_free:
            self._handle_some(read)
        elif not self._wait_with(read, len(data)):
            return
        if self._pause is None:
            self._end_at_fault()

    def _end_at_fault(self) -> None:
        """End the connection for bytes that could not be read, behind what came before them."""
        failure = self._failure
        if failure is not None and not self.closed:
            log.error("%r - %s", self, failure)
            if failure.connect_level == V5:
                self._handshake.answer_fault(failure.reason_code)
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
        if self._pause is None:
            self.handle_waiting()
            return True
        self._waiting_bytes += size
        if self._waiting_bytes > HELD_BYTES_MAX:
            self._finish()
        else:
            self.transport.hold(self._pause)
        return True

    def _handle_some(self, read: list[Packet | Runs]) -> None:
        """Handle the packets of one read, those beyond `OPS_MAX` operations in later turns."""
        left = OPS_MAX
        for number, packet in enumerate(read):
            if self.closed:
                return
            if left <= 0:
                for each in read[number:]:
                    self._packets.append(each)
                self._go_on_later()
                break
            left -= self._handle(packet)
        self.subscriber.hand_in()

    def handle_waiting(self, most: float = OPS_MAX) -> None:
        """Handle the packets that were read, as far as nothing holds them; those beyond `most` operations in later turns."""
        packets = self._packets
        while packets and not self.closed and not self._handshake.waiting:
            if most <= 0:
                self._go_on_later()
                break
            packet = packets.popleft()
            if self._handshake.complete:
                most -= self._handle(packet)
            elif type(packet) is Connect:
                self._handshake.begin(packet)
            elif type(packet) is Auth and self._handshake.challenged:
                self._handshake.answered(packet)
            else:
                log.error("%r - first packet should be a CONNECT", self)
                self.server.note_refused(ReasonCode.PROTOCOL_ERROR)
                self.close("Protocol Violation", linger=False)
        self.subscriber.hand_in()

    def _go_on_later(self) -> None:
        """Handle what waits in a later turn; until then nothing is read from the client."""
        if self._pause is None:
            self._pause = Gate(self.clients.broker.timers, lambda: bool(self._packets) and not self.closed)
            self.transport.hold(self._pause)
        self.subscriber.hand_in()
        if self.subscriber.is_storing:
            # Each change writes all filters of a session: one at a time, or they would fill the memory.
            self._awaits_filters = True
        else:
            self.clients.broker.later_turns.add(self._handle_later)

    def filters_stored(self) -> None:
        """Go on behind a SUBSCRIBE or UNSUBSCRIBE."""
        if self._awaits_filters:
            self._awaits_filters = False
            self.clients.broker.later_turns.add(self._handle_later)

    def _handle_later(self) -> None:
        try:
            if not self.closed:
                self.handle_waiting()
                self._end_pause()
                if self._pause is None:
                    self._end_at_fault()
        except Exception:
            log.exception("connection failed")
            self.lost(INTERNAL_ERROR)

    def _end_pause(self) -> None:
        pause = self._pause
        if pause is not None and not pause.is_shut:
            self._pause, self._waiting_bytes = None, 0
            pause.open()

    def _finish(self) -> None:
        """Handle what waits for later turns at once, and store the filters once."""
        if self._pause is not None and not self.closed:
            with self.subscriber.storing_once():
                self.handle_waiting(math.inf)
            self._end_pause()

    def lost(self, reason: str) -> None:
        """Handle the end of the transport, behind what came before it."""
        if reason != INTERNAL_ERROR:
            self._finish()
        super().lost(reason)

    def _handle(self, packet: Packet | Runs) -> int:
        """Handle one packet, or a run of publishes; return as how many operations it counts."""
        if type(packet) is Subscribe:
            self.subscriber.subscribe(packet)
            return len(packet.filters)
        if type(packet) is Unsubscribe:
            self.subscriber.unsubscribe(packet)
            return len(packet.filters)
        cost = 1
        if type(packet) is AckedPublishes:
            cost += self.subscriber.hand_in()
            self._publishes.acked_run(packet)
        elif type(packet) is PlainPublishes:
            self._publishes.run(packet)
        elif type(packet) is MixedPublishes:
            self._publishes.mixed_run(packet)
        elif type(packet) is Publish:
            if packet.qos:
                cost += self.subscriber.hand_in()  # its acknowledgement comes behind the answers to these
            self._publishes.publish(packet)
        elif type(packet) is Puback or type(packet) is Pubrec or type(packet) is Pubcomp:
            self._answered(packet)
        elif type(packet) is Pubrel:
            self._publishes.released(packet.packet_id)
        elif type(packet) is Pingreq:
            self.send_packet(encoder.PINGRESP)
        elif type(packet) is Disconnect:
            self.subscriber.hand_in()
            self._disconnected(packet)
        elif type(packet) is Auth and self._handshake.authenticates:
            self._authenticate(packet)
        else:  # AUTH without a method [MQTT-4.12.0-1]
            self.refuse(ReasonCode.PROTOCOL_ERROR)
        return cost

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

    # -- answers of the client -------------------------------------------------------------------------------------------

    def _answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        packet_id = packet.packet_id
        if self.session.breaks(type(packet), packet_id):
            self.refuse(ReasonCode.PROTOCOL_ERROR)  # [MQTT-4.8.0-1] of 3.1.1, 4.13 of 5.0
        elif type(packet) is Puback:
            self.session.puback(packet_id)
        elif type(packet) is Pubcomp:
            self.session.pubcomp(packet_id)
        else:
            reason = self.session.pubrec(packet_id, packet.reason_code)
            if reason is not None:
                self.send_packet(encoder.pubrel(self.level, packet_id, reason))

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
            if self.sessions.group_is_queued(filter_of(sub.sid)):
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
        if publisher is None or publisher.account is not self.account or self.subscriber.unreviewed:
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
        if self.subscriber.unreviewed and not self.allows(filter_of(sub.sid)):
            return False
        if (sub.deny_filter or self.subscriber.unreviewed) and not access.may_receive(subject):
            return False
        if reply and access.replies is not None:
            access.replies.delivered(reply, self.clients.broker.clock.monotonic())
        return True

    def refill(self) -> bool:
        """Everything was sent: let the queue hand over more."""
        super().refill()
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
        """DISCONNECT: the will is dropped if all is well [MQTT-3.14.4-3], and published with every other reason."""
        properties = packet.properties
        expiry = properties.session_expiry_interval if properties is not None else None
        if expiry is not None:
            if expiry and not self.session.record.expiry_s:
                self.refuse(ReasonCode.PROTOCOL_ERROR)  # [MQTT-3.14.2.2.2]
                return
            self.session.record.expiry_s = self.server.session_expiry(expiry)
        self._handshake.publishes_will = packet.reason_code != ReasonCode.SUCCESS
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
        self._end_pause()
        if self._contexts is not None:
            self._contexts.end()
            self._contexts = None
        if self._reauthentication is not None:
            self._reauthentication.abandon()
            self._reauthentication = None
        self._publishes.end()
        del self._publishes  # each would keep the other
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
