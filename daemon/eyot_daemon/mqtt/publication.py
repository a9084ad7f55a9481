"""One publish of an MQTT client, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eyot_wire.mqtt.reason_codes import ReasonCode

if TYPE_CHECKING:
    from eyot_wire.mqtt.properties import Properties


class Publication(NamedTuple):
    """One publish. `subject`: that of its topic, before the account's mappings; `hold`: packet id and digest of QoS 2."""

    topic: str
    subject: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None
    hold: tuple[int, bytes] | None = None
    #: of QoS 1 that a client sent; 0: of another one
    packet_id: int = 0
    #: the client may have sent it before
    dup: bool = False


class Result(NamedTuple):
    """What became of a publish: `reason` for the answer, `text` for its reason string and the log."""

    reason: ReasonCode
    text: str = ""
