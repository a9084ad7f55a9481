"""Packets of a server as a client reads them."""

from __future__ import annotations

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError
from eyot_wire.mqtt.packets import Connack, Pingresp, Puback, Publish, Suback, Unsuback
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.mqtt.server_packets import ServerPacketReader

MAX = 1 << 20
SENT = {
    level: (
        encoder.connack(
            level, Connack(True, ReasonCode.SUCCESS, Properties(receive_maximum=7) if level == 5 else None)
        ),
        encoder.publish(level, "a/b", b"x" * 300, qos=1, retain=True, packet_id=9),
        encoder.puback(level, 3, ReasonCode.QUOTA_EXCEEDED if level == 5 else 0),
        encoder.suback(level, Suback(4, [ReasonCode.GRANTED_QOS_2, ReasonCode.UNSPECIFIED_ERROR])),
        encoder.unsuback(level, Unsuback(5, [ReasonCode.NO_SUBSCRIPTION_EXISTED])),
        encoder.PINGRESP,
    )
    for level in (4, 5)
}


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_all_kinds_in_pieces_of_any_size(level: int, step: int) -> None:
    data = b"".join(SENT[level])
    reader = ServerPacketReader(level, MAX)
    got = [packet for at in range(0, len(data), step) for packet in reader.feed(data[at : at + step])]
    connack, publish, puback, suback, unsuback, pong = got
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert level == 4 or (connack.properties is not None and connack.properties.receive_maximum == 7)
    assert isinstance(publish, Publish)
    assert (publish.topic, publish.qos, publish.retain, len(publish.payload)) == ("a/b", 1, True, 300)
    assert isinstance(puback, Puback)
    assert puback.reason_code == (ReasonCode.QUOTA_EXCEEDED if level == 5 else 0)
    assert isinstance(suback, Suback)
    assert suback.reason_codes == [ReasonCode.GRANTED_QOS_2, ReasonCode.UNSPECIFIED_ERROR]
    assert isinstance(unsuback, Unsuback)
    assert unsuback.reason_codes == ([ReasonCode.NO_SUBSCRIPTION_EXISTED] if level == 5 else [])
    assert isinstance(pong, Pingresp)


def test_a_server_of_3_1_1_refuses_a_client_of_5() -> None:
    (packet,) = ServerPacketReader(5, MAX).feed(b"\x20\x02\x00\x01")
    assert packet == Connack(False, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"INFO {" + b"x" * 90, MalformedPacket),
        (b"\x20\x02\x02\x00", MalformedPacket),
        (b"\x20\x03\x00\x00\x00", MalformedPacket),
        (b"\x10\x02\x00\x00", ProtocolError),
        (b"\xd0\xff\xff\xff\xff\x01", MalformedPacket),
        (b"\x30\xff\xff\xff\x7f", ProtocolError),
    ],
)
def test_what_is_no_packet_of_a_server(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(ServerPacketReader(4, MAX).feed(data))
