"""What an MQTT publish is as a NATS message, and back.

The topic becomes the subject (`eyot_wire.mqtt.topics`). The properties of MQTT 5 become headers:

| property | header |
|---|---|
| user properties | a header each where the name is plain; the exact list in `Eyot-Mqtt-User` where one is not |
| content type | `Content-Type`; one that no header holds unchanged: `Eyot-Mqtt-Content-Type`, base64 |
| response topic | the reply subject for subscribers of NATS; `Eyot-Mqtt-Response-Topic` for streams and MQTT |
| correlation data | `Eyot-Mqtt-Correlation`, base64 |
| payload format 0, 1 | `Eyot-Mqtt-Format: bytes`, `utf-8` |
| message expiry | `Eyot-Mqtt-Expires`, Unix time in nanoseconds; `Nats-TTL` in streams that allow it |

`Nmqtt-Pub` carries the QoS, as nats-server's. A user property never becomes a header that steers NATS (`Nats-*`,
`Nmqtt-*`, `Eyot-*`), since a device could delete a stream's messages with `Nats-Rollup`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.mqtt.properties import Properties

#: nats-server's header: the QoS of the publish.
PUB: Final = b"Nmqtt-Pub"
USER: Final = b"Eyot-Mqtt-User"
CONTENT_TYPE: Final = b"Content-Type"
CONTENT_EXACT: Final = b"Eyot-Mqtt-Content-Type"
RESPONSE_TOPIC: Final = b"Eyot-Mqtt-Response-Topic"
CORRELATION: Final = b"Eyot-Mqtt-Correlation"
FORMAT: Final = b"Eyot-Mqtt-Format"
_FORMATS: Final = {b"bytes": 0, b"utf-8": 1}
EXPIRES: Final = b"Eyot-Mqtt-Expires"
#: The client id of the publisher, for `no_local` in queues.
CLIENT: Final = b"Eyot-Mqtt-Client"
TTL: Final = b"Nats-TTL"
#: In queues: the publish had the retain flag.
RETAIN: Final = b"Eyot-Mqtt-Retain"

_NS: Final = 1_000_000_000
#: Names that are headers of their own: tokens of RFC 9110, and no name that NATS or Eyot reads.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f]*")
_RESERVED: Final = ("nats-", "nmqtt-", "eyot-", "content-type")
_RESERVED_BYTES: Final = (b"nats-", b"nmqtt-", b"eyot-", b"content-type")


def header_of(properties: Properties | None, qos: int, client_id: str, now_ns: int) -> bytes:
    """Return the header block of a publish with `qos` at `now_ns` (Unix time)."""
    block = b"NATS/1.0\r\n%b: %d\r\n" % (PUB, qos)
    if qos:
        block += b"%b: %b\r\n" % (CLIENT, encoded_client(client_id))
    if properties is not None:
        block += b"".join(b"%b: %b\r\n" % field for field in _fields(properties, now_ns))
    return block + b"\r\n"


def encoded(data: bytes) -> bytes:
    """Return bytes as a header's value: base64."""
    return base64.b64encode(data)


def encoded_client(client_id: str) -> bytes:
    """Return a client id as a header's value: base64url, since ids may hold any character."""
    return base64.urlsafe_b64encode(client_id.encode())


def _fields(properties: Properties, now_ns: int) -> list[tuple[bytes, bytes]]:
    fields: list[tuple[bytes, bytes]] = []
    user = properties.user_properties
    if user:
        plain = [(name, value) for name, value in user if is_plain(name, value)]
        fields += [(name.encode(), value.encode()) for name, value in plain]
        if len(plain) != len(user):
            fields.append((USER, encoded(msgspec.json.encode(user))))
    if properties.content_type is not None:
        value = properties.content_type
        if _PLAIN_VALUE.fullmatch(value) and value == value.strip(" \t"):
            fields.append((CONTENT_TYPE, value.encode()))
        else:
            fields.append((CONTENT_EXACT, encoded(value.encode())))
    if properties.response_topic is not None:
        fields.append((RESPONSE_TOPIC, encoded(properties.response_topic.encode())))
    if properties.correlation_data is not None:
        fields.append((CORRELATION, encoded(properties.correlation_data)))
    if properties.payload_format_indicator is not None:
        fields.append((FORMAT, b"utf-8" if properties.payload_format_indicator else b"bytes"))
    if properties.message_expiry_interval is not None:
        fields.append((EXPIRES, b"%d" % (now_ns + properties.message_expiry_interval * _NS)))
    return fields


def is_plain(name: str, value: str) -> bool:
    """Return whether a user property may be a NATS header of its own, and comes back unchanged."""
    if not _PLAIN_NAME.fullmatch(name) or name.lower().startswith(_RESERVED):
        return False
    return _PLAIN_VALUE.fullmatch(value) is not None and value == value.strip(" \t")


def qos_of(header: bytes) -> int:
    """Return the QoS at which a message was published; 0 for messages of NATS clients."""
    if PUB not in header:
        return 0
    value = headers.get(header, PUB)
    return int(value) if value in (b"1", b"2") else 0


def client_of(header: bytes) -> str:
    """Return the client id of the publisher; "" if none is named."""
    if CLIENT not in header:
        return ""
    try:
        return base64.urlsafe_b64decode(headers.get(header, CLIENT) or b"").decode()
    except (binascii.Error, ValueError):
        return ""


def expires_ns(header: bytes) -> int:
    """Return when a message expires (Unix time, ns); 0: never."""
    if EXPIRES not in header:
        return 0
    return parse_uint(headers.get(header, EXPIRES) or b"") or 0


def properties_of(header: bytes, reply_topic: str, now_ns: int) -> Properties:
    """Return the properties that a subscriber of MQTT 5 gets with a message.

    `reply_topic`: the topic of the message's reply subject, "" without one. What cannot be read is left out: any NATS
    client may have written the header.
    """
    properties = Properties()
    if reply_topic:
        properties.response_topic = reply_topic
    if not header:
        return properties
    try:
        block = headers.parse(header)
    except headers.HeaderError:
        return properties
    _put_user(properties, block)
    content_type = block.get(CONTENT_TYPE)
    if content_type is None:
        content_type = _decoded(block.get(CONTENT_EXACT))
    if content_type is not None:
        properties.content_type = _text(content_type)
    response = _decoded(block.get(RESPONSE_TOPIC))
    if response:
        properties.response_topic = _text(response)
    properties.correlation_data = _decoded(block.get(CORRELATION))
    properties.payload_format_indicator = _FORMATS.get(block.get(FORMAT) or b"")
    until = expires_ns(header)
    if until:
        properties.message_expiry_interval = max(1, -((now_ns - until) // _NS))
    return properties


def _put_user(properties: Properties, block: headers.Headers) -> None:
    exact = _decoded(block.get(USER))
    if exact is not None:
        try:
            properties.user_properties = msgspec.json.decode(exact, type=list[tuple[str, str]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return
    for name, value in block:
        if name.lower().startswith(_RESERVED_BYTES):
            continue
        key, text = _text(name), _text(value)
        if key is not None and text is not None:
            properties.user_properties.append((key, text))


def _decoded(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _text(value: bytes) -> str | None:
    """Return `value` as a string of MQTT, at most 65,535 bytes; None if it is none."""
    if len(value) > 0xFFFF or b"\0" in value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
