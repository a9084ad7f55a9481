"""Lets the peer of a new link know that requests of its copies got lost while there was no link (`stale_requests.py`).

Only where a copy of ours is missed: while all who are known to read the account's streams read them, nobody is held up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.sourcing.stale_requests import REFUSAL, StaleRequests, asks_again_sooner
from eyot_wire.frames import LeafMsg

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

log = logging.getLogger("eyot.leaf")


class StaleRequestRefuser:
    """The stale requests of one link. `done` once there is nothing more to look at."""

    __slots__ = ("_link", "_requests", "_timer", "done")

    def __init__(self, link: LeafConnection) -> None:
        self._link = link
        self._requests = StaleRequests()
        self._timer: TimerHandle | None = None
        self.done = False

    def announced(self, subject: bytes) -> None:
        self._requests.announced(subject)

    def withdrawn(self, subject: bytes) -> None:
        self._requests.withdrawn(subject)

    def heard(self, messages: list[LeafMsg]) -> None:
        self._requests.heard(messages)

    def complete(self) -> None:
        """The peer's first interest is here."""
        link, broker = self._link, self._link.links.broker
        if not self._requests or not asks_again_sooner(link.state.peer_version):
            self.stop()
            return
        self._requests.complete(broker.clock.monotonic(), link.session.rtt_s or 0.0)
        assert self._requests.due_at is not None
        self._timer = broker.timers.call_at(self._requests.due_at, self._refuse)

    def stop(self) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()

    def _refuse(self) -> None:
        link = self._link
        self.done = True
        if link.account is None or not link.links.messages_missed(link.account):
            return
        inboxes = [inbox for inbox in self._requests.take() if link.accepts(inbox, None)]
        for inbox in inboxes:
            link.deliver_leaf(inbox, b"", b"", REFUSAL, (), None)
        if inboxes:
            log.info(
                "%r - %d requests of copies were sent before the link was up: told to ask again", link, len(inboxes)
            )
