"""What a bridge does not forward or take in, by reason."""

from __future__ import annotations

from typing import Final

#: reason -> what it means, as the documentation has it. All but `own` are losses, listed with their sequences by `eyot sync`
REASONS: Final = {
    "no_topic": "messages on subjects that cannot be a topic",
    "too_large": "messages larger than the remote takes",
    "refused": "messages that the remote refused for good",
    "expired": "messages whose expiry interval had passed",
    "damage": "messages that are damaged on flash",
    "own": "messages that came in over the same bridge",
}


class BridgeCounters:
    """`skipped`: outgoing messages by reason; `refused`: incoming publishes that no stream could take."""

    __slots__ = ("refused", "retried", "skipped")

    def __init__(self) -> None:
        self.skipped = dict.fromkeys(REASONS, 0)
        #: refusals of the remote after which a message was sent again
        self.retried = 0
        self.refused = 0
