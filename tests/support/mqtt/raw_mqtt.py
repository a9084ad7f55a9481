"""A client of MQTT by hand: sends any packets, and reads the server's one by one."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from typing import Self

from eyot_wire.mqtt import encoder, properties
from eyot_wire.mqtt.fields import FieldReader
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe, Will
from eyot_wire.mqtt.properties import Properties

TIMEOUT_S = 20.0


class Closed(Exception):
    """The server closed the connection."""


@dataclass
class Got:
    """A packet of the server."""

    type: PacketType
    flags: int
    body: bytes
    packet_id: int = 0
    reason: int = 0
    codes: list[int] = field(default_factory=list)
    present: bool = False
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    properties: Properties = field(default_factory=Properties, repr=False)


class RawMqtt:
    """One connection. Usable as a context manager; leaving it resets the connection without DISCONNECT."""

    def __init__(self, port: int, *, level: int = 4, sock: socket.socket | None = None) -> None:
        self.level = level
        self.sock = sock or socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._read = bytearray()
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def connect(
        self,
        client_id: str = "test",
        *,
        clean: bool = True,
        user: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        keep_alive: int = 0,
        props: Properties | None = None,
    ) -> Got:
        """CONNECT, and the CONNACK."""
        asked = Connect(self.level, client_id, clean, keep_alive, user, password, will, props)
        self.send(encoder.connect(asked))
        return self.expect(PacketType.CONNACK)

    def subscribe(self, *filters: str | SubscriptionRequest, qos: int = 0, props: Properties | None = None) -> Got:
        """SUBSCRIBE, and the SUBACK; messages that come before it are kept for `next`."""
        wanted = [each if isinstance(each, SubscriptionRequest) else SubscriptionRequest(each, qos) for each in filters]
        self.send(encoder.subscribe(self.level, Subscribe(self.next_id(), wanted, props)))
        return self.expect(PacketType.SUBACK)

    def unsubscribe(self, *filters: str) -> Got:
        self.send(encoder.unsubscribe(self.level, Unsubscribe(self.next_id(), list(filters))))
        return self.expect(PacketType.UNSUBACK)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        props: Properties | None = None,
    ) -> int:
        """PUBLISH alone; returns its packet identifier."""
        if qos and not packet_id:
            packet_id = self.next_id()
        self.send(
            encoder.publish(
                self.level, topic, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id, properties=props
            )
        )
        return packet_id

    def publish_acked(self, topic: str, payload: bytes = b"", *, qos: int = 1, **more: object) -> int:
        """PUBLISH with everything that follows; returns the reason code of PUBACK or PUBREC."""
        packet_id = self.publish(topic, payload, qos=qos, **more)  # type: ignore[arg-type]
        if qos == 0:
            return 0
        answer = self.expect(PacketType.PUBACK if qos == 1 else PacketType.PUBREC)
        assert answer.packet_id == packet_id
        if qos == 2 and answer.reason < 0x80:
            self.send(encoder.pubrel(self.level, packet_id))
            assert self.expect(PacketType.PUBCOMP).packet_id == packet_id
        return answer.reason

    def next_id(self) -> int:
        self._next_id = self._next_id % 60_000 + 1
        return self._next_id

    def puback(self, packet_id: int) -> None:
        self.send(encoder.puback(self.level, packet_id))

    def pubrec(self, packet_id: int, reason: int = 0) -> None:
        self.send(encoder.pubrec(self.level, packet_id, reason))

    def pubcomp(self, packet_id: int) -> None:
        self.send(encoder.pubcomp(self.level, packet_id))

    def disconnect(self) -> None:
        """DISCONNECT, and close when the server has: until then nats-server may send what comes next, and repeats it after 30 s only."""
        self.send(encoder.DISCONNECT)
        with contextlib.suppress(Closed):
            while True:
                self.packet()
        self.sock.close()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def packet(self) -> Got:
        """The next packet. Raises Closed, TimeoutError."""
        while True:
            found = self._cut()
            if found is not None:
                return found
            try:
                data = self.sock.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                raise Closed
            self._read += data

    def expect(self, kind: PacketType) -> Got:
        """The next packet of this type; other PUBLISH packets before it are kept."""
        kept: list[Got] = []
        try:
            while True:
                got = self.packet()
                if got.type is kind:
                    return got
                assert got.type is PacketType.PUBLISH, f"{got} where {kind.name} is due"
                kept.append(got)
        finally:
            self._kept = getattr(self, "_kept", []) + kept

    def message(self) -> Got:
        """The next PUBLISH, acknowledged as its QoS asks."""
        got = self.next_publish()
        if got.qos == 1:
            self.puback(got.packet_id)
        elif got.qos == 2:
            self.pubrec(got.packet_id)
            assert self.expect(PacketType.PUBREL).packet_id == got.packet_id
            self.pubcomp(got.packet_id)
        return got

    def next_publish(self) -> Got:
        """The next PUBLISH, not acknowledged."""
        kept: list[Got] = getattr(self, "_kept", [])
        return kept.pop(0) if kept else self.expect_publish()

    def expect_publish(self) -> Got:
        got = self.packet()
        assert got.type is PacketType.PUBLISH, got
        return got

    def ping(self) -> None:
        """PINGREQ and PINGRESP: everything sent before was handled."""
        self.send(encoder.PINGREQ)
        self.expect(PacketType.PINGRESP)

    def is_quiet(self) -> bool:
        """Whether nothing comes before the answer to a PINGREQ."""
        self.ping()
        return not getattr(self, "_kept", [])

    def closed(self) -> bool:
        """Whether the server closes the connection, and sends nothing before."""
        try:
            self.packet()
        except Closed:
            return True
        return False

    def _cut(self) -> Got | None:
        data, size, shift = self._read, 0, 0
        for at in range(1, 5):
            if at >= len(data):
                return None
            size |= (data[at] & 0x7F) << shift
            shift += 7
            if data[at] < 0x80:
                start = at + 1
                break
        else:
            raise AssertionError("no packet")
        if len(data) < start + size:
            return None
        first, body = data[0], bytes(data[start : start + size])
        del data[: start + size]
        return self._read_packet(first, body)

    def _read_packet(self, first: int, body: bytes) -> Got:
        got = Got(PacketType(first >> 4), first & 15, body)
        reader = FieldReader(body)
        v5 = self.level == 5
        if got.type is PacketType.CONNACK:
            got.present, got.reason = bool(reader.byte()), reader.byte()
        elif got.type is PacketType.PUBLISH:
            got.qos, got.retain, got.dup = first >> 1 & 3, bool(first & 1), bool(first & 8)
            got.topic = reader.string()
            got.packet_id = reader.int16() if got.qos else 0
        elif got.type in (PacketType.DISCONNECT, PacketType.AUTH):
            got.reason = reader.byte() if reader.left else 0
        elif got.type not in (PacketType.PINGRESP,):
            got.packet_id = reader.int16()
            if got.type not in (PacketType.SUBACK, PacketType.UNSUBACK) and reader.left:
                got.reason = reader.byte()
        if v5 and reader.left:
            got.properties = properties.read(reader, got.type) or Properties()
        if got.type is PacketType.PUBLISH:
            got.payload = reader.rest()
        elif got.type in (PacketType.SUBACK, PacketType.UNSUBACK):
            got.codes = list(reader.rest())
        reader.finish()
        return got
