"""Encodes packets. What a level does not have is left out: properties and reason codes in 3.1 and 3.1.1.

The server's packets are functions of the level; a client's (for bridges and tests) are below.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from eyot_wire.mqtt import fields
from eyot_wire.mqtt import properties as mqtt_properties
from eyot_wire.mqtt.packet_types import V5, V31
from eyot_wire.mqtt.packets import Connack, Connect, Suback, Subscribe, Unsuback, Unsubscribe
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import SUBACK_FAILURE, ReasonCode, return_code

PINGREQ: Final = b"\xc0\0"
PINGRESP: Final = b"\xd0\0"
#: PUBACK up to the identifier, and that.
_PUBACK: Final = Struct(">HH").pack
#: DISCONNECT without a reason: all of 3.1.1's.
DISCONNECT: Final = b"\xe0\0"


def packet(first: int, body: bytes) -> bytes:
    """Return a packet from its first byte and its body."""
    return bytes((first,)) + fields.varint(len(body)) + body


def connack(level: int, answer: Connack) -> bytes:
    """Return CONNACK."""
    if level != V5:
        present = answer.session_present and level != V31  # 3.1 reserves the byte
        return bytes((0x20, 2, present, return_code(answer.reason_code)))
    head = bytes((answer.session_present, answer.reason_code))
    return packet(0x20, head + mqtt_properties.write(answer.properties))


def publish(
    level: int,
    topic: str,
    payload: bytes,
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: Properties | None = None,
) -> bytes:
    """Return PUBLISH. Raises ValueError for a topic of more than 65,535 bytes, and for a packet too large for MQTT."""
    name = topic.encode()
    head = fields.binary(name)
    if qos:
        head += packet_id.to_bytes(2, "big")
    if level == V5:
        head += mqtt_properties.write(properties)
    size = len(head) + len(payload)
    if size > fields.VARINT_MAX:
        raise ValueError(f"{size} bytes do not fit into a packet")
    first = 0x30 | dup << 3 | qos << 1 | retain
    return b"".join((bytes((first,)), fields.varint(size), head, payload))


def _answer(
    first: int, level: int, packet_id: int, reason: int = ReasonCode.SUCCESS, properties: Properties | None = None
) -> bytes:
    if level != V5 or (not reason and properties is None):
        return bytes((first, 2, packet_id >> 8, packet_id & 0xFF))
    body = packet_id.to_bytes(2, "big") + bytes((reason,))
    if properties is not None:
        body += mqtt_properties.write(properties)
    return packet(first, body)


def puback(level: int, packet_id: int, reason: int = ReasonCode.SUCCESS, properties: Properties | None = None) -> bytes:
    """Return PUBACK."""
    return _answer(0x40, level, packet_id, reason, properties)


def pubacks(packet_ids: Sequence[int]) -> bytes:
    """Return PUBACK with success for each of these publishes, as `puback` has it at any level."""
    return b"".join([_PUBACK(0x4002, packet_id) for packet_id in packet_ids])


def pubrec(level: int, packet_id: int, reason: int = ReasonCode.SUCCESS, properties: Properties | None = None) -> bytes:
    """Return PUBREC."""
    return _answer(0x50, level, packet_id, reason, properties)


def pubrel(level: int, packet_id: int, reason: int = ReasonCode.SUCCESS) -> bytes:
    """Return PUBREL."""
    return _answer(0x62, level, packet_id, reason)


def pubcomp(level: int, packet_id: int, reason: int = ReasonCode.SUCCESS) -> bytes:
    """Return PUBCOMP."""
    return _answer(0x70, level, packet_id, reason)


def suback(level: int, answer: Suback) -> bytes:
    """Return SUBACK."""
    codes = answer.reason_codes
    head = answer.packet_id.to_bytes(2, "big")
    if level != V5:
        return packet(0x90, head + bytes(SUBACK_FAILURE if code >= 0x80 else code for code in codes))
    return packet(0x90, head + mqtt_properties.write(answer.properties) + bytes(codes))


def unsuback(level: int, answer: Unsuback) -> bytes:
    """Return UNSUBACK."""
    head = answer.packet_id.to_bytes(2, "big")
    if level != V5:
        return packet(0xB0, head)
    return packet(0xB0, head + mqtt_properties.write(answer.properties) + bytes(answer.reason_codes))


def disconnect(reason: int = ReasonCode.SUCCESS, properties: Properties | None = None) -> bytes:
    """Return DISCONNECT of MQTT 5."""
    if not reason and properties is None:
        return DISCONNECT
    return packet(0xE0, bytes((reason,)) + (mqtt_properties.write(properties) if properties is not None else b""))


def auth(reason: int, properties: Properties | None = None) -> bytes:
    """Return AUTH."""
    return packet(0xF0, bytes((reason,)) + mqtt_properties.write(properties))


# -- a client's packets ----------------------------------------------------------------------------------------------------


def connect(asked: Connect) -> bytes:
    """Return CONNECT."""
    level, will = asked.protocol_level, asked.will
    flags = asked.clean_start << 1
    payload = fields.string(asked.client_id)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        if level == V5:
            payload += mqtt_properties.write(will.properties)
        payload += fields.string(will.topic) + fields.binary(will.payload)
    if asked.username is not None:
        flags |= 0x80
        payload += fields.string(asked.username)
    if asked.password is not None:
        flags |= 0x40
        payload += fields.binary(asked.password)
    head = fields.string("MQIsdp" if level == 3 else "MQTT") + bytes((level, flags))
    head += asked.keep_alive.to_bytes(2, "big")
    if level == V5:
        head += mqtt_properties.write(asked.properties)
    return packet(0x10, head + payload)


def subscribe(level: int, asked: Subscribe) -> bytes:
    """Return SUBSCRIBE."""
    body = asked.packet_id.to_bytes(2, "big")
    if level == V5:
        body += mqtt_properties.write(asked.properties)
    for each in asked.filters:
        options = each.qos
        if level == V5:
            options |= each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4
        body += fields.string(each.filter) + bytes((options,))
    return packet(0x82, body)


def unsubscribe(level: int, asked: Unsubscribe) -> bytes:
    """Return UNSUBSCRIBE."""
    body = asked.packet_id.to_bytes(2, "big")
    if level == V5:
        body += mqtt_properties.write(asked.properties)
    return packet(0xA2, body + b"".join(fields.string(each) for each in asked.filters))
