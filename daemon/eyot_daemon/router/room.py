"""Who waits until a receiver has room again for deliveries of streams.

A consumer that finds its receiver full waits here. Whoever empties the receiver's buffer, and the end of the receiver, tell
it: a pause by the clock would leave a fast receiver idle.
"""

from __future__ import annotations

from collections.abc import Callable


class Room:
    """The waiting consumers of one client or leaf link, each of which is told once."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, tell: Callable[[], None]) -> None:
        """Call `tell` when there is room: it must neither deliver nor send, which is for a later turn."""
        self._waiting[tell] = None

    def made(self) -> None:
        """Tell all that wait."""
        waiting, self._waiting = self._waiting, {}
        for tell in waiting:
            tell()
