"""What a client of MQTT must not send once it is connected: each ends the connection.

By name: the bytes and the reason codes with which MQTT 5 may say so. A packet that cannot be parsed is malformed (0x81),
one that is not allowed a protocol error (0x82); the specification names more precise codes for some.
"""

from __future__ import annotations

from typing import Final

MALFORMED, PROTOCOL, TOPIC_NAME, ALIAS, TOO_LARGE, FILTER = 0x81, 0x82, 0x90, 0x94, 0x95, 0x8F
_FORM: Final = frozenset({MALFORMED, PROTOCOL})

Fault = tuple[bytes, frozenset[int]]


def packet(first: int, body: bytes) -> bytes:
    """A packet with any body."""
    assert len(body) < 128
    return bytes((first, len(body))) + body


def _of_both(v5: bool) -> dict[str, tuple[int, bytes]]:
    """Packets with a fault of their own form, whatever the level: first byte and body."""
    none = b"\0" if v5 else b""  # no properties
    return {
        "type 0": (0x00, b""),
        "CONNACK from a client": (0x20, b"\0\0" + none),
        "SUBACK from a client": (0x90, b"\0\1" + none + b"\0"),
        "UNSUBACK from a client": (0xB0, b"\0\1" + none),
        "PINGRESP from a client": (0xD0, b""),
        "a second CONNECT": (0x10, b"\0\4MQTT" + (b"\5" if v5 else b"\4") + b"\2\0\0" + none + b"\0\1x"),
        "a second CONNECT of another protocol": (0x10, b"\0\4MQTX\5\2\0\0\0\0\1x"),
        "flags of PUBACK": (0x41, b"\0\1"),
        "flags of PUBREC": (0x52, b"\0\1"),
        "flags of PUBREL": (0x60, b"\0\1"),
        "flags of PUBCOMP": (0x7F, b"\0\1"),
        "flags of SUBSCRIBE": (0x80, b"\0\1" + none + b"\0\1a\0"),
        "flags of UNSUBSCRIBE": (0xA0, b"\0\1" + none + b"\0\1a"),
        "flags of PINGREQ": (0xC1, b""),
        "flags of DISCONNECT": (0xE1, b""),
        "PINGREQ with a body": (0xC0, b"\0"),
        "QoS 3": (0x36, b"\0\1a\0\1" + none + b"x"),
        "DUP with QoS 0": (0x38, b"\0\1a" + none + b"x"),
        "PUBLISH without a topic's length": (0x30, b"\0"),
        "PUBLISH whose topic is longer than the packet": (0x30, b"\0\x09ab"),
        "PUBLISH of QoS 1 without an identifier": (0x32, b"\0\1a"),
        "PUBLISH with identifier 0": (0x32, b"\0\1a\0\0" + none + b"x"),
        "SUBSCRIBE with identifier 0": (0x82, b"\0\0" + none + b"\0\1a\0"),
        "UNSUBSCRIBE with identifier 0": (0xA2, b"\0\0" + none + b"\0\1a"),
        "PUBREL with identifier 0": (0x62, b"\0\0"),
        "PUBACK with one byte": (0x40, b"\0"),
        "SUBSCRIBE without filters": (0x82, b"\0\1" + none),
        "UNSUBSCRIBE without filters": (0xA2, b"\0\1" + none),
        "an empty filter": (0x82, b"\0\1" + none + b"\0\0\0"),
        "an empty filter to unsubscribe": (0xA2, b"\0\1" + none + b"\0\0"),
        "a filter without options": (0x82, b"\0\1" + none + b"\0\1a"),
        "a filter at QoS 3": (0x82, b"\0\1" + none + b"\0\1a\3"),
        "reserved options": (0x82, b"\0\1" + none + b"\0\1a" + (b"\xc1" if v5 else b"\x04")),
        "a filter that ends early": (0xA2, b"\0\1" + none + b"\0\5ab"),
        "a filter with U+0000": (0x82, b"\0\1" + none + b"\0\3a\0b\0"),
        "a filter with a surrogate": (0x82, b"\0\1" + none + b"\0\3\xed\xa0\x80\0"),
        "a topic with U+0000": (0x30, b"\0\3a\0b" + none),
        "a topic with a surrogate": (0x30, b"\0\3\xed\xb0\x80" + none),
        "a topic in overlong UTF-8": (0x30, b"\0\2\xc0\xaf" + none),
        "a topic that is not UTF-8": (0x30, b"\0\2\xff\xfe" + none),
        "a topic of half a character": (0x30, b"\0\2\xf0\x9f" + none),
    }


def _topics(v5: bool) -> dict[str, Fault]:
    none = b"\0" if v5 else b""
    wrong = frozenset({TOPIC_NAME, MALFORMED, PROTOCOL})
    return {
        "a topic with +": (packet(0x30, b"\0\3a/+" + none), wrong),
        "a topic with #": (packet(0x32, b"\0\3a/#\0\1" + none), wrong),
        "an empty topic": (packet(0x30, b"\0\0" + none + b"x"), wrong),
    }


