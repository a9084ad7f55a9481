"""The first packets of MQTT 3.1.1 by hand, over any socket: CONNECT and what comes back."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Self

TIMEOUT_S = 15.0
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\x00", b"\xd0\x00", b"\xe0\x00"
ACCEPTED, NOT_AUTHORIZED = 0, 5
#: What `login` returns when the server closes without CONNACK.
CLOSED = -1


def connect_packet(client_id: str = "sensor", user: str | None = None, password: bytes | str | None = None) -> bytes:
    """CONNECT with a clean session and a keep-alive of a minute."""
    flags = 0x02 | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    body = _field(b"MQTT") + bytes([4, flags, 0, 60]) + _field(client_id.encode())
    for value in (user, password):
        if value is not None:
            body += _field(value.encode() if isinstance(value, str) else value)
    return b"\x10" + _length(len(body)) + body


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


def _length(count: int) -> bytes:
    coded = bytearray()
    while True:
        count, digit = divmod(count, 128)
        coded.append(digit | (0x80 if count else 0))
        if not count:
            return bytes(coded)


class MqttSocket:
    """One connection; leaving its context resets it."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def read(self, count: int) -> bytes:
        """So many bytes, or fewer if the server closes."""
        data = b""
        while len(data) < count:
            try:
                more = self.sock.recv(count - len(data))
            except (ConnectionError, ssl.SSLError):
                more = b""
            if not more:
                break
            data += more
        return data

    def login(self, client_id: str = "sensor", user: str | None = None, password: bytes | str | None = None) -> int:
        """Send CONNECT; the code of CONNACK, or CLOSED."""
        self.sock.sendall(connect_packet(client_id, user, password))
        answer = self.read(4)
        assert answer == b"" or answer[:2] == b"\x20\x02", answer
        return answer[3] if answer else CLOSED

    def is_served(self) -> bool:
        """Whether PINGREQ is answered."""
        try:
            self.sock.sendall(PINGREQ)
        except (ConnectionError, ssl.SSLError):
            return False
        return self.read(2) == PINGRESP
