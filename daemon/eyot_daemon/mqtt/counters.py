"""Counts of MQTT: what clients send and are sent, and what is not delivered or stored, by reason."""

from __future__ import annotations

from typing import Final

#: reason -> what it means, as the metrics' help and the documentation have it
REASONS: Final = {
    "slow": "messages of QoS 0 for a client that does not read",
    "full": "messages for a session whose queue was full",
    "expired": "messages whose expiry interval had passed, or that were too old",
    "too_large": "messages larger than the client takes",
    "no_topic": "messages on subjects that cannot be a topic",
    "denied": "publishes without permission",
    "refused": "publishes that no stream or queue had room for",
}


class Drops:
    """Messages dropped, by reason; `parent` counts them too (a session's account, an account's server)."""

    __slots__ = ("_counts", "_parent")

    def __init__(self, parent: Drops | None = None) -> None:
        #: none until something is dropped: most sessions never need it
        self._counts: dict[str, int] | None = None
        self._parent = parent

    @property
    def by_reason(self) -> dict[str, int]:
        """The count of each reason."""
        return dict.fromkeys(REASONS, 0) | (self._counts or {})

    def count(self, reason: str, messages: int = 1) -> None:
        assert reason in REASONS, reason
        if self._counts is None:
            self._counts = {}
        self._counts[reason] = self._counts.get(reason, 0) + messages
        if self._parent is not None:
            self._parent.count(reason, messages)


class Traffic:
    """What the clients of one account sent and were sent since the start; of connections before their login, too.

    Packets count whole, with their headers; payloads are those of PUBLISH.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "clients",
        "clients_max",
        "connects",
        "expired",
        "packets_in",
        "packets_out",
        "payload_in",
        "payload_out",
        "received",
        "sent",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.packets_in = 0
        self.packets_out = 0
        self.payload_in = 0
        self.payload_out = 0
        #: PUBLISH packets by QoS
        self.received = [0, 0, 0]
        self.sent = [0, 0, 0]
        #: clients that have a session now, the most at once, and all so far
        self.clients = 0
        self.clients_max = 0
        self.connects = 0
        #: sessions that ended because their time was over
        self.expired = 0

    def client_came(self) -> None:
        self.connects += 1
        self.clients += 1
        self.clients_max = max(self.clients_max, self.clients)

    def client_left(self) -> None:
        self.clients -= 1
