"""Leaf links of a broker whose turns a test takes one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import trio

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Peer
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.listener import LeafListener
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_daemon.turn.backpressure import Gate
from support.clients.turns import Turns
from support.links.leaf_peers import connect


@dataclass
class Wire:
    """A transport that takes everything at once."""

    session: LeafConnection | None = None
    sent: bytearray = field(default_factory=bytearray)
    held: Gate | None = None
    closed: bool = False
    backlog: int = 0

    def input_waits(self) -> bool:
        return False

    def send(self) -> None:
        assert self.session is not None
        while self.session.out or self.session.refill():
            self.sent += self.session.out
            self.session.out.clear()

    def close(self, *, linger: bool) -> None:
        self.closed = True

    def hold(self, gate: Gate) -> None:
        self.held = gate

    def admit(self, message_bytes_max: int) -> None: ...

    @property
    def is_read(self) -> bool:
        return self.held is None or not self.held.is_shut


class Fixture(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.listener = LeafListener(
            self.broker.links, ConfigAuthenticator(self.options).leaf, cast(trio.Nursery, None)
        )
        self.heard: list[bytes] = []

    def leaf(self, name: str = "a") -> tuple[LeafConnection, Wire]:
        wire = Wire()
        wire.session = link = self.listener._open(Peer(host="memory", port=1), "127.0.0.1", may_compress=False)
        link.attach(wire)
        link.start()
        fields = {"user": "", "pass": "", "cluster": "", "version": "2.14.0", "name": name, "domain": name}
        self.send(link, connect(**fields, server_id=name))
        self.send(link, b"PONG\r\n")
        assert link.established
        self.greeted(wire)
        return link, wire

    def greeted(self, wire: Wire) -> None:
        """A link is up: forget what it was sent so far."""
        wire.sent.clear()

    def listen(self, subject: bytes) -> None:
        def heard(
            sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
        ) -> None:
            self.heard.append(bytes(payload))

        self.account.subscribe(subject, CallbackDest(heard, Kind.SYSTEM, "test"))
        self.broker.flush()
