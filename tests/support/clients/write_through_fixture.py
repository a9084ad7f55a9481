"""Long frames from one twin's fan-out into real sockets, whose peers read now and then: the bytes that come out of each."""

from __future__ import annotations

import socket
from random import Random
from typing import Any

from support.clients.fan_out_fixture import Fixture
from support.clients.twins import FAN_OUTS, GRAMMARS, SCANNERS

#: Payload bytes around what is long enough to be written at once.
SIZES = (0, 10, 1_900, 2_100, 5_000, 40_000, 300_000)


class Subscriber:
    """A client's socket with the part of a transport: what is in `out` at the end of a turn is sent."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.ours, self.peer = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        for each in (self.ours, self.peer):
            each.setblocking(False)
        self.got = b""

    def end_turn(self) -> None:
        client = self.client
        try:
            sent = self.ours.send(client.out)
        except BlockingIOError:
            return
        del client.out[:sent]
        if not client.out:
            client.fd = self.ours.fileno()

    def read(self) -> None:
        try:
            while data := self.peer.recv(1 << 20):
                self.got += data
        except BlockingIOError:
            pass

    def close(self) -> None:
        self.ours.close()
        self.peer.close()


def frames(rng: Random, size: int) -> bytes:
    """Publishes of at least so many bytes together."""
    data = bytearray()
    while len(data) < size:
        subject = rng.choice([b"a", b"b", b"a.b", b"c.d.e", b"_INBOX.x.1", b"none", b"$JS.x"])
        reply = rng.choice([b"", b"", b"r "])
        payload = rng.randbytes(1) * (rng.choice(SIZES) + rng.randrange(200))
        if rng.random() < 0.2:
            data += b"HPUB %b %b12 %d\r\nNATS/1.0\r\n\r\n%b\r\n" % (subject, reply, 12 + len(payload), payload)
        else:
            data += b"PUB %b %b%d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return bytes(data)


def written(twin: int, seed: int) -> list[object]:
    """What reached each client, and all counts, after reads of many sizes; by twin 0 (plain) or 1 (compiled)."""
    rng = Random(seed)
    fixture = Fixture(FAN_OUTS[twin], seed)
    scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
    data = frames(rng, 600_000)
    readers = [Subscriber(client) for client in fixture.clients.values()]
    buffer = bytearray(1 << 20)  # of all reads, as the transport's
    at = 0
    try:
        while at < len(data):
            size = min(rng.choice([3, 5_000, 32_768, 100_000, 262_144]), len(data) - at)
            buffer[:size] = data[at : at + size]
            at += size
            for row in scanner.feed(memoryview(buffer)[:size]):
                fixture.publish(row)
            buffer[:size] = bytes(size)  # what was not written or copied by now is lost
            for reader in readers:
                reader.end_turn()
                if rng.random() < 0.5:
                    reader.read()
        for reader in readers:
            while reader.client.out:
                reader.read()
                reader.end_turn()
            reader.read()
        return [fixture.state(), [reader.got for reader in readers]]
    finally:
        for reader in readers:
            reader.close()
