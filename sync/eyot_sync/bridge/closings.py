"""Finds the message on which a remote closes the connection, which is how MQTT 3.1.1 and AWS IoT Core refuse one.

A connection that the remote closes before it has acknowledged anything is fruitless. After a few in a row, messages are
sent one at a time; the one that was alone on its way at yet another fruitless end is the refused one.
"""

from __future__ import annotations

#: Fruitless connections in a row after which messages are sent one at a time, and after which one counts as refused.
ALONE_AFTER = 2
REFUSED_AFTER = 5


class Closings:
    """The fruitless connections in a row."""

    __slots__ = ("_fruitless", "_progressed", "_sent")

    def __init__(self) -> None:
        self._fruitless = 0
        self._sent = False
        self._progressed = False

    @property
    def one_at_a_time(self) -> bool:
        """Whether only one message may be on its way."""
        return self._fruitless >= ALONE_AFTER

    def began(self) -> None:
        """Note a new connection."""
        self._sent = self._progressed = False

    def sent(self) -> None:
        """Note that a message was sent."""
        self._sent = True

    def progressed(self) -> None:
        """Note that the remote answered a message."""
        self._progressed = True
        self._fruitless = 0

    def closed(self, outstanding: int) -> bool:
        """Note that the remote closed the connection; return whether the one message on its way is the reason."""
        if self._progressed or not self._sent:
            return False
        self._fruitless += 1
        if self._fruitless < REFUSED_AFTER or outstanding != 1:
            return False
        self._fruitless = ALONE_AFTER
        return True
