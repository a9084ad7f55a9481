"""The interest of a link's peer, as subscriptions of the account that the link is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_daemon.leaf.wakeups import LeafWakeups
from eyot_daemon.router.subscription import Subscription
from eyot_sync.leaf import errors
from eyot_wire.frames import LsAdd

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection


class PeerInterest:
    """What the peer has announced. `api_seen`: a JetStream API was among it since somebody last looked."""

    __slots__ = ("_link", "_wakeups", "api_seen", "subs")

    def __init__(self, link: LeafConnection, wakeups: LeafWakeups) -> None:
        self.subs: dict[tuple[bytes, bytes], Subscription] = {}
        self.api_seen = False
        self._link = link
        self._wakeups = wakeups

    def added(self, op: LsAdd) -> None:
        """The peer announced interest, or another weight. Its own loop subject ends the link."""
        link = self._link
        account = link.account
        assert account is not None
        key = (op.subject, op.queue)
        known = self.subs.get(key)
        if known is not None:
            if op.queue:
                account.set_weight(known, max(1, op.weight))
            return
        if link.links.of(account).registry.is_own_loop(op.subject):
            link.close(errors.loop_detected(account.name))
            return
        if 0 <= account.subscriptions_max <= len(self.subs):
            link.session.report(errors.MAX_SUBSCRIPTIONS)
            return
        self.subs[key] = account.subscribe(op.subject, link, op.queue, weight=max(1, op.weight))
        if not self._wakeups.done:
            self._wakeups.announced(op.subject)
        if op.subject.startswith(b"$JS.") and b".API." in op.subject:
            self.api_seen = True

    def removed(self, subject: bytes, queue: bytes) -> None:
        """The peer withdrew interest."""
        sub = self.subs.pop((subject, queue), None)
        if sub is not None:
            sub.account.unsubscribe(sub)
            self._link.session.outbox.streams.drop(subject)
        if not self._wakeups.done:
            self._wakeups.withdrawn(subject)

    def clear(self) -> None:
        """The link ended."""
        for sub in self.subs.values():
            sub.account.unsubscribe(sub)
        self.subs.clear()
