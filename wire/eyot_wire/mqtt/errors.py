"""Faults of a peer; each names the reason code of MQTT 5 that tells it to the peer."""

from eyot_wire.mqtt.reason_codes import ReasonCode


class MqttError(ValueError):
    """A packet that ends the connection."""

    reason_code = ReasonCode.UNSPECIFIED_ERROR
    #: the protocol level of a CONNECT that is faulty behind it; 0: the level is not known, or the packet is another one
    connect_level = 0

    def __init__(self, text: str, reason_code: ReasonCode | None = None) -> None:
        super().__init__(text)
        if reason_code is not None:
            self.reason_code = reason_code


class MalformedPacket(MqttError):
    """Bytes that are no packet of the specification."""

    reason_code = ReasonCode.MALFORMED_PACKET


class ProtocolError(MqttError):
    """A packet that is well formed, and not allowed here or in this form."""

    reason_code = ReasonCode.PROTOCOL_ERROR
