"""The leaf links of one account: what interest each of them is told, and which link may not be there.

One `AccountLinks` listens to an account's subscriptions for all of the account's links. Leafs without permissions of their own are told
together (`leaf/broadcast.py`); links to hubs, and leafs that may not subscribe to everything, are offered each subscription one by one.
It also holds the account's loop subject and knows duplicates and circles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Kind, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.leaf.broadcast import InterestBroadcast, Source
from eyot_sync.leaf.interest import LOCAL, InterestOrigin
from eyot_sync.leaf.registry import LeafRegistry

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

#: Interest that came over one link is passed on to the others together, after a wait that grows with the number of links: when a fleet
#: reconnects, every leaf's interest concerns every other leaf. Messages never overtake it, whatever waits goes out before them.
PASS_ON_S_PER_LINK = 0.00025
PASS_ON_S_MAX = 0.25


class AccountLinks:
    """Established links of one account; the account's interest listener while there are any."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.registry: LeafRegistry[LeafConnection] = LeafRegistry(account.broker.ids)
        self._broadcast: InterestBroadcast[LeafConnection] | None = None
        self._single: list[LeafConnection] = []
        self._timer: TimerHandle | None = None
        self._dirty = False

    # -- links -----------------------------------------------------------------------------------------------------

    def join(self, link: LeafConnection) -> None:
        """A link was established: it is told all interest there is, and the account's own loop subject."""
        account = self.account
        if not len(self.registry):
            account.add_interest_listener(self)
        self.registry.add(link)
        account.leafnodes.add(link)
        if link.is_told_everything:
            if self._broadcast is None:
                self._broadcast = self._start_broadcast()
            link.told(self._broadcast.join(link))
        else:
            self._single.append(link)
            self.announce_all(link)

    def leave(self, link: LeafConnection) -> None:
        account = self.account
        if link not in account.leafnodes:
            return
        account.leafnodes.discard(link)
        self.registry.remove(link)
        if link in self._single:
            self._single.remove(link)
        elif self._broadcast is not None:
            self._broadcast.leave(link)
            if not len(self._broadcast):
                self._broadcast = None
        if not len(self.registry):
            account.remove_interest_listener(self)

    def announce_all(self, link: LeafConnection) -> None:
        """Offer a link that is told one by one everything there is."""
        for subject in self._own_subjects():
            link.offer(subject, b"", 1, LOCAL)
        for sub in self.account.subscriptions():
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def _own_subjects(self) -> Iterator[bytes]:
        """What the account wants without a subscription: its loop subject, and what its mappings map."""
        yield self.registry.loop_subject
        yield from self.account.mappings.sources()

    def _start_broadcast(self) -> InterestBroadcast[LeafConnection]:
        broadcast: InterestBroadcast[LeafConnection] = InterestBroadcast()
        for subject in self._own_subjects():
            broadcast.add(subject, b"", 1, None)
        for sub in self.account.subscriptions():
            broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
        for _ in broadcast.distribute():
            raise AssertionError("nobody is there to be told")
        return broadcast

    # -- interest listener -----------------------------------------------------------------------------------------

    def sub_added(self, sub: Subscription) -> None:
        if self._broadcast is not None:
            self._broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def sub_removed(self, sub: Subscription) -> None:
        if self._broadcast is not None:
            self._broadcast.remove(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if sub.dest is not link:
                link.withdraw(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def weight_changed(self, sub: Subscription, previous: int) -> None:
        if self._broadcast is not None:
            self._broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._broadcast.remove(sub.subject, sub.queue, previous, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))
                link.withdraw(sub.subject, sub.queue, previous, _origin_of(sub))

    def mappings_changed(self, gone: Iterable[bytes], come: Iterable[bytes]) -> None:
        """A reload changed what the account's mappings map: leafs publish only what somebody wants, so they are told."""
        for subject in come:
            if self._broadcast is not None:
                self._broadcast.add(subject, b"", 1, None)
            for link in self._single:
                link.offer(subject, b"", 1, LOCAL)
        for subject in gone:
            if self._broadcast is not None:
                self._broadcast.remove(subject, b"", 1, None)
            for link in self._single:
                link.withdraw(subject, b"", 1, LOCAL)
        self._flush_later()

    # -- telling ---------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Is there interest that leafs have not been told?"""
        return self._broadcast is not None and self._broadcast.pending

    def distribute(self) -> None:
        """Hand what has changed to the links; they send it at the end of the turn."""
        if self._broadcast is not None:
            for link, lines in self._broadcast.distribute():
                link.told(lines)

    def flush(self) -> None:
        """The end of a turn in which the account's own interest changed."""
        self._dirty = False
        self.distribute()

    def _distribute_later(self, sub: Subscription) -> None:
        if sub.dest.kind is not Kind.LEAF:
            self._flush_later()
        elif self._timer is None:
            wait_s = min(PASS_ON_S_MAX, len(self.registry) * PASS_ON_S_PER_LINK)
            self._timer = self.account.broker.timers.call_later(wait_s, self._pass_on)

    def _flush_later(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.account.broker.mark_dirty(self)

    def _pass_on(self) -> None:
        self._timer = None
        self.distribute()


def _origin_of(sub: Subscription) -> InterestOrigin:
    """Where a subscription lives, as far as links care."""
    if sub.dest.kind is not Kind.LEAF:
        return LOCAL
    return cast("LeafConnection", sub.dest).interest_origin


def _source_of(sub: Subscription) -> Source | None:
    """The same for the broadcast; None: at home."""
    if sub.dest.kind is not Kind.LEAF:
        return None
    return cast("LeafConnection", sub.dest).source
