"""Whether a server of MQTT may say what it says to one client, by 3.1.1 and 5.0: forms, reason codes, identifiers, order."""

from __future__ import annotations

import select
from collections import deque
from typing import Final

from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect
from support.mqtt.grammar import Owed, Step
from support.mqtt.raw_mqtt import Got, RawMqtt

T = PacketType
#: MQTT 5: the reason codes of each packet that a server sends (3.2.2.2, 3.4.2.1 to 3.7.2.1, 3.9.3, 3.11.3, 3.14.2.1, 3.15.2.1).
REASONS: Final[dict[PacketType, frozenset[int]]] = {
    T.CONNACK: frozenset((0, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)),
    T.PUBACK: frozenset((0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)),
    T.PUBREC: frozenset((0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)),
    T.PUBREL: frozenset((0, 0x92)),
    T.PUBCOMP: frozenset((0, 0x92)),
    T.SUBACK: frozenset((0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    T.UNSUBACK: frozenset((0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    T.DISCONNECT: frozenset((0, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3))),
    T.AUTH: frozenset((0, 0x18, 0x19)),
}
#: 3.1.1: the return codes of CONNACK and SUBACK.
RETURN_CODES: Final = {T.CONNACK: frozenset(range(6)), T.SUBACK: frozenset((0, 1, 2, 0x80))}
#: The flags of a packet's first byte.
FLAGS: Final = {T.PUBREL: 2}
FROM_SERVER: Final = frozenset(
    (T.CONNACK, T.PUBLISH, T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP, T.SUBACK, T.UNSUBACK, T.PINGRESP)
)
#: Answers in the order of what they answer.
IN_ORDER: Final = frozenset((T.PUBACK, T.PUBREC))


class Illegal(AssertionError):
    """The server said what it may not."""


def check_form(got: Got, level: int) -> None:
    """Raise Illegal for a packet that no server of this level sends."""
    allowed = FROM_SERVER | {T.DISCONNECT, T.AUTH} if level == 5 else FROM_SERVER
    if got.type not in allowed:
        raise Illegal(f"a server of level {level} does not send {got.type.name}")
    if got.type is T.PUBLISH:
        if got.qos == 3 or (got.dup and not got.qos) or (got.qos and not got.packet_id):
            raise Illegal(f"{got}")
        return
    if got.flags != FLAGS.get(got.type, 0):
        raise Illegal(f"flags {got.flags:04b} of {got.type.name}")
    codes = got.codes if got.type in (T.SUBACK, T.UNSUBACK) else [got.reason]
    known = REASONS.get(got.type) if level == 5 else RETURN_CODES.get(got.type, frozenset((0,)))
    if known is not None and not known.issuperset(codes):
        raise Illegal(f"{got.type.name} with {[hex(code) for code in codes]}")
    if level != 5 and got.type is T.UNSUBACK and got.codes:
        raise Illegal("UNSUBACK of 3.1.1 with codes")
    if got.type is T.CONNACK and (got.body[0] > 1 or (got.present and got.reason)):
        raise Illegal(f"flags of CONNACK: {got.body[:2]!r}")


class PollingMqtt(RawMqtt):
    """A connection whose packets are read as they are there. `sizes`: those of the packets that were cut, bytes."""

    def __init__(self, port: int, *, level: int) -> None:
        super().__init__(port, level=level)
        self.size = 0

    def arrived(self, *, wait: bool = False) -> bool:
        """Take what is there, or wait for something; False: the server closed."""
        if not wait and not select.select([self.sock], [], [], 0)[0]:
            return True
        try:
            data = self.sock.recv(65_536)
        except ConnectionError:
            return False
        self._read += data
        return bool(data)

    def _cut(self) -> Got | None:
        before = len(self._read)
        got = super()._cut()
        self.size = before - len(self._read)
        return got

    def next(self) -> Got | None:
        """The next whole packet that was taken."""
        return self._cut()


class AnswerChecker:
    """What one connection was owed and got. `reply`: the client's answer to a packet, b"" for none."""

    def __init__(self, connect: Connect, connack: Got, size: int) -> None:
        check_form(connack, connect.protocol_level)
        self.level = connect.protocol_level
        properties = connect.properties
        self._window = (properties.receive_maximum if properties else None) or 65_535
        self._size_max = (properties.maximum_packet_size if properties else None) or 1 << 30
        self._aliases_max = (properties.topic_alias_maximum if properties else None) or 0
        self._tells_problems = properties is None or properties.request_problem_information != 0
        #: whether no session from before can speak up; CONNACK of 3.1 does not tell
        self.is_new = connect.clean_start or (self.level > 3 and not connack.present)
        self._aliases: dict[int, str] = {}
        self._owed: dict[PacketType, deque[Owed]] = {}
        #: publishes of the server on their way, by identifier: their QoS, and whether PUBREC was sent
        self._flights: dict[int, list[int]] = {}
        #: the identifiers of PUBREC packets whose PUBREL is to come, in this order
        self._received: deque[int] = deque()
        self._filters: dict[str, int] = {}
        self._identifiers: set[int] = set()
        self.ended = 0
        if size > self._size_max:
            raise Illegal(f"CONNACK of {size} bytes to a client that takes {self._size_max}")
        if connack.properties.authentication_method is not None:
            raise Illegal("an authentication method that nobody asked for")
        if connect.clean_start and connack.present:
            raise Illegal("a session is present after a clean start")
        if self.level == 5 and bool(connack.properties.assigned_client_identifier) == bool(connect.client_id):
            raise Illegal(f"an assigned client id for {connect.client_id!r}")

    @property
    def owes(self) -> list[Owed]:
        """What is still to come."""
        return [owed for queue in self._owed.values() for owed in queue]

    def awaits(self, kind: PacketType, packet_id: int) -> bool:
        """Whether a packet with this identifier is still to come."""
        return any(owed.packet_id == packet_id for owed in self._owed.get(kind, ()))

    def sent(self, step: Step) -> None:
        """Note what the client sends, before it does."""
        for owed in step.owed:
            self._owed.setdefault(owed.type, deque()).append(owed)
        for name, qos in step.filters:
            self._filters[name] = max(qos, self._filters.get(name, 0))
        if step.identifier:
            self._identifiers.add(step.identifier)

    def got(self, got: Got, size: int) -> bytes:
        """Check a packet, and return the client's answer. Raises Illegal."""
        check_form(got, self.level)
        if self.ended:
            raise Illegal(f"{got} behind DISCONNECT")
        if size > self._size_max:
            raise Illegal(f"{got.type.name} of {size} bytes to a client that takes {self._size_max}")
        if not self._tells_problems and got.type not in (T.PUBLISH, T.CONNACK, T.DISCONNECT):
            told = got.properties.reason_string is not None or got.properties.user_properties
            if told:
                raise Illegal(f"{got} tells problems to a client that wants none")
        if got.type is T.PUBLISH:
            return self._published(got)
        if got.type is T.DISCONNECT:
            self.ended = got.reason or -1
            return b""
        if got.type is T.PUBREL and got.packet_id in self._flights:
            return self._released(got)
        if got.type is T.PUBREL and not self.is_new and not self.awaits(T.PUBREL, got.packet_id):
            return encoder.pubcomp(self.level, got.packet_id)  # of a publish that an earlier connection received
        self._answered(got)
        return b""

    def _answered(self, got: Got) -> None:
        queue = self._owed.get(got.type)
        owed = next((each for each in queue or () if each.packet_id == got.packet_id), None)
        if queue is None or owed is None:
            raise Illegal(f"{got}, for which nobody asked")
        while got.type in IN_ORDER and owed is not queue[0] and queue[0].withheld:
            queue.popleft()
        if got.type in IN_ORDER and owed is not queue[0]:
            raise Illegal(f"{got} where {queue[0]} is due [MQTT-4.6.0-2, -3]")
        queue.remove(owed)
        if not owed.codes:
            return
        codes = got.codes if got.type in (T.SUBACK, T.UNSUBACK) else [got.reason]
        if len(codes) != len(owed.codes):
            raise Illegal(f"{len(codes)} reason codes for {len(owed.codes)} filters")
        for code, right in zip(codes, owed.codes, strict=True):
            if code not in right:
                raise Illegal(
                    f"{got.type.name} {got.packet_id} with {code:#x} instead of {[hex(each) for each in right]}"
                )

    def _published(self, got: Got) -> bytes:
        topic, alias = got.topic, got.properties.topic_alias
        if alias is not None:
            if not 0 < alias <= self._aliases_max:
                raise Illegal(f"topic alias {alias} of {self._aliases_max}")
            if topic:
                self._aliases[alias] = topic
            topic = self._aliases.get(alias, "")
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise Illegal(f"PUBLISH on {topic!r}")
        if self.is_new:
            taken = [name for name in self._filters if topics.filter_matches(name.removeprefix("$share/g/"), topic)]
            if not taken:
                raise Illegal(f"PUBLISH on {topic!r}, to which nobody subscribed")
            if got.qos > max(self._filters[name] for name in taken):
                raise Illegal(f"PUBLISH of QoS {got.qos} on {topic!r}")
            if not self._identifiers.issuperset(got.properties.subscription_identifiers):
                raise Illegal(f"subscription identifiers {got.properties.subscription_identifiers}")
            if got.dup:
                raise Illegal("DUP in a new session")
        if not got.qos:
            return b""
        if got.packet_id in self._flights:
            raise Illegal(f"packet identifier {got.packet_id} is in use")
        self._flights[got.packet_id] = [got.qos, 0]
        if len(self._flights) > self._window:
            raise Illegal(f"{len(self._flights)} publishes on their way to a client that takes {self._window}")
        return (encoder.puback if got.qos == 1 else encoder.pubrec)(self.level, got.packet_id)

    def _released(self, got: Got) -> bytes:
        flight = self._flights[got.packet_id]
        if flight[0] != 2 or not flight[1]:
            raise Illegal(f"{got}, which has no PUBREC")
        if self._received.popleft() != got.packet_id:
            raise Illegal(f"{got} out of order [MQTT-4.6.0-4]")
        return encoder.pubcomp(self.level, got.packet_id)

    def replied(self, reply: bytes) -> None:
        """Note an answer of the client, as it is sent."""
        kind, packet_id = PacketType(reply[0] >> 4), int.from_bytes(reply[2:4], "big")
        if kind is T.PUBREC and len(reply) == 4:
            self._flights[packet_id][1] = 1
            self._received.append(packet_id)
        else:
            self._flights.pop(packet_id, None)
