"""The client's end of one connection to an MQTT broker (3.1.1 or 5.0).

    CONNECT > CONNACK > SUBSCRIBE for each topic taken in > publishes in both directions

`receive` takes the broker's bytes and returns events; what is to be sent gathers until `take_output`. The broker's
limits are kept: packet size, topic aliases, QoS, keep-alive. Who publishes keeps its receive maximum. `tick` sends
PINGREQ and ends a connection that is dead. Time is an argument: monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from eyot_sync.bridge.events import (
    Arrived,
    Ended,
    Established,
    Event,
    FilterRefused,
    Released,
    RemoteLimits,
    Settled,
)
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.errors import MqttError
from eyot_wire.mqtt.packets import (
    Answer,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.mqtt.server_packets import ServerPacket, ServerPacketReader, reason_of
from eyot_wire.mqtt.topic_aliases import OutboundAliases

V5 = 5
V311 = 4
#: CONNACK comes within this time, seconds.
CONNACK_S = 20.0
#: PINGRESP, or anything else, comes within this time, seconds.
PINGRESP_S = 20.0
#: [MQTT-3.1.2-24] the server allows one and a half keep-alives; we send within one, less what the way takes.
_KEEP_ALIVE_SHARE = 0.9
#: Reasons of DISCONNECT that have nothing to do with what was sent.
_NOT_FOR_A_MESSAGE = frozenset(
    {
        ReasonCode.SUCCESS,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.KEEP_ALIVE_TIMEOUT,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.MAXIMUM_CONNECT_TIME,
    }
)


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """`level`: 4 or 5; `subscriptions`: (filter, QoS); `receive_maximum`: publishes that the remote may have on their way."""

    client_id: str
    level: int = V5
    username: str | None = None
    password: bytes | None = None
    keep_alive_s: int = 60
    session_expiry_s: int = 0
    subscriptions: tuple[tuple[str, int], ...] = ()
    receive_maximum: int = 100
    packet_bytes_max: int = 1 << 20


class BridgeConnection:
    """One connection. `next_id` and `free_id` lend packet identifiers for SUBSCRIBE."""

    def __init__(self, options: ConnectionOptions, next_id: Callable[[], int], free_id: Callable[[int], None]) -> None:
        self.options = options
        self.limits = RemoteLimits()
        self.established = False
        self.ended = False
        self._next_id = next_id
        self._free_id = free_id
        self._reader = ServerPacketReader(options.level, options.packet_bytes_max)
        self._aliases = OutboundAliases(0)
        self._out: list[bytes] = []
        self.out_bytes = 0
        self._subscribes: dict[int, str] = {}
        self._keep_alive_s = float(options.keep_alive_s)
        self._sent_at = self._heard_at = 0.0
        self._deadline_at: float | None = None
        self._pinged = False

    # -- output --------------------------------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """Return what is to be sent now."""
        out, self._out, self.out_bytes = b"".join(self._out), [], 0
        return out

    def _send(self, packet: bytes) -> None:
        self._out.append(packet)
        self.out_bytes += len(packet)

    def start(self, now: float) -> None:
        """Send CONNECT."""
        options = self.options
        properties = None
        if options.level == V5:
            properties = Properties(
                session_expiry_interval=options.session_expiry_s,
                receive_maximum=options.receive_maximum,
                maximum_packet_size=options.packet_bytes_max,
            )
        asked = Connect(
            options.level,
            options.client_id,
            clean_start=False,
            keep_alive=options.keep_alive_s,
            username=options.username,
            password=options.password,
            properties=properties,
        )
        self._send(encoder.connect(asked))
        self._sent_at = self._heard_at = now
        self._deadline_at = now + CONNACK_S

    def publish(
        self,
        packet_id: int,
        topic: str,
        payload: bytes,
        *,
        qos: int,
        retain: bool,
        dup: bool,
        properties: Properties | None,
    ) -> bool:
        """Send PUBLISH; False: it is larger than the remote takes, or than MQTT can say. Nothing was sent then."""
        level = self.options.level
        sent_topic = topic
        if level == V5:
            sent_topic, alias = self._aliases.assign(topic)
            if alias or properties is not None:
                properties = properties or Properties()
                properties.topic_alias = alias or None  # an earlier connection may have had one
        try:
            packet = encoder.publish(
                level,
                sent_topic,
                payload,
                qos=qos,
                retain=retain and self.limits.takes_retained,
                dup=dup,
                packet_id=packet_id,
                properties=properties if level == V5 else None,
            )
        except ValueError:
            packet = b""
        if not packet or len(packet) > self.limits.packet_bytes_max:
            if sent_topic:
                self._aliases.take_back(topic)
            return False
        self._send(packet)
        return True

    def puback(self, packet_id: int, reason: int = ReasonCode.SUCCESS) -> None:
        self._send(encoder.puback(self.options.level, packet_id, reason))

    def pubrec(self, packet_id: int, reason: int = ReasonCode.SUCCESS) -> None:
        self._send(encoder.pubrec(self.options.level, packet_id, reason))

    def pubrel(self, packet_id: int) -> None:
        self._send(encoder.pubrel(self.options.level, packet_id))

    def pubcomp(self, packet_id: int) -> None:
        self._send(encoder.pubcomp(self.options.level, packet_id))

    def disconnect(self) -> None:
        """End the connection in order; its session stays."""
        self._send(encoder.DISCONNECT)

    # -- input ---------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | bytearray, now: float) -> list[Event]:
        """Return what the remote's bytes mean. Behind `Ended` nothing more comes."""
        if self.ended:
            return []
        self.heard(now)
        events: list[Event] = []
        try:
            for packet in self._reader.feed(data):
                self._packet(packet, events)
                if events and isinstance(events[-1], Ended):
                    break
        except MqttError as error:
            if self.established and self.options.level == V5:
                self._send(encoder.disconnect(error.reason_code))
            self._end(events, f"the remote does not keep to MQTT: {error}")
        return events

    def lost(self, why: str, *, by_remote: bool = False) -> list[Event]:
        """Note that the transport ended."""
        events: list[Event] = []
        self._end(events, why, by_remote=by_remote)
        return events

    def _end(
        self, events: list[Event], text: str, reason: ReasonCode | None = None, *, by_remote: bool = False
    ) -> None:
        if not self.ended:
            self.ended = True
            events.append(Ended(text, reason, by_remote))

    def _packet(self, packet: ServerPacket, events: list[Event]) -> None:
        if isinstance(packet, Connack):
            self._connack(packet, events)
        elif not self.established:
            self._end(events, f"the remote answers CONNECT with {type(packet).__name__.upper()}")
        elif isinstance(packet, Publish):
            if packet.properties is not None and packet.properties.topic_alias is not None:
                self._end(events, "the remote uses a topic alias, which it was not offered")
            else:
                events.append(Arrived(packet))
        elif isinstance(packet, Pubrel):
            events.append(Released(packet.packet_id))
        elif isinstance(packet, Answer):
            events.append(_settled(packet))
        elif isinstance(packet, Suback):
            self._suback(packet, events)
        elif isinstance(packet, Disconnect):
            reason = reason_of(packet.reason_code)
            text = f"the remote ended the connection: {_spoken(reason, packet.properties)}"
            self._end(events, text, reason, by_remote=reason not in _NOT_FOR_A_MESSAGE)

    def _connack(self, packet: Connack, events: list[Event]) -> None:
        if self.established:
            self._end(events, "the remote does not keep to MQTT: a second CONNACK")
            return
        reason, properties = packet.reason_code, packet.properties or Properties()
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._end(events, f"the remote refuses the connection: {_spoken(reason, properties)}", reason)
            return
        self.established = True
        self._deadline_at = None
        default = RemoteLimits()
        self.limits = RemoteLimits(
            receive_maximum=properties.receive_maximum or default.receive_maximum,
            packet_bytes_max=properties.maximum_packet_size or default.packet_bytes_max,
            qos_max=default.qos_max if properties.maximum_qos is None else properties.maximum_qos,
            takes_retained=properties.retain_available != 0,
        )
        self._aliases = OutboundAliases(properties.topic_alias_maximum or 0)
        if properties.server_keep_alive is not None:
            self._keep_alive_s = float(properties.server_keep_alive)
        events.append(Established(packet.session_present, self.limits))
        # One filter a packet: AWS IoT takes eight at most.
        for topic_filter, qos in self.options.subscriptions:
            packet_id = self._next_id()
            self._subscribes[packet_id] = topic_filter
            # Retained messages come with a new subscription only, and what we publish does not come back.
            request = SubscriptionRequest(topic_filter, qos, no_local=True, retain_as_published=True, retain_handling=1)
            self._send(encoder.subscribe(self.options.level, Subscribe(packet_id, [request])))

    def _suback(self, packet: Suback, events: list[Event]) -> None:
        topic_filter = self._subscribes.pop(packet.packet_id, None)
        if topic_filter is None:
            return
        self._free_id(packet.packet_id)
        code = packet.reason_codes[0] if packet.reason_codes else ReasonCode.UNSPECIFIED_ERROR
        if code >= ReasonCode.UNSPECIFIED_ERROR:
            text = packet.properties.reason_string if packet.properties is not None else None
            events.append(FilterRefused(topic_filter, code, text or ""))

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When `tick` is due at the latest; infinity: never."""
        if self.ended:
            return float("inf")
        if self._deadline_at is not None:
            return self._deadline_at
        if not self.established or not self._keep_alive_s:
            return float("inf")
        return min(self._sent_at, self._heard_at) + self._keep_alive_s * _KEEP_ALIVE_SHARE

    def heard(self, now: float) -> None:
        """Note that the remote counts as alive: its bytes are not read at present."""
        self._heard_at = now
        self._pinged = False
        if self.established:
            self._deadline_at = None

    def sent(self, now: float) -> None:
        """Note that output was handed to the transport."""
        self._sent_at = now

    def tick(self, now: float) -> list[Event]:
        """Send PINGREQ where one is due; end a connection that does not answer."""
        events: list[Event] = []
        if now < self.next_deadline:
            return events
        if not self.established:
            self._end(events, f"no CONNACK within {CONNACK_S:g} s")
        elif self._pinged:
            self._end(events, f"stale: no answer to PINGREQ within {PINGRESP_S:g} s")
        else:
            self._pinged = True
            self._deadline_at = now + PINGRESP_S
            self._sent_at = now
            self._send(encoder.PINGREQ)
        return events


def _settled(packet: Answer) -> Settled:
    properties = packet.properties
    text = properties.reason_string or "" if properties is not None else ""
    reason = reason_of(packet.reason_code)
    if isinstance(packet, Puback):
        return Settled("puback", packet.packet_id, reason, text)
    if isinstance(packet, Pubrec):
        return Settled("pubrec", packet.packet_id, reason, text)
    assert isinstance(packet, Pubcomp)
    return Settled("pubcomp", packet.packet_id, reason, text)


def _spoken(reason: ReasonCode, properties: Properties | None) -> str:
    """Return a reason for people: `bad user name or password (0x86)`, and the remote's own words."""
    words = f"{reason.name.replace('_', ' ').lower()} (0x{reason:02X})"
    own = properties.reason_string if properties is not None else None
    return f"{words}: {own}" if own else words
