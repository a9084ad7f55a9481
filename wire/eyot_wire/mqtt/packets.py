"""The control packets of MQTT (3.1 to 3.15 of the specification 5.0).

One set of structs for all levels. What a level does not have stays at its default: properties and reason codes in
3.1 and 3.1.1.
"""

from msgspec import Struct

from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode


class Will(Struct):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


class Connect(Struct):
    """`protocol_level`: 3 (3.1), 4 (3.1.1) or 5; `keep_alive`: seconds, 0: none."""

    protocol_level: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties | None = None


class Connack(Struct):
    session_present: bool = False
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Publish(Struct):
    """`topic` is empty where an alias stands for it; `packet_id` is 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties | None = None


class Answer(Struct):
    """PUBACK, PUBREC, PUBREL and PUBCOMP."""

    packet_id: int
    reason_code: int = 0
    properties: Properties | None = None


class Puback(Answer):
    pass


class Pubrec(Answer):
    pass


class Pubrel(Answer):
    pass


class Pubcomp(Answer):
    pass


class SubscriptionRequest(Struct):
    """One filter of SUBSCRIBE with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct):
    packet_id: int
    filters: list[SubscriptionRequest]
    properties: Properties | None = None


class Suback(Struct):
    packet_id: int
    reason_codes: list[ReasonCode]
    properties: Properties | None = None


class Unsubscribe(Struct):
    packet_id: int
    filters: list[str]
    properties: Properties | None = None


class Unsuback(Struct):
    packet_id: int
    reason_codes: list[ReasonCode]
    properties: Properties | None = None


class Pingreq(Struct):
    pass


class Pingresp(Struct):
    pass


class Disconnect(Struct):
    reason_code: int = 0
    properties: Properties | None = None


class Auth(Struct):
    reason_code: int = 0
    properties: Properties | None = None


#: What a client sends.
Packet = Connect | Publish | Puback | Pubrec | Pubrel | Pubcomp | Subscribe | Unsubscribe | Pingreq | Disconnect | Auth
