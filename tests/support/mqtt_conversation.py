"""Conversations of MQTT for fuzzing: valid packets of either level, then some of their bytes changed, lost or doubled."""

from __future__ import annotations

from random import Random
from typing import Final

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe, Will
from eyot_wire.mqtt.properties import Properties

TOPICS: Final = ("a", "a/b", "/", "a//b", "a/+/b", "#", "+", "a.b", "$SYS/x", "$MQTT/x", "x y", "é", "a/*", "a/>", "")
CLIENTS: Final = ("one", "two", "", "a/+ #", "x" * 300)
#: Of the conversations, the part whose bytes stay as they are.
WHOLE: Final = 0.3


def mqtt_conversation(rng: Random) -> bytes:
    """Return the bytes of one client."""
    level = rng.choice((3, 4, 4, 5, 5, 5, 6))
    packets = [_connect(rng, level)]
    spoken = level if level in (3, 4, 5) else 4
    packets += [_packet(rng, spoken) for _ in range(rng.randrange(30))]
    if rng.random() < 0.1:
        rng.shuffle(packets)
    data = bytearray(b"".join(packets))
    if rng.random() < WHOLE:
        return bytes(data)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 10)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 6))
    return bytes(data)


def _connect(rng: Random, level: int) -> bytes:
    will = None
    if rng.random() < 0.3:
        will = Will(rng.choice(TOPICS), rng.randbytes(rng.randrange(50)), rng.randrange(3), rng.random() < 0.5)
    known = rng.random() < 0.8
    properties = Properties(session_expiry_interval=rng.choice((0, 1, 60)), receive_maximum=rng.choice((1, 5, 65535)))
    return encoder.connect(
        Connect(
            level,
            rng.choice(CLIENTS),
            rng.random() < 0.6,
            rng.choice((0, 1, 60, 65_535)),
            rng.choice(("all", "few")) if known else None,
            rng.choice((b"all", b"few")) if known else None,
            will,
            properties if level == 5 and rng.random() < 0.5 else None,
        )
    )


def _packet(rng: Random, level: int) -> bytes:
    packet_id, topic = rng.randrange(1, 6), rng.choice(TOPICS)
    kind = rng.randrange(8)
    if kind <= 2:
        qos = rng.randrange(3)
        payload = rng.randbytes(rng.choice((0, 1, 100, 5000)))
        return encoder.publish(
            level, topic, payload, qos=qos, retain=rng.random() < 0.3, packet_id=packet_id if qos else 0
        )
    if kind == 3:
        wanted = [SubscriptionRequest(rng.choice(TOPICS), rng.randrange(3)) for _ in range(rng.randrange(1, 5))]
        return encoder.subscribe(level, Subscribe(packet_id, wanted, None))
    if kind == 4:
        return encoder.unsubscribe(level, Unsubscribe(packet_id, [topic]))
    if kind == 5:
        return encoder.pubrel(level, packet_id)
    if kind == 6:
        return rng.choice((encoder.puback, encoder.pubrec, encoder.pubcomp))(level, packet_id)
    return rng.choice((encoder.PINGREQ, encoder.PINGREQ, encoder.DISCONNECT))
