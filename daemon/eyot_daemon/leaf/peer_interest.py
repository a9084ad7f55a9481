"""The interest of a link's peer, as subscriptions of the account that the link is bound to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eyot_daemon.leaf.stale_request_refuser import StaleRequestRefuser
from eyot_daemon.router.subscription import Subscription
from eyot_sync.leaf import errors
from eyot_wire.frames import LsAdd

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection


log = logging.getLogger("eyot.leaf")


class PeerInterest:
    """What the peer has announced. `api_seen`: a JetStream API was among it since somebody last looked."""

    __slots__ = ("_link", "_wakeups", "api_seen", "subs")

    def __init__(self, link: LeafConnection, wakeups: StaleRequestRefuser) -> None:
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
            if self._is_own_api(op.subject):
                self._see_twin(op.subject)

    def removed(self, subject: bytes, queue: bytes) -> None:
        """The peer withdrew interest."""
        sub = self.subs.pop((subject, queue), None)
        if sub is not None:
            sub.account.unsubscribe(sub)
            self._link.session.outbox.streams.drop(subject)
            if self._is_own_api(subject):
                state = self._link.state
                state.interest_of_twin_gone()
        if not self._wakeups.done:
            self._wakeups.withdrawn(subject)

    def _is_own_api(self, subject: bytes) -> bool:
        """Interest of a hub in the API of this server's domain: nothing of ours comes back on its own link."""
        domain = self._link.links.domain
        return bool(domain) and self._link.session.is_spoke and subject.startswith(b"$JS.%b.API." % domain.encode())

    def _see_twin(self, subject: bytes) -> None:
        """Another server behind the hub answers for this one's domain: what the hub copies may be the other's."""
        link = self._link
        state, domain = link.state, link.links.domain
        others = [
            one for one in link.links.remotes if one is not state and one.is_up and one.peer_group == state.peer_group
        ]
        if state.peer_domain == domain or others:
            return  # the hub's own, or this server's over its link for another account
        state.twin_by_interest += 1
        if not state.twin:
            log.error(
                "%r - another leafnode of %s has this server's JetStream domain %r", link, state.peer_group, domain
            )
            text = f'another leaf node of {state.peer_group} has this server\'s JetStream domain "{domain}"'
            state.saw_twin(text, link.links.broker.clock.now_ns())

    def clear(self) -> None:
        """The link ended."""
        for sub in self.subs.values():
            sub.account.unsubscribe(sub)
        self.subs.clear()
