"""Counts of what MQTT does not deliver or store, by reason."""

from __future__ import annotations

from typing import Final

#: reason -> what it means, as the metrics' help and the documentation have it
REASONS: Final = {
    "slow": "messages of QoS 0 for a client that does not read",
    "full": "messages for a session whose queue was full",
    "expired": "messages whose expiry interval had passed",
    "too_large": "messages larger than the client takes",
    "no_topic": "messages on subjects that cannot be a topic",
    "denied": "publishes without permission",
    "refused": "publishes that no stream or queue had room for",
}


class Drops:
    """Messages dropped, by reason; `parent` counts them too (a session's account, an account's server)."""

    __slots__ = ("_parent", "by_reason")

    def __init__(self, parent: Drops | None = None) -> None:
        self.by_reason = dict.fromkeys(REASONS, 0)
        self._parent = parent

    def count(self, reason: str) -> None:
        self.by_reason[reason] += 1
        if self._parent is not None:
            self._parent.count(reason)
