"""A transport without a socket, for connections that tests hand bytes to."""

from __future__ import annotations

from eyot_daemon.client.served import ServedClient
from eyot_daemon.turn.backpressure import Gate


class Wire:
    """A transport that takes everything at once, while it `takes`."""

    def __init__(self) -> None:
        self.takes = True
        self.sent = bytearray()
        self.session: ServedClient | None = None
        self.closed = False
        self.held: Gate | None = None
        self.bytes_max = 0

    def input_waits(self) -> bool:
        return False

    @property
    def backlog(self) -> int:
        return 0 if self.takes or self.session is None else len(self.session.out)

    def send(self) -> None:
        assert self.session is not None
        if not self.takes:
            return
        self.sent += self.session.out
        self.session.out.clear()

    def close(self, *, linger: bool) -> None:
        if linger and self.session is not None:
            self.send()
        self.closed = True

    def hold(self, gate: Gate) -> None:
        self.held = gate

    def admit(self, message_bytes_max: int) -> None:
        self.bytes_max = message_bytes_max

    async def run(self, session: object) -> None:
        raise AssertionError("not served by a task here")
