"""Links of tests: after a cut no byte passes, whatever was being connected when it came."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from support.clients.socks_proxy import SocksProxy
from support.links.link import Link
from support.links.shaper import Shaper

ROUNDS = 60


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it is sent."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:

        def serve(peer: socket.socket) -> None:
            with peer:
                try:
                    while data := peer.recv(4096):
                        peer.sendall(data)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", [Link, Shaper])
def test_a_cut_holds_for_what_was_being_connected(echo: int, kind: type[Link] | type[Shaper]) -> None:
    with kind(echo) as link:
        for round_ in range(ROUNDS):
            link.restore()
            dialled = [socket.create_connection(("127.0.0.1", link.port)) for _ in range(1 + round_ % 4)]
            link.cut()
            for each in dialled:
                with each:
                    assert passes(each) is False, f"round {round_}"


def passes(through: socket.socket) -> bool:
    """Does a byte come back?"""
    through.settimeout(10)
    try:
        through.sendall(b"x")
        return through.recv(1) != b""
    except ConnectionError:
        return False


@pytest.mark.parametrize("login", [None, ("me", "mine")])
def test_clients_that_leave_a_proxy_anywhere(echo: int, login: tuple[str, str] | None) -> None:
    """A dial is given up at any byte; an error in a thread would be some other test's."""
    words = b"\5\1\2\1\2me\4mine" if login else b"\5\1\0"
    words += b"\5\1\0\3\x09127.0.0.1" + echo.to_bytes(2, "big")
    before = set(threading.enumerate())
    with SocksProxy(login) as proxy:
        for end in range(len(words) + 1):
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.sendall(words[:end])
                if end == len(words):
                    assert client.makefile("rb").read(2 + 2 * bool(login) + 10)[-10:] == b"\5\0\0\1" + bytes(6)
        assert proxy.asked == [("127.0.0.1", echo)]
    deadline = time.monotonic() + 30
    while left := set(threading.enumerate()) - before:  # some of them may only be starting
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
