"""Several streams that are published to while several consumers of each receive and acknowledge."""

from __future__ import annotations

import select
import time
from itertools import cycle, islice

import wire

IN_FLIGHT = 160
MARK = b" $JS.ACK."


class _Receiver:
    """A connection with all consumers of one stream."""

    def __init__(self, port: int, stream: str, consumers: int) -> None:
        self.peer = wire.Peer(port)
        self.acked = 0
        self._rest = b""
        for number in range(consumers):
            deliver = f"_D.{stream}.{number}"
            self.peer.socket.sendall(f"SUB {deliver} c{number}\r\n".encode())
            config = {"durable_name": f"c{number}", "deliver_subject": deliver, "ack_policy": "explicit"}
            self.peer.request(
                f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.c{number}", {"stream_name": stream, "config": config}
            )

    def receive(self) -> None:
        """One read; all its messages are acknowledged in one write."""
        lines = (self._rest + self.peer.socket.recv(wire.RECEIVE_BYTES)).split(b"\r\n")
        self._rest = lines.pop()
        acks = [line.split(b" ")[3] for line in lines if line.startswith(b"MSG ") and MARK in line]
        self.peer.socket.sendall(b"".join([b"PUB %b 4\r\n+ACK\r\n" % ack for ack in acks]))
        self.acked += len(acks)


def run(port: int, streams: int, consumers: int, payload: bytes, count: int) -> float:
    """Deliveries a second until each consumer has acknowledged the `count` messages of its stream."""
    for number in range(streams):
        wire.make_stream(port, f"MIXED{number}", f"mixed.{number}")
    receivers = [_Receiver(port, f"MIXED{number}", consumers) for number in range(streams)]
    publisher = wire.Peer(port)
    publisher.socket.sendall(b"SUB _INBOX.m 1\r\n")
    publisher.barrier()
    frames = cycle(
        [b"PUB mixed.%d _INBOX.m %d\r\n%b\r\n" % (number, len(payload), payload) for number in range(streams)]
    )
    wanted, deliveries = streams * count, streams * consumers * count
    by_fd = {receiver.peer.socket.fileno(): receiver for receiver in receivers}
    epoll = select.epoll()
    for fd in (*by_fd, publisher.socket.fileno()):
        epoll.register(fd, select.EPOLLIN)
    sent = min(IN_FLIGHT, wanted)
    begun = time.perf_counter()
    publisher.socket.sendall(b"".join(islice(frames, sent)))
    while sum([receiver.acked for receiver in receivers]) < deliveries:
        found = epoll.poll(wire.TIMEOUT_S)
        if not found:
            raise TimeoutError("not all messages were delivered")
        for fd, _ in found:
            if fd in by_fd:
                by_fd[fd].receive()
                continue
            more = min(publisher.receive_acks(), wanted - sent)
            publisher.socket.sendall(b"".join(islice(frames, more)))
            sent += more
    for receiver in receivers:
        receiver.peer.barrier()
    elapsed = time.perf_counter() - begun
    epoll.close()
    for peer in (publisher, *(receiver.peer for receiver in receivers)):
        peer.close()
    return deliveries / elapsed
