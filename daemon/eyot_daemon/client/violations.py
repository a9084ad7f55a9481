"""Logs permission violations of clients in nats-server's words; the same one of a client at most once a second."""

from __future__ import annotations

import logging

from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.turn.clock import Clock
from eyot_wire.quoting import quoted

log = logging.getLogger("eyot.client")

REPEAT_S = 1.0
#: Clients and words that are remembered; beyond that everything is forgotten at once.
REMEMBERED_MAX = 1024


class ViolationLog:
    """The violations of one server's clients. A client in a loop must not fill the journal of a device."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[tuple[int, str], float] = {}

    def publish(self, client: KnownClient, subject: bytes) -> None:
        self._tell(client, f"Publish Violation - Subject {quoted(subject)}")

    def reply(self, client: KnownClient, reply: bytes) -> None:
        self._tell(client, f"Publish Violation - Reply {quoted(reply)}")

    def subscribe(self, client: KnownClient, subject: bytes, queue: bytes, sid: bytes, what: str = "") -> None:
        """Log a refused subscription. `what`: the reason if it is not permissions: ` Too Many Tokens`."""
        group = f", Queue: {quoted(queue)}" if queue else ""
        shown = sid.decode() if sid.isalnum() and sid.isascii() else quoted(sid)
        self._tell(client, f"Subscription Violation{what} - Subject {quoted(subject)}{group}, SID {shown}")

    def _tell(self, client: KnownClient, text: str) -> None:
        now = self._clock.monotonic()
        key = (client.cid, text)
        if now - self._told.get(key, -REPEAT_S) < REPEAT_S:
            return
        if len(self._told) >= REMEMBERED_MAX:
            self._told.clear()
        self._told[key] = now
        log.error("%r - %s", client, text)
