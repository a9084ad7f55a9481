"""Load from raw sockets: frames made beforehand, replies counted as bytes, so that the loader costs little."""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice

RECEIVE_BYTES = 1 << 18
CHUNK_BYTES = 1 << 18
TIMEOUT_S = 120
SEQ = b'"seq":'


class Peer:
    """A connected client on a blocking socket."""

    def __init__(self, port: int, user: str = "fleet", tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = {"verbose": False, "pedantic": False, "user": user, "pass": user, "headers": True, "protocol": 1}
        self.buffer = bytearray(RECEIVE_BYTES)
        self._kept = 0  # bytes at its beginning that may be part of what is looked for
        self._greeting = self.socket.recv(8192)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.barrier()

    def barrier(self) -> bytes:
        """Sends PING and reads until the PONG; returns what came before it."""
        self.socket.sendall(b"PING\r\n")
        seen = b""
        while not seen.endswith((b"PONG\r\n", b"PONG\r\nPING\r\n")):  # the server's own PING may come with it
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError(f"the server closed the connection: {seen[-200:]!r}")
            seen += data
            if seen.startswith(b"-ERR"):
                raise ConnectionError(seen.decode(errors="replace"))
            if b"PONG\r\n" in seen and b"INFO" in seen:
                break
        return seen

    def request(self, subject: str, body: object = "") -> dict[str, object]:
        """A JetStream API request with its JSON reply; nothing else may be under way on this connection."""
        payload = b"" if body == "" else json.dumps(body).encode()
        self.socket.sendall(b"SUB _INBOX.bench 9\r\nUNSUB 9 1\r\n")
        self.socket.sendall(f"PUB {subject} _INBOX.bench {len(payload)}\r\n".encode() + payload + b"\r\n")
        seen = b""
        while b"}\r\n" not in seen[seen.find(b"MSG ") :] or b"MSG " not in seen:  # a PING may follow
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError(f"no answer on {subject}")
            seen += data
        # Newer servers may send another INFO at any time, before the answer too.
        text = seen[seen.index(b"{", seen.index(b"MSG ")) :].decode()
        reply: dict[str, object] = json.JSONDecoder().raw_decode(text)[0]
        if "error" in reply:
            raise RuntimeError(f"{subject}: {reply['error']}")
        return reply

    def last_direct(self, subject: str, body: object) -> None:
        """A direct get of several messages, up to the status at its end; nothing else may be under way on this connection."""
        payload = json.dumps(body).encode()
        self.socket.sendall(b"SUB _INBOX.direct 9\r\n")
        self.socket.sendall(f"PUB $JS.API.{subject} _INBOX.direct {len(payload)}\r\n".encode() + payload + b"\r\n")
        seen = b""
        while b"NATS/1.0 " not in seen:
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError(f"no answer on {subject}")
            seen = seen[-16:] + data
        self.socket.sendall(b"UNSUB 9\r\n")

    def receive_bytes(self, count: int) -> None:
        view = memoryview(self.buffer)
        while count > 0:
            got = self.socket.recv_into(view)
            if not got:
                raise ConnectionError("the server closed the connection")
            count -= got

    def receive_acks(self) -> int:
        """One read; how many PubAcks came to an end in it."""
        buffer, kept = self.buffer, self._kept
        size = kept + self.socket.recv_into(memoryview(buffer)[kept:])
        if size == kept:
            raise ConnectionError("the server closed the connection")
        if buffer.find(b'"error"', 0, size) >= 0:
            raise RuntimeError(buffer[:size].decode(errors="replace"))
        got = buffer.count(SEQ, 0, size)
        self._kept = min(size, len(SEQ) - 1)
        buffer[: self._kept] = buffer[size - self._kept : size]
        return got

    def close(self) -> None:
        self.socket.close()


def publish(peer: Peer, subject: str, payload: bytes, count: int) -> None:
    """Publishes `count` messages as fast as the socket takes them, then waits until the server has read them."""
    frame = f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n"
    per_chunk = max(1, CHUNK_BYTES // len(frame))
    chunk = frame * per_chunk
    for _ in range(count // per_chunk):
        peer.socket.sendall(chunk)
    peer.socket.sendall(frame * (count % per_chunk))
    peer.barrier()


def publish_in_turn(peer: Peer, subjects: list[str], payload: bytes, count: int) -> None:
    """Publishes `count` messages to the subjects in turn, then waits until the server has read them."""
    frames = [f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n" for subject in subjects]
    per_chunk = max(1, CHUNK_BYTES // len(frames[0]))
    endless = cycle(frames)
    chunks = [b"".join(islice(endless, per_chunk)) for _ in range(max(1, len(frames) // per_chunk))]
    sent = 0
    for chunk in cycle(chunks):
        if sent + per_chunk > count:
            break
        peer.socket.sendall(chunk)
        sent += per_chunk
    peer.socket.sendall(b"".join(islice(endless, count - sent)))
    peer.barrier()


def fan_out(port: int, subscribers: int, payload: bytes, count: int, subjects: int = 1) -> float:
    """Seconds until `count` messages of one publisher, to so many subjects in turn, reached every one of the subscribers."""
    names = ["bench.fan"] if subjects == 1 else [f"bench.fan.{number:05}" for number in range(subjects)]
    readers = [Peer(port) for _ in range(subscribers)]
    frame_bytes = len(f"MSG {names[0]} 1 {len(payload)}\r\n") + len(payload) + 2
    for reader in readers:
        reader.socket.sendall(b"SUB bench.fan 1\r\n" if subjects == 1 else b"SUB bench.fan.* 1\r\n")
        reader.barrier()
    publisher = Peer(port)
    # In processes of their own: threads would wait for each other instead of for the server.
    started = [_in_process(lambda reader=reader: reader.receive_bytes(frame_bytes * count)) for reader in readers]
    children, ends = zip(*started, strict=True)
    begun = time.perf_counter()
    if subjects == 1:
        publish(publisher, names[0], payload, count)
    else:
        publish_in_turn(publisher, names, payload, count)
    for end in ends:
        if os.read(end, 1) != b".":
            raise ConnectionError("a subscriber did not get everything")
        os.close(end)
    elapsed = time.perf_counter() - begun
    for child in children:
        os.waitpid(child, 0)
    for peer in (*readers, publisher):
        peer.close()
    return elapsed


def crowd(port: int, size: int, payload: bytes, count: int) -> float:
    """Seconds until `count` messages of `size` publishers, each in a write of its own, reached the one subscriber of each."""
    readers, publishers = [Peer(port) for _ in range(size)], [Peer(port) for _ in range(size)]
    frames = []
    expected = 0
    for number, reader in enumerate(readers):
        name = f"bench.crowd.{number:03}"
        reader.socket.sendall(f"SUB {name} 1\r\n".encode())
        reader.barrier()
        frames.append(b"PUB %b %d\r\n%b\r\n" % (name.encode(), len(payload), payload))
        expected += count // size * (len(f"MSG {name} 1 {len(payload)}\r\n") + len(payload) + 2)
    child, end = _in_process(lambda: _receive_from_all(readers, expected))
    sends = [(peer.socket.sendall, frame) for peer, frame in zip(publishers, frames, strict=True)]
    begun = time.perf_counter()
    for _ in range(count // size):
        for send, frame in sends:
            send(frame)
    if os.read(end, 1) != b".":
        raise ConnectionError("a subscriber did not get everything")
    elapsed = time.perf_counter() - begun
    os.close(end)
    os.waitpid(child, 0)
    for peer in (*readers, *publishers):
        peer.close()
    return elapsed


def _receive_from_all(peers: list[Peer], expected: int) -> None:
    epoll = select.epoll()
    by_fd = {peer.socket.fileno(): peer.socket for peer in peers}
    for fd in by_fd:
        epoll.register(fd, select.EPOLLIN)
    buffer = bytearray(RECEIVE_BYTES)
    while expected > 0:
        for fd, _ in epoll.poll(TIMEOUT_S):
            got = by_fd[fd].recv_into(buffer)
            if not got:
                raise ConnectionError("the server closed the connection")
            expected -= got


def _in_process(work: Callable[[], None]) -> tuple[int, int]:
    """Have `work` done in a child process: its number, and a pipe that brings a dot when that is over, or nothing if it failed."""
    end, begin = os.pipe()
    child = os.fork()
    if child:
        os.close(begin)
        return child, end
    try:
        work()
        os.write(begin, b".")
    finally:
        os._exit(0)


def request_reply(port: int, payload: bytes, count: int, tls: ssl.SSLContext | None = None) -> list[float]:
    """Round trip times in seconds of `count` requests, one after the other, answered by a second connection."""
    responder, requester = Peer(port, tls=tls), Peer(port, tls=tls)
    responder.socket.sendall(b"SUB bench.service 1\r\n")
    responder.barrier()
    answer = b" 2\r\nok\r\n"

    def respond() -> None:
        answered = 0
        while answered < count:
            read = responder.socket.recv(RECEIVE_BYTES)
            at = read.find(b"MSG ")
            if at < 0:
                responder.socket.sendall(b"PONG\r\n" * read.count(b"PING"))
                continue
            responder.socket.sendall(b"PUB " + read[at:].split(b" ", 4)[3] + answer)
            answered += 1

    thread = threading.Thread(target=respond)
    thread.start()
    requester.socket.sendall(b"SUB _INBOX.r.* 1\r\n")
    requester.barrier()
    times = []
    for number in range(count):
        frame = f"PUB bench.service _INBOX.r.{number} {len(payload)}\r\n".encode() + payload + b"\r\n"
        begun = time.perf_counter()
        requester.socket.sendall(frame)
        while b"MSG " not in requester.socket.recv(RECEIVE_BYTES):
            requester.socket.sendall(b"PONG\r\n")
        times.append(time.perf_counter() - begun)
    thread.join()
    requester.close()
    responder.close()
    return times


def publish_acknowledged(
    port: int,
    connections: int,
    in_flight: int,
    payload: bytes,
    count: int,
    subject: str = "bench.durable",
    *,
    ids: bool = False,
) -> float:
    """Seconds until `count` publishes to a stream's subject were acknowledged, `in_flight` at a time per connection;
    with `ids`: each with a `Nats-Msg-Id` of its own.
    """
    peers = [Peer(port) for _ in range(connections)]
    epoll = select.epoll()
    by_fd: dict[int, tuple[Peer, Callable[[int], bytes]]] = {}  # with what gives the frames it publishes
    for number, peer in enumerate(peers):
        inbox = f"_INBOX.a.{number}"
        frames = _with_ids if ids else _alike
        publishes = frames(f"{subject} {inbox}".encode(), payload, count)
        peer.socket.sendall(f"SUB {inbox} 1\r\n".encode())
        peer.barrier()
        epoll.register(peer.socket, select.EPOLLIN)
        by_fd[peer.socket.fileno()] = peer, publishes
    sent = acked = 0
    begun = time.perf_counter()
    for peer, publishes in by_fd.values():
        peer.socket.sendall(publishes(in_flight))
        sent += in_flight
    while acked < count:
        found = epoll.poll(TIMEOUT_S)
        if not found:
            raise TimeoutError(f"{acked} of {count} acknowledged")
        for fd, _ in found:
            peer, publishes = by_fd[fd]
            got = peer.receive_acks()
            acked += got
            more = min(got, count - sent)
            if more > 0:
                peer.socket.sendall(publishes(more))
                sent += more
    elapsed = time.perf_counter() - begun
    epoll.close()
    for peer in peers:
        peer.close()
    return elapsed


def publish_to(port: int, names: list[str], payload: bytes, count: int, in_flight: int = 256) -> None:
    """Publish `count` messages to streams' subjects, one after the other, and wait for all acknowledgements."""
    peer = Peer(port)
    peer.socket.sendall(b"SUB _INBOX.g 1\r\n")
    peer.barrier()
    frames = cycle([b"PUB %b _INBOX.g %d\r\n%b\r\n" % (name.encode(), len(payload), payload) for name in names])
    sent = min(in_flight, count)
    acked = 0
    peer.socket.sendall(b"".join(islice(frames, sent)))
    while acked < count:
        got = peer.receive_acks()
        acked += got
        more = min(got, count - sent)
        peer.socket.sendall(b"".join(islice(frames, more)))
        sent += more
    peer.close()


def _alike(to: bytes, payload: bytes, _: int) -> Callable[[int], bytes]:
    return (b"PUB %b %d\r\n%b\r\n" % (to, len(payload), payload)).__mul__


def _with_ids(to: bytes, payload: bytes, count: int) -> Callable[[int], bytes]:
    """All made beforehand, each with an id that never was before."""
    unique = os.urandom(11).hex().encode()
    size = len(b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n") + len(unique) + 9
    frame = b"HPUB %b %d %d\r\nNATS/1.0\r\nNats-Msg-Id: %b-%%08d\r\n\r\n%b\r\n"
    frame %= to, size, size + len(payload), unique, payload
    frames = iter([frame % number for number in range(count)])
    return lambda more: b"".join(islice(frames, more))


def make_stream(port: int, name: str, subject: str) -> None:
    peer = Peer(port)
    config = {"name": name, "subjects": [subject], "retention": "limits", "storage": "file", "num_replicas": 1,
              "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "old"}  # fmt: skip
    peer.request(f"$JS.API.STREAM.CREATE.{name}", config)
    peer.close()


def delete_stream(port: int, name: str) -> None:
    peer = Peer(port)
    peer.request(f"$JS.API.STREAM.DELETE.{name}")
    peer.close()


def fetch_acknowledged(port: int, stream: str, batch: int, count: int) -> float:
    """Seconds to fetch `count` messages in batches from a durable pull consumer, acknowledging each."""
    peer = Peer(port)
    consumer = {
        "durable_name": "bench",
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "max_ack_pending": 10 * batch,
    }
    request = {"stream_name": stream, "config": consumer}
    peer.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.bench", request)
    peer.socket.sendall(b"SUB _INBOX.f 2\r\n")
    body = json.dumps({"batch": batch, "expires": 5_000_000_000}).encode()
    ask = f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.bench _INBOX.f {len(body)}\r\n".encode() + body + b"\r\n"
    fetched = 0
    begun = time.perf_counter()
    while fetched < count:
        peer.socket.sendall(ask)
        wanted = min(batch, count - fetched)
        fetched += _take_and_ack(peer, wanted)
    peer.barrier()
    elapsed = time.perf_counter() - begun
    peer.request(f"$JS.API.CONSUMER.DELETE.{stream}.bench")
    peer.close()
    return elapsed


def _take_and_ack(peer: Peer, wanted: int) -> int:
    """Reads `wanted` messages and acknowledges them, a read at a time."""
    taken, rest = 0, b""
    while taken < wanted:
        lines = (rest + peer.socket.recv(RECEIVE_BYTES)).split(b"\r\n")
        rest = lines.pop()
        acks = [line.split(b" ")[3] for line in lines if line.startswith(b"MSG ") and b" $JS.ACK." in line]
        if lines and b"NATS/1.0" in lines:
            raise RuntimeError(f"a status in the middle of a fetch: {lines[-6:]!r}")
        peer.socket.sendall(b"".join(b"PUB %b 4\r\n+ACK\r\n" % ack for ack in acks))
        taken += len(acks)
    return taken


def ordered_replay(port: int, stream: str, count: int) -> float:
    """Seconds until an ordered consumer (push, no acknowledgements, flow control, as client libraries make it) has
    brought the first `count` messages of a stream.
    """
    peer = Peer(port)
    peer.socket.sendall(b"SUB _INBOX.o 3\r\n")
    consumer = {
        "name": "replay",
        "deliver_subject": "_INBOX.o",
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": 1,
        "mem_storage": True,
        "flow_control": True,
        "idle_heartbeat": 5_000_000_000,
        "inactive_threshold": 300_000_000_000,
        "num_replicas": 1,
    }
    request = json.dumps({"stream_name": stream, "config": consumer}).encode()
    begun = time.perf_counter()
    peer.socket.sendall(
        f"PUB $JS.API.CONSUMER.CREATE.{stream}.replay _INBOX.c {len(request)}\r\n".encode() + request + b"\r\n"
    )
    _take_ordered(peer, count)
    elapsed = time.perf_counter() - begun
    peer.socket.sendall(b"UNSUB 3\r\n")
    peer.barrier()
    peer.request(f"$JS.API.CONSUMER.DELETE.{stream}.replay")
    peer.close()
    return elapsed


def _take_ordered(peer: Peer, count: int) -> None:
    """Reads `count` messages, answering flow control."""
    mark, ask = b" $JS.ACK.", b" $JS.FC."
    taken = 0
    rest = answered = b""
    while taken < count:
        read = peer.socket.recv(RECEIVE_BYTES)
        if not read:
            raise ConnectionError("the server closed the connection")
        data = rest + read
        taken += data.count(mark) - rest.count(mark)
        at = data.rfind(ask)
        if at >= 0:
            subject = data[at + 1 :].split(b" ", 1)[0]
            # Of a request that the read cut in two, what is known is the end of `rest` next time.
            if b" " in data[at + 1 :] and subject != answered:
                answered = subject
                peer.socket.sendall(b"PUB %b 0\r\n\r\n" % subject)
        rest = data[-200:]


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