def _properties() -> dict[str, Fault]:
    """Faults of MQTT 5's properties and reason codes."""

    def publish(properties: bytes, qos: int = 0) -> bytes:
        packet_id = b"\0\1" if qos else b""
        return packet(0x30 | qos << 1, b"\0\1a" + packet_id + bytes((len(properties),)) + properties + b"x")

    def subscribe(properties: bytes, filters: bytes = b"\0\1a\0") -> bytes:
        return packet(0x82, b"\0\1" + bytes((len(properties),)) + properties + filters)

    alias = frozenset({ALIAS, PROTOCOL})
    return {
        "an unknown property": (publish(b"\x7e\0"), _FORM),
        "a property of CONNECT in PUBLISH": (publish(b"\x21\0\5"), _FORM),
        "a property of the server": (publish(b"\x24\1"), _FORM),
        "properties longer than the packet": (packet(0x30, b"\0\1a\x60\1\0"), _FORM),
        "properties that end within one": (publish(b"\x02\0\0"), _FORM),
        "a length of properties of 5 bytes": (packet(0x30, b"\0\1a\x80\x80\x80\x80\1"), _FORM),
        "a length of properties in more bytes than it needs": (packet(0x30, b"\0\1a\x80\0"), _FORM),
        "payload format 2": (publish(b"\x01\2"), _FORM),
        "payload format twice": (publish(b"\x01\0\x01\0"), _FORM),
        "message expiry twice": (publish(b"\x02\0\0\0\1" * 2), _FORM),
        "content type twice": (publish(b"\x03\0\1a" * 2), _FORM),
        "content type that is not UTF-8": (publish(b"\x03\0\1\xff"), _FORM),
        "response topic twice": (publish(b"\x08\0\1a" * 2), _FORM),
        "response topic with a wildcard": (publish(b"\x08\0\1#"), frozenset({TOPIC_NAME, MALFORMED, PROTOCOL})),
        "correlation data twice": (publish(b"\x09\0\1a" * 2), _FORM),
        "topic alias 0": (publish(b"\x23\0\0"), alias),
        "topic alias beyond the maximum": (publish(b"\x23\xff\xff"), alias),
        "topic alias twice": (publish(b"\x23\0\1\x23\0\1"), _FORM),
        "topic alias that is not set": (packet(0x30, b"\0\0\3\x23\0\x0ax"), frozenset({PROTOCOL})),
        "subscription identifier in PUBLISH": (publish(b"\x0b\1"), _FORM),
        "user property with U+0000": (publish(b"\x26\0\1\0\0\1a"), _FORM),
        "user property without a value": (publish(b"\x26\0\1a"), _FORM),
        "subscription identifier 0": (subscribe(b"\x0b\0"), _FORM),
        "subscription identifier twice": (subscribe(b"\x0b\1\x0b\2"), _FORM),
        "message expiry in SUBSCRIBE": (subscribe(b"\x02\0\0\0\1"), _FORM),
        "retain handling 3": (subscribe(b"", b"\0\1a\x30"), _FORM),
        "no local in a shared subscription": (subscribe(b"", b"\0\x0a$share/g/a\x04"), _FORM),
        "a property in UNSUBSCRIBE": (packet(0xA2, b"\0\1\2\x0b\1\0\1a"), _FORM),
        "PUBACK with a reason of no packet": (packet(0x40, b"\0\1\xff"), _FORM),
        "PUBREL with a reason of PUBREC": (packet(0x62, b"\0\1\x10"), _FORM),
        "DISCONNECT with a reason of the server": (packet(0xE0, b"\x8b"), _FORM),
        "PUBACK with bytes behind its end": (packet(0x40, b"\0\1\0\0x"), _FORM),
        "a property of PUBLISH in PUBACK": (packet(0x40, b"\0\1\0\2\x01\0"), _FORM),
        "reason string twice": (packet(0x40, b"\0\1\0\x08" + b"\x1f\0\1a" * 2), _FORM),
        "DISCONNECT with a property of CONNECT": (packet(0xE0, b"\0\3\x21\0\1"), _FORM),
        "AUTH without a method": (packet(0xF0, b"\x18\0"), _FORM),
        "AUTH without anything": (packet(0xF0, b""), _FORM),
        "flags of AUTH": (packet(0xF1, b"\x18\0"), _FORM),
    }


def faults(level: int) -> dict[str, Fault]:
    """The faults of a level by name."""
    v5 = level == 5
    found = {name: (packet(first, body), _FORM) for name, (first, body) in _of_both(v5).items()}
    found |= _topics(v5)
    found["a remaining length of 5 bytes"] = (b"\x30\xff\xff\xff\xff\x7f", _FORM)
    found["a packet of 256 MB"] = (b"\x30\xff\xff\xff\x7f\0\1a", frozenset({TOO_LARGE, *_FORM}))
    if v5:
        found["a remaining length in more bytes than it needs"] = (b"\xc0\x80\0", _FORM)
        found |= _properties()
    else:
        found["AUTH"] = (packet(0xF0, b""), _FORM)
        found["PUBACK with a reason"] = (packet(0x40, b"\0\1\0"), _FORM)
        found["DISCONNECT with a reason"] = (packet(0xE0, b"\0"), _FORM)
    return found


