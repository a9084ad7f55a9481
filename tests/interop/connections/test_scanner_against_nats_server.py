"""The client scanner against a real nats-server: the same bytes must be understood, or refused with the same words.

A client subscribed to everything sends some bytes and a PING. What comes back is predicted by the scanner: a MSG or HMSG
for each publish, the PONG, or the -ERR and the close.
"""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire.frames import Ping, ProtocolError, Pub
from eyot_wire.scanner import Scanner
from support.servers.nats_server import NatsServer

START = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nSUB > 1\r\n'
END = b"\r\nPING\r\n"
CLOSED = b"<closed>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer("", Path(tmp_path_factory.mktemp("nats"))) as running:
        yield running


def predicted(data: bytes) -> tuple[bytes, bool]:
    """What the server will send, and whether it says something at the end (a PONG, or the close)."""
    scanner = Scanner()
    error: ProtocolError | None = None
    try:
        ops = scanner.feed(START + data)
    except ProtocolError as caught:
        error, ops = caught, caught.ops
    answer = b""
    for op in ops:
        if isinstance(op, Ping):
            answer += b"PONG\r\n"
        elif isinstance(op, Pub) and b"" not in op.subject.split(b"."):
            verb = b"HMSG" if op.header else b"MSG"
            answer += b"%b %b 1 %b" % (verb, op.subject, op.tail)
    if error is not None:
        answer += b"-ERR '%b'\r\n" % error.text.encode() if error.text else b""
        return answer + CLOSED, True
    return answer, scanner.pending == 0 and isinstance(ops[-1], Ping)


def answered(server: NatsServer, data: bytes, expected: bytes) -> bytes:
    with socket.create_connection((server.host, server.client_port)) as sock:
        info = sock.makefile("rb").readline()
        assert info.startswith(b"INFO ")
        sock.sendall(START + data)
        sock.settimeout(10)
        got = b""
        while len(got) < len(expected):
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return got + CLOSED
            # Newer servers tell after the first PONG who the client is.
            got = re.sub(rb"INFO .*\r\n", b"", got + piece)
        return got


def same(server: NatsServer, data: bytes) -> None:
    expected, ends = predicted(data)
    if ends:
        assert answered(server, data, expected) == expected, data


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"FOO\r\n",
        b"ping\n",
        b"PINGxx\r\n",
        b" PING\r\n",
        b"PONG x\r\n",
        b"PUBa 1\r\n",
        b"PUB\r\n",
        b"PUB \r\n",
        b"PUB a\r\n",
        b"PUB a b c 1\r\nx\r\n",
        b"PUB a x\r\n",
        b"PUB a +1\r\nx\r\n",
        b"PUB a -1\r\n\r\n",
        b"PUB a 1234567890\r\n",
        b"PUB a 123456789\r\n",
        b"PUB a 1048577\r\n",
        b"PUB a 1\nx\r\n",
        b"PUB a 1\nx\n",
        b"PUB a 1\r\nxy\r\n",
        b"PUB a 1\r\nx\ry",
        b"PUB  a\t 01 \r\nx\r\n",
        b"pub a\x0bb 1\r\nx\r\n",
        b"PUB a\r 1\r\nx\r\n",
        b"PUB a 1\r\r\nx\r\n",
        b"PUB a 0\r\n\r\n",
        b"PUB * 1\r\nx\r\n",
        b"PUB a..b 1\r\nx\r\n",
        b"HPUB a 12 5\r\n",
        b"HPUB a x 5\r\n",
        b"HPUB a 5\r\nhello\r\n",
        b"HPUB a 0 5\r\nhello\r\n",
        b"HPUB a 3 5\r\nhello\r\n",
        b"HPUB a r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
        b"HPUB a b c 1 1\r\n",
        b"SUB a\r\n",
        b"SUB \r\n",
        b"SUB a b c d\r\n",
        b"UNSUB \r\n",
        b"UNSUB 1 2 3\r\n",
        b"UNSUB 7 x\r\n",
        b"MSG a 1 1\r\nx\r\n",
        b"LS+ a\r\n",
        b"+OK\r\n",
        b"+okx\r\n",
        b"+\r\n",
        b"-ERR\r\n",
        b"INFO {}\r\n",
        b"INFO\r\n",
        b"\x16\x03\x01\x02",
        b"PUB " + b"a" * 4094 + b" 1\r\nx\r\n",
        b"PUB " + b"a" * 4095 + b" 1\r\nx\r\n",
        b"PUB   " + b"a" * 4094 + b" 1\r\nx\r\n",
        b"PUB " + b"a" * 4094 + b" 1  \r\nx\r\n",
        b"SUB " + b"a" * 4095 + b" 1\r\n",
        b"UNSUB " + b"a" * 4097 + b"\r\n",
        b"CONNECT {" + b" " * 4095 + b"}\r\n",
        b"PING" + b"x" * 5000 + b"\r\n",
        b"PUB " + b"a" * 4097,
    ],
)
def test_known_cases(server: NatsServer, data: bytes) -> None:
    same(server, data + END[2:])


WORDS = b"PUB |PUB\t|HPUB |UNSUB |PING|PONG|+OK| |  |\t|a|b.c|7|3|0|\r\n|\r\n|3\n|abc|\r|-2|x".split(b"|")
FRAMES = [b"PUB a 3\r\nabc\r\n", b"PUB b r 3\r\nabc\r\n", b"HPUB a 1 3\r\nabc\r\n"]

parts = st.sampled_from([*WORDS, *FRAMES])


def test_random_cases(server: NatsServer) -> None:
    @settings(max_examples=300, derandomize=True, deadline=None, database=None)
    @given(st.lists(parts, max_size=14).map(b"".join))
    def check(data: bytes) -> None:
        same(server, data + END)

    check()
