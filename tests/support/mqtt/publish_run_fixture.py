"""Bytes of MQTT publishes for both twins of `publish_run.py`: runs, other packets among them, and damage."""

from __future__ import annotations

from random import Random

from eyot_wire import _publish_run
from eyot_wire.mqtt import encoder, publish_run
from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MqttError
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import NEVER_FROM_CLIENTS, check_reason

#: Plain and compiled.
TWINS = (publish_run, _publish_run)
_TOPICS = ("a", "a/b", "a/b/c" * 30, "ä/€")


def publishes(chance: Random, level: int) -> list[bytes]:
    """Packets of a client that are valid."""
    made: list[bytes] = []
    for _ in range(chance.randrange(1, 12)):
        topic = chance.choice(_TOPICS)
        in_turn = chance.random() < 0.3
        qos = chance.choice((0, 0, 0, 1, 2))
        properties = Properties(content_type="x") if level == 5 and chance.random() < 0.2 else None
        for _ in range(chance.choice((1, 2, 9))):
            topic = chance.choice(_TOPICS) if in_turn else topic
            payload = chance.randbytes(chance.choice((0, 1, 100, 130, 20_000 if chance.random() < 0.1 else 5)))
            packet_id = chance.choice((1, 255, 256, 65535)) if qos else 0
            more = {"retain": chance.random() < 0.1, "packet_id": packet_id, "properties": properties}
            made += [encoder.publish(level, topic, payload, qos=qos, **more)]  # type: ignore[arg-type]
    return made


def cut(chance: Random, data: bytes) -> list[bytes]:
    """The same bytes in pieces."""
    pieces, at = [], 0
    while at < len(data):
        size = chance.choice((1, 3, 50, 500, 5000))
        pieces.append(data[at : at + size])
        at += size
    return pieces


def body_at(packet: bytes) -> int:
    """Where the body of a packet begins."""
    return 2 + next(index for index in range(4) if packet[1 + index] < 0x80)


def one_by_one(data: bytes, level: int) -> list[object]:
    """The packets of a client as the decoder alone finds them, up to the first fault: the name of its class."""
    found: list[object] = []
    at = 0
    while at < len(data):
        if data[at] >> 4 in NEVER_FROM_CLIENTS:
            return [*found, "ProtocolError"]
        length = next((index for index in range(1, 5) if at + index >= len(data) or data[at + index] < 0x80), 5)
        if at + length >= len(data) and length < 5:
            break
        size = sum((data[at + 1 + index] & 0x7F) << 7 * index for index in range(length))
        if length == 5 or (level == 5 and length > 1 and not data[at + length]):
            return [*found, "MalformedPacket"]
        start = at + 1 + length
        if start + size > len(data):
            break
        if data[at] >> 4 == PacketType.CONNECT:
            return [*found, "ProtocolError"]
        try:
            packet = decode(data[at], data[start : start + size], level)
            check_reason(packet)
            found.append(packet)
        except MqttError as error:
            return [*found, type(error).__name__]
        at = start + size
    return found


def damaged(chance: Random, level: int) -> bytes:
    """Packets of a client, with some bytes changed."""
    data = bytearray(b"".join(publishes(chance, level)))
    for _ in range(chance.randrange(5)):
        data[chance.randrange(min(len(data), 400))] = chance.choice((0, 0x30, 0x80, chance.randrange(256)))
    return bytes(data)


def scanned(twin: int, seed: int) -> list[object]:
    """What a twin sees in damaged packets, from many places on, with heads that occur there and others."""
    chance = Random(seed)
    level = chance.choice((4, 5))
    data = bytearray(b"".join(publishes(chance, level)))
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    source = bytes(data[: chance.randrange(len(data) + 1)])
    found: list[object] = []
    at = 0
    for _ in range(50):
        topic = chance.choice(_TOPICS).encode()
        head = len(topic).to_bytes(2, "big") + topic + b"\0" * (level == 5)
        begin = at if chance.random() < 0.8 else chance.randrange(len(source) + 1)
        run = TWINS[twin].scan_run(source, begin, head, chance.choice((1 << 20, 60)))
        found += [run, payloads_of(twin, source[begin : run.end], len(head))]
        known = [each.encode() for each in _TOPICS if chance.random() < 0.7]
        heads = {len(each).to_bytes(2, "big") + each + b"\0" * (level == 5): "" for each in known}
        mixed = TWINS[twin].scan_mixed(source, begin, heads, int(level == 5), chance.choice((1 << 20, 60)))
        acked_at = max(0, source.find(b"\x32", begin))
        alone = head[: 2 + len(topic)]
        acked = TWINS[twin].scan_acked(source, acked_at, alone, level == 5, chance.choice((1 << 20, 60)))
        found += [mixed, acked]
        start = source.find(b"\x30", max(at + 1, run.end))
        at = len(source) if start < 0 else start
    return found


def payloads_of(twin: int, packets: bytes, head_bytes: int) -> list[bytes] | str:
    """The payloads that a twin cuts out, or why it does not."""
    try:
        return TWINS[twin].payloads(packets, head_bytes)
    except ValueError as error:
        return str(error)
