"""What happens on a connection of a bridge, as values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from eyot_wire.mqtt.packets import Publish
from eyot_wire.mqtt.reason_codes import ReasonCode


class RemoteLimits(Struct, frozen=True, kw_only=True):
    """What the remote takes, by its CONNACK; the defaults are those of the specification."""

    #: publishes of QoS 1 and 2 that are not acknowledged
    receive_maximum: int = 65_535
    packet_bytes_max: int = 268_435_460
    qos_max: int = 2
    takes_retained: bool = True


class Established(Struct, frozen=True):
    """The remote accepts the connection. `session_present`: it has the session of an earlier one."""

    session_present: bool
    limits: RemoteLimits


class Settled(Struct, frozen=True):
    """The remote answered a publish: PUBACK, PUBREC or PUBCOMP; `text`: its reason string."""

    kind: Literal["puback", "pubrec", "pubcomp"]
    packet_id: int
    reason: ReasonCode
    text: str = ""


class Arrived(Struct, frozen=True):
    """A publish of the remote, its topic in full."""

    publish: Publish


class Released(Struct, frozen=True):
    """PUBREL: the remote will not send this publish again."""

    packet_id: int


class FilterRefused(Struct, frozen=True):
    """The remote refuses a subscription."""

    filter: str
    reason: ReasonCode
    text: str = ""


class Ended(Struct, frozen=True):
    """The connection is over; `text` says why. `reason`: of the remote, if it named one. `by_remote`: it closed, unasked."""

    text: str
    reason: ReasonCode | None = None
    by_remote: bool = False


Event = Established | Settled | Arrived | Released | FilterRefused | Ended
