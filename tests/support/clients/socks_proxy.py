"""A SOCKS5 proxy (RFC 1928, RFC 1929) that connects to where it is asked to, for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import BinaryIO, Self


class SocksProxy:
    """`asked`: the addresses that clients wanted. `login`: what it wants, none without. `answer`: of CONNECT, 0 for yes."""

    def __init__(self, login: tuple[str, str] | None = None, answer: int = 0) -> None:
        self.asked: list[tuple[str, int]] = []
        self._login = login
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for clients
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError), client.makefile("rb") as read:
            methods = _exactly(read, _exactly(read, 2)[1])
            wanted = 2 if self._login else 0
            if wanted not in methods:
                client.sendall(b"\x05\xff")
                return
            client.sendall(bytes([5, wanted]))
            if self._login:
                _exactly(read, 1)
                given = tuple(_exactly(read, _exactly(read, 1)[0]).decode() for _ in range(2))
                client.sendall(b"\x01" + bytes([given != self._login]))
                if given != self._login:
                    return
            _exactly(read, 4)
            host = _exactly(read, _exactly(read, 1)[0]).decode()
            port = int.from_bytes(_exactly(read, 2), "big")
            self.asked.append((host, port))
            client.sendall(bytes([5, self._answer, 0, 1]) + bytes(6))
            if self._answer == 0:
                with socket.create_connection((host, port)) as server:
                    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                    back.start()
                    try:
                        while sent := read.read1(65_536):
                            server.sendall(sent)
                    finally:
                        # A thread that reads would keep the connection open beyond its close.
                        server.shutdown(socket.SHUT_WR)
                        back.join()


def _exactly(read: BinaryIO, count: int) -> bytes:
    """Read `count` bytes. Raises EOFError if the client ends before: a dial may be given up at any time."""
    data = read.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sent := source.recv(65_536):
            sink.sendall(sent)
        sink.shutdown(socket.SHUT_WR)
