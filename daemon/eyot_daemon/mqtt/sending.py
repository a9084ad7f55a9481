"""The sending half of an MQTT connection: what its session, its subscriptions and its handshake use.

`MqttConnection` adds what comes from the client.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from eyot_daemon.client.served import ServedClient
from eyot_daemon.mqtt import message, stream_context
from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.packets import Suback, Unsuback
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.mqtt.topic_aliases import OutboundAliases
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eyot_daemon.auth.login import Peer
    from eyot_daemon.client.context import ClientContext
    from eyot_daemon.client.served import Registry
    from eyot_daemon.mqtt.publishing import Publisher
    from eyot_daemon.mqtt.server import MqttServer
    from eyot_daemon.mqtt.session import Session
    from eyot_daemon.mqtt.session_link import Outgoing, Queued
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.mqtt.subscribing import Subscriber
    from eyot_daemon.net.transport import Transport
    from eyot_daemon.router.subscription import Subscription
    from eyot_daemon.turn.backpressure import Gate
    from eyot_wire.mqtt.plain_publishes import MixedPublishes, PlainPublishes

log = logging.getLogger("eyot.mqtt")

#: Keep-alive: the client is gone after this many intervals without a packet [MQTT-3.1.2-22].
SILENCE: Final = 1.5


class MqttSender(ServedClient):
    """A connection that can send. `session`, `sessions` and `publisher` are there once the client is logged in."""

    __slots__ = (
        "_aliases_out",
        "_packet_max",
        "client_id",
        "gate",
        "level",
        "publisher",
        "receive_maximum",
        "server",
        "session",
        "sessions",
        "subscriber",
        "tells_problems",
        "traffic",
    )

    publisher: Publisher
    session: Session
    sessions: AccountSessions
    subscriber: Subscriber

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
        super().__init__(clients, registry, transport, peer, cid)
        self.server = server
        self.client_id = ""
        #: protocol level: 3 (3.1), 4 (3.1.1), 5; 0 before CONNECT
        self.level = 0
        self.receive_maximum = 0
        #: whether reason strings may be sent with acknowledgements
        self.tells_problems = True
        #: where a client of 3.1.1 waits while too many of its publishes are on their way to flash
        self.gate: Gate | None = None
        #: where its packets are counted: its account's, once it is logged in
        self.traffic = server.traffic
        self._aliases_out = OutboundAliases(0)
        self._packet_max = 0

    def __repr__(self) -> str:
        text = f"{self.peer.host}:{self.peer.port} - {self.log_id}"
        return f'{text} - "{printable(self.client_id)}"' if self.client_id else text

    @property
    def log_id(self) -> str:
        return f"mid:{self.cid}"

    @property
    def is_v5(self) -> bool:
        return self.level == V5

    @property
    def live(self) -> bool:
        """CONNECT was answered, and the connection has a session."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return f"[{self.peer.host}]:{self.peer.port}" if ":" in self.peer.host else f"{self.peer.host}:{self.peer.port}"

    def session_deleted(self) -> None:
        """End the connection: an operator deletes the session."""
        raise NotImplementedError

    def refuse(self, reason: ReasonCode) -> None:
        """End the connection for a fault of the client."""
        raise NotImplementedError

    def taken_over(self) -> None:
        """Another connection has the session now: end this one."""
        raise NotImplementedError

    def settle(self, *, receive_maximum: int, packet_max: int, aliases: int, tells_problems: bool) -> None:
        """Note what the client takes; 0 bytes: packets of any size."""
        self.receive_maximum = receive_maximum
        self._packet_max = packet_max
        self._aliases_out = OutboundAliases(aliases)
        self.tells_problems = tells_problems

    def send_packet(self, packet: bytes, count: int = 1) -> None:
        """Send one packet when the turn ends, or several, one behind the other."""
        self.traffic.packets_out += count
        self.traffic.bytes_out += len(packet)
        self.queue_output(packet)

    def send_pubrel(self, packet_id: int) -> None:
        self.send_packet(encoder.pubrel(self.level, packet_id))

    def context_of(self, queued: Queued) -> stream_context.Pairs:
        """Return where streams have a queued message."""
        if self.account is None:
            return ()
        ts_ns = self.sessions.store.queued_at(queued.sseq)
        return stream_context.of_queued(self.account, queued.subject, queued.payload, ts_ns) if ts_ns else ()

    def allows(self, topic_filter: str) -> bool:
        """Return whether the client may have messages for one of its filters."""
        return self.subscriber.allows(topic_filter)

    def may_receive(self, subject: bytes) -> bool:
        """Return whether nothing denies the client messages on a subject."""
        return self.access is None or self.access.may_receive(subject)

    def fits(self, packet: bytes) -> bool:
        """Return whether the client takes a packet of this size [MQTT-3.1.2-24]."""
        return not self._packet_max or len(packet) <= self._packet_max

    def send_suback(self, packet: Suback) -> None:
        self._send_fitting(encoder.suback(self.level, packet))

    def send_unsuback(self, packet: Unsuback) -> None:
        self._send_fitting(encoder.unsuback(self.level, packet))

    def _send_fitting(self, packet: bytes) -> None:
        """Send an answer that grows with its question; end the connection of a client that takes no packet of its size."""
        if self.fits(packet):
            self.send_packet(packet)
        else:
            log.error("%r - an answer of %d bytes is larger than the client takes", self, len(packet))
            self.refuse(ReasonCode.PACKET_TOO_LARGE)

    def send_disconnect(self, reason: ReasonCode) -> None:
        """Send DISCONNECT, if the client speaks MQTT 5."""
        if self.live and self.is_v5:
            self.send_packet(encoder.disconnect(reason))

    @property
    def backlog(self) -> int:
        return len(self.out) + self.transport.backlog

    def send_publish(self, outgoing: Outgoing, packet_id: int, *, dup: bool) -> bool:
        """Send PUBLISH; False: it is larger than the client takes."""
        properties, topic = None, outgoing.topic
        if self.is_v5:
            reply_topic = (topics.to_topic(outgoing.reply) or "") if outgoing.reply else ""
            properties = message.properties_of(outgoing.header, reply_topic, self.clients.broker.clock.now_ns())
            if outgoing.context is not None:
                others = [pair for pair in properties.user_properties if pair[0] not in stream_context.NAMES]
                properties.user_properties = [*outgoing.context, *others]
            properties.subscription_identifiers = list(outgoing.identifiers)
            topic, alias = self._aliases_out.assign(topic)
            properties.topic_alias = alias or None
        packet = encoder.publish(
            self.level,
            topic,
            outgoing.payload,
            qos=outgoing.qos,
            retain=outgoing.retain,
            dup=dup,
            packet_id=packet_id,
            properties=properties,
        )
        if not self.fits(packet):
            if topic:
                self._aliases_out.take_back(topic)  # the client does not hear of it
            return False
        self.send_packet(packet)
        self._count_sent(1, len(outgoing.payload), outgoing.qos)
        return True

    def send_publishes(self, packets: bytes, count: int, payload_bytes: int) -> None:
        """Send PUBLISH packets of QoS 0, which are encoded."""
        self.send_packet(packets, count)
        self._count_sent(count, payload_bytes, 0)

    def _count_sent(self, count: int, payload_bytes: int, qos: int) -> None:
        self.out_msgs += count
        self.out_bytes += payload_bytes
        self.traffic.sent[qos] += count
        self.traffic.payload_out += payload_bytes

    def _takes_packets(self, packet_max: int) -> bool:
        """Return whether the client takes packets up to this size as they are: no alias shortens their topic."""
        return not self._aliases_out.maximum and (not self._packet_max or packet_max <= self._packet_max)

    def takes_run(self, run: PlainPublishes) -> bool:
        """Return whether the client takes the packets of a run as they are."""
        return self._takes_packets(run.packet_max(self.level))

    def deliver_run(self, sub: Subscription, subject: bytes, run: PlainPublishes, publisher: Publisher) -> None:
        """Deliver a run of plain publishes on `subject` for one subscription; what was sent shows in `out_msgs`."""
        raise NotImplementedError

    def takes_mixed(
        self, sub: Subscription, subjects: Sequence[bytes], run: MixedPublishes, publisher: Publisher
    ) -> bool:
        """Return whether a run on these subjects may be sent as it is to the client of a subscription."""
        raise NotImplementedError

    # -- keep-alive ------------------------------------------------------------------------------------------------------

    def keep_alive(self, seconds: int) -> None:
        """End the connection when the client is silent for one and a half times `seconds` [MQTT-3.1.2-22]; 0: never."""
        self.cancel_timer()
        if seconds:
            allowed = seconds * SILENCE
            self.set_timer(allowed, partial(self._look_for_silence, allowed))

    def _look_for_silence(self, allowed: float) -> None:
        left = self.last_in + allowed - self.clients.broker.clock.monotonic()
        if left <= 0 and (self.transport.input_waits() or self.gate is not None):
            left = allowed  # this process lags, or does not read: that is not the client's silence
        if left > 0:
            self.set_timer(left, partial(self._look_for_silence, allowed))
            return
        self.clients.broker.stale_connections += 1
        self.send_disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)
        self.close("Stale Connection", linger=True)