def faulty_connects() -> dict[str, bytes]:
    """First packets that are none, or a CONNECT that cannot be: the server closes, with or without CONNACK."""

    def connect(body: bytes) -> bytes:
        return packet(0x10, body)

    v4, v5 = b"\0\4MQTT\4", b"\0\4MQTT\5"
    return {
        "PINGREQ first": b"\xc0\0",
        "PUBLISH first": packet(0x30, b"\0\1ax"),
        "AUTH first": packet(0xF0, b"\x18\0"),
        "flags of CONNECT": packet(0x11, v4 + b"\2\0\0\0\1x"),
        "another protocol": connect(b"\0\4MQTX\4\2\0\0\0\1x"),
        "the name in small letters": connect(b"\0\4mqtt\4\2\0\0\0\1x"),
        "an empty name": connect(b"\0\0\4\2\0\0\0\1x"),
        "the reserved flag": connect(v4 + b"\3\0\0\0\1x"),
        "the reserved flag of 5": connect(v5 + b"\3\0\0\0\0\1x"),
        "a will's QoS without a will": connect(v4 + b"\x0a\0\0\0\1x"),
        "a will's retain without a will": connect(v5 + b"\x22\0\0\0\0\1x"),
        "a will of QoS 3": connect(v4 + b"\x1e\0\0\0\1x\0\1a\0\1b"),
        "a will without a topic": connect(v4 + b"\6\0\0\0\1x"),
        "a will without a message": connect(v4 + b"\6\0\0\0\1x\0\1a"),
        "a will's topic with a wildcard": connect(v4 + b"\6\0\0\0\1x\0\1#\0\1b"),
        "a password without a user": connect(v4 + b"\x42\0\0\0\1x\0\1p"),
        "a user that is missing": connect(v4 + b"\x82\0\0\0\1x"),
        "a password that is missing": connect(v4 + b"\xc2\0\0\0\1x\0\1u"),
        "bytes behind the end": connect(v4 + b"\2\0\0\0\1x\0\1u"),
        "a client id with U+0000": connect(v4 + b"\2\0\0\0\2\0x"),
        "a client id that is not UTF-8": connect(v4 + b"\2\0\0\0\1\xff"),
        "a client id with a surrogate": connect(v5 + b"\2\0\0\0\0\3\xed\xa0\x80"),
        "a user with a surrogate": connect(v4 + b"\x82\0\0\0\1x\0\3\xed\xa0\x80"),
        "no client id": connect(v4 + b"\2\0\0"),
        "no keep-alive": connect(v4 + b"\2"),
        "no properties": connect(v5 + b"\2\0\0"),
        "MQTT of the level of MQIsdp": connect(b"\0\4MQTT\3\2\0\0\0\1x"),
        "MQIsdp of the level of MQTT": connect(b"\0\6MQIsdp\4\2\0\0\0\1x"),
        "MQIsdp without a client id": connect(b"\0\6MQIsdp\3\2\0\0\0\0"),
        "a receive maximum of 0": connect(v5 + b"\2\0\0\3\x21\0\0\0\1x"),
        "a receive maximum twice": connect(v5 + b"\2\0\0\6\x21\0\1\x21\0\1\0\1x"),
        "a maximum packet size of 0": connect(v5 + b"\2\0\0\5\x27\0\0\0\0\0\1x"),
        "a session expiry twice": connect(v5 + b"\2\0\0\x0a" + b"\x11\0\0\0\1" * 2 + b"\0\1x"),
        "a request for problems of 2": connect(v5 + b"\2\0\0\2\x17\2\0\1x"),
        "a request for a response of 2": connect(v5 + b"\2\0\0\2\x19\2\0\1x"),
        "a topic alias in CONNECT": connect(v5 + b"\2\0\0\3\x23\0\1\0\1x"),
        "a will delay among the properties of CONNECT": connect(v5 + b"\2\0\0\5\x18\0\0\0\1\0\1x"),
        "a property of CONNECT among the will's": connect(v5 + b"\6\0\0\0\0\1x\3\x21\0\1\0\1a\0\1b"),
        "authentication data without a method": connect(v5 + b"\2\0\0\4\x16\0\1a\0\1x"),
        "an authentication method twice": connect(v5 + b"\2\0\0\x08" + b"\x15\0\1a" * 2 + b"\0\1x"),
        "a will's response topic with a wildcard": connect(v5 + b"\6\0\0\0\0\1x\4\x08\0\1#\0\1a\0\1b"),
    }
