"""A blocking WebSocket client that speaks NATS's protocol, on wsproto."""

from __future__ import annotations

import json
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

TIMEOUT_S = 15.0


class Refused(Exception):
    """The upgrade was answered with an HTTP error; `status` is it."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class WebSocketClient:
    """Upgrades, then reads INFO. `accepted` is the answer to the upgrade, `frames` counts what came."""

    def __init__(
        self,
        port: int,
        *,
        path: str = "/",
        headers: dict[str, str] | None = None,
        subprotocols: tuple[str, ...] = (),
        compress: bool = False,
        tls: ssl.SSLContext | None = None,
        connect: bytes | None = b'{"verbose":false}',
        **fields: Any,
    ) -> None:
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        self.ws = WSConnection(ConnectionType.CLIENT)
        self.buffer = b""
        self.closed = False
        self.closing: tuple[int, str] | None = None
        self.pongs = 0
        self.frames: list[int] = []
        self.wire_bytes = 0
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        extensions = [PerMessageDeflate(client_no_context_takeover=True, server_no_context_takeover=True)]
        request = Request(
            host=f"localhost:{port}",
            target=path,
            extra_headers=extra,
            subprotocols=list(subprotocols),
            extensions=list(extensions) if compress else [],
        )
        self.sock.sendall(self.ws.send(request))
        self.accepted: AcceptConnection | None = None
        while self.accepted is None:
            assert self._more(), "closed during the upgrade"
        if connect is not None:
            self.info: dict[str, Any] = json.loads(self.until(b"\r\n").removeprefix(b"INFO "))
            self.send(b"CONNECT %b\r\n" % json.dumps(json.loads(connect) | fields).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes, pieces: int = 1) -> None:
        """One message, in `pieces` fragments."""
        step = -(-len(data) // pieces)
        for start in range(0, len(data), step):
            finished = start + step >= len(data)
            self.sock.sendall(self.ws.send(BytesMessage(data=data[start : start + step], message_finished=finished)))

    def ping(self) -> None:
        self.sock.sendall(self.ws.send(Ping(payload=b"hello")))

    def until(self, mark: bytes) -> bytes:
        """Everything up to and including `mark`, or up to the end."""
        while mark not in self.buffer and self._more():
            pass
        at = self.buffer.find(mark)
        end = len(self.buffer) if at < 0 else at + len(mark)
        taken, self.buffer = self.buffer[:end], self.buffer[end:]
        return taken

    def ask(self, data: bytes = b"") -> bytes:
        self.send(data + b"PING\r\n")
        answer = self.until(b"PONG\r\n").removesuffix(b"PONG\r\n")
        return b"".join(line for line in answer.splitlines(keepends=True) if not line.startswith(b"INFO "))

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data or self.closed:
            return False
        self.wire_bytes += len(data)
        self.ws.receive_data(data)
        for event in self.ws.events():
            if isinstance(event, AcceptConnection):
                self.accepted = event
            elif isinstance(event, RejectConnection):
                raise Refused(event.status_code)
            elif isinstance(event, BytesMessage):
                self.buffer += event.data
                self.frames.append(len(event.data))
            elif isinstance(event, TextMessage):
                raise TypeError("the server sends binary frames")
            elif isinstance(event, Pong):
                self.pongs += 1
            elif isinstance(event, CloseConnection):
                self.closed = True
                self.closing = (int(event.code), event.reason or "")
            else:
                assert isinstance(event, RejectData), event
        return not self.closed
