"""The deadlines of one link's session on the broker's clock.

A peer whose deadline passes while its words lie unread gets a little longer: many links at once, or a stalled disk, and what the peer said
in time still waits in the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_daemon.turn.timers import TimerHandle

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

#: So much longer, so often before the link is established.
REPRIEVE_S = 0.1
REPRIEVES_MAX = 100


class SessionTimer:
    """Ticks the session of `link` when it is due."""

    __slots__ = ("_armed_at", "_link", "_reprieves", "_timer")

    def __init__(self, link: LeafConnection) -> None:
        self._link = link
        self._timer: TimerHandle | None = None
        self._armed_at = 0.0
        self._reprieves = 0

    def heard(self) -> None:
        """An established peer said something."""
        self._reprieves = 0

    def follow(self) -> None:
        """The session may be due earlier than it was. (Later: found out when the timer fires.)"""
        if self._timer is None or self._link.session.next_deadline < self._armed_at:
            self._set(self._link.session.next_deadline)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        self.stop()
        self._armed_at = at
        self._timer = self._link.links.broker.timers.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        link = self._link
        if link.closed:
            return
        now = link.links.broker.clock.monotonic()
        if self._reprieves < REPRIEVES_MAX and link.transport is not None and link.transport.input_waits():
            self._reprieves += 1
            self._set(now + REPRIEVE_S)
            return
        link.handle(link.session.tick(now))
        link.note_rtt()
