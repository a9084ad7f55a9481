"""Whole conversations of a hostile client with a server, beside listeners whose output shows what came through.

A seed determines the logins, the bytes sent, and how they are cut. Played twice against one server, or against two servers
of one program, the listeners receive the same.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from random import Random

from support.clients import hostile

#: What the servers of these conversations are configured with: a user with all rights, one with few, a mapped subject.
CONFIG = """
ping_interval: 600
max_payload: 65536
accounts {
    A {
        users = [
            {user: all, password: all}
            {user: few, password: few, permissions: {
                publish: {allow: ["a", "b", "c.>", "_INBOX.>"], deny: ["c.d.e"]}
                subscribe: {allow: ["a", "a.*", "_INBOX.>"], deny: ["a.b"]}
            }}
            {user: answers, password: answers, permissions: {
                publish: {allow: ["b"]}, subscribe: ["a", "b", "q"], allow_responses: {max: 2, expires: "1h"}
            }}
        ]
        mappings = { b: "mapped.b" }
    }
}
"""

TIMEOUT_S = 20.0
#: What a server says at times of its own.
_ASIDES = re.compile(rb"INFO \{[^\r\n]*\}\s*\r\n|PING\r\n")


@dataclass
class Heard:
    """What came back to the hostile client, and what the listeners got."""

    answer: bytes
    listeners: tuple[bytes, ...]
    at_once: bool  # all was sent in one piece, hence read in one

    def agrees(self, other: Heard) -> bool:
        """The same was heard. When a server hangs up in the middle, how much was answered depends on how it read what it got."""
        if self.listeners != other.listeners:
            return False
        if self.at_once and other.at_once:
            return self.answer == other.answer
        return self.answer.startswith(other.answer) or other.answer.startswith(self.answer)


class Listener:
    """A well-behaved client."""

    def __init__(self, port: int, lines: bytes, *, headers: bool = True) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        options = b'{"verbose":false,"pedantic":false,"user":"all","pass":"all","headers":%b}' % (
            b"true" if headers else b"false"
        )
        self.sock.sendall(b"CONNECT " + options + b"\r\n" + lines)
        self.heard()

    def heard(self) -> bytes:
        """Everything up to now."""
        self.sock.sendall(b"PING\r\n")
        got = b""
        while not got.endswith(b"PONG\r\n"):
            data = self.sock.recv(65536)
            if not data:
                raise AssertionError(f"a well-behaved client was hung up on: {got[-200:]!r}")
            got += data
        return _ASIDES.sub(b"", got).removesuffix(b"PONG\r\n")

    def close(self) -> None:
        self.sock.close()


def script(seed: int) -> list[bytes]:
    """What the hostile client of this seed sends, in pieces."""
    rng = Random(seed)
    user = rng.choice([b"all", b"all", b"few", b"answers"])
    options = b'{"user":"%b","pass":"%b","verbose":%b,"pedantic":%b,"echo":%b,"headers":%b,"no_responders":%b}' % (
        user, user, *(rng.choice([b"true", b"false", b"false", b"false"]) for _ in range(2)),
        rng.choice([b"true", b"true", b"false"]), *rng.choice([(b"true", b"true"), (b"true", b"false"), (b"false", b"false")]),
    )  # fmt: skip
    start = rng.choice([b"CONNECT " + options + b"\r\n"] * 9 + [b""])
    if rng.random() < 0.5:
        start += b"SUB a 1\r\nSUB a.* 2\r\nSUB > 3\r\nSUB a q 4\r\nUNSUB 2 3\r\nSUB _INBOX.x.* 5\r\n"
    body = hostile.hostile(rng, "PUB")
    while rng.random() < 0.5:
        body += hostile.traffic(rng, "PUB", rng.randrange(1, 60))
    return hostile.cut(rng, start + body)


def play(port: int, pieces: list[bytes]) -> Heard:
    """Send `pieces`, then hang up; what everybody heard, INFO and PING left out."""
    listeners = (
        Listener(port, b"SUB > all\r\n"),
        Listener(port, b"SUB a 1\r\nSUB a 2\r\nSUB mapped.* 3\r\n", headers=False),
        Listener(port, b"SUB c.> q 1\r\nSUB b q 2\r\n"),
    )
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = b""
        try:
            for piece in pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # hung up on in the middle
        try:
            while data := sock.recv(65536):
                answer += data
        except ConnectionError:
            pass
    heard = tuple(listener.heard() for listener in listeners)
    for listener in listeners:
        listener.close()
    at_once = len(pieces) == 1 and len(pieces[0]) < 16_000
    return Heard(_ASIDES.sub(b"", answer), heard, at_once)
