"""What a session of MQTT keeps on flash: its record in `$MQTT_sess`, and the packet identifiers that are not released."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec import Struct, field

from eyot_wire.nuid import DIGITS

#: The expiry interval of a session that does not expire [MQTT-3.1.2.11.2].
NEVER: Final = 0xFFFF_FFFF
_HASH_LENGTH: Final = 8


class SubOptions(Struct, omit_defaults=True):
    """The options of one filter.

    `group`: of a shared subscription, "" for others. `subjects`: those that the filter converts to. `since`: the last sequence of `$MQTT_msgs` when the client subscribed;
    older messages are not for this filter. `context`: messages come with the streams that have them.
    """

    qos: int = 0
    subjects: list[bytes] = field(default_factory=list)
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    ignores_dollar: bool = False
    identifier: int = 0
    since: int = 0
    group: str = ""
    context: bool = False


class StoredWill(Struct, omit_defaults=True):
    """A will in its session's record. `properties`: as in the packet; `delay_s` counts from the end of the connection."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    properties: bytes = b""


class SessionRecord(Struct, omit_defaults=True):
    """One session, JSON on flash.

    `owner`        user and account; the session is not for others
    `level`        protocol level of the last connection: 3, 4 or 5
    `expiry_s`     how long it outlives its connection, seconds; `NEVER`: for ever
    `ended_ns`     wall time of the connection's end, ns since the epoch; 0 while it is connected
    `sent`         highest sequence of the queue that may have been sent before that end
    `subs`         options by topic filter
    `queue`        its consumer of `$MQTT_msgs`; "" without filters of QoS 1 or 2
    """

    client_id: str
    owner: str = ""
    level: int = 4
    expiry_s: int = 0
    ended_ns: int = 0
    sent: int = 0
    subs: dict[str, SubOptions] = field(default_factory=dict)
    will: StoredWill | None = None
    queue: str = ""


def session_hash(client_id: str) -> str:
    """Return nats-server's hash of a client id: 8 base-62 characters of its SHA-256 (`events.go:getHashSize`)."""
    digest = hashlib.sha256(client_id.encode("utf-8", "surrogatepass")).digest()
    return "".join(DIGITS[byte % 62] for byte in digest[:_HASH_LENGTH])


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(SessionRecord).decode

#: Positions of `$MQTT_sess`: QoS 2 publishes that are not released, and PUBRELs that are not answered.
HELD: Final = b"mqtt.held."
PUBREL: Final = b"mqtt.pubrel."


def position_key(kind: bytes, session: str, packet_id: int) -> bytes:
    """Return the key of a packet identifier's position; `session`: the hash of its client id."""
    return b"%b%b.%d" % (kind, session.encode(), packet_id)


def read_position(key: bytes) -> tuple[bytes, str, int] | None:
    """Return kind, session and packet identifier of a position; None: it is not of MQTT."""
    for kind in (HELD, PUBREL):
        if key.startswith(kind):
            session, _, number = key[len(kind) :].decode().rpartition(".")
            return kind, session, int(number)
    return None
