"""The leaf links of one account: the interest that each is sent, and the links that must be refused.

One `AccountLinks` listens to an account's subscriptions for all of its links. Leaf nodes without permissions of their
own are served together (`leaf/broadcast.py`). Links to hubs, and leaf nodes with restricted permissions, are offered
each subscription. It also holds the account's loop subject and detects duplicates and loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Destination, Kind, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.leaf.broadcast import BroadcastMember, InterestBroadcast, Source
from eyot_sync.leaf.interest import LOCAL, InterestOrigin
from eyot_sync.leaf.registry import LeafRegistry, RegisteredLink

#: Interest from one link is passed to the others together, after a delay that grows with the number of links: when a
#: fleet reconnects, every leaf node's interest concerns every other one. Messages never overtake it; pending interest
#: is sent before them.
PASS_ON_S_PER_LINK = 0.00025
PASS_ON_S_MAX = 0.25
#: That many subjects with changed interest do not wait: passing them on takes about 5 ms, and others wait meanwhile.
PASS_ON_CHANGES_MAX = 1024


class InterestLink(Destination, BroadcastMember, RegisteredLink, Protocol):
    """A leaf link, as a listener of the account's interest."""

    @property
    def receives_all_interest(self) -> bool:
        """Whether this link receives the same interest as all links of its kind."""
        ...

    @property
    def interest_origin(self) -> InterestOrigin: ...

    @property
    def source(self) -> Source: ...

    def offer(self, subject: bytes, queue: bytes, weight: int, origin: InterestOrigin) -> None: ...

    def withdraw(self, subject: bytes, queue: bytes, weight: int, origin: InterestOrigin) -> None: ...

    def told(self, lines: bytes) -> None:
        """Send interest protocol lines that many links share."""
        ...


L = TypeVar("L", bound=InterestLink)


class AccountLinks(Generic[L]):
    """Established links of one account; the account's interest listener while there are any."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.registry: LeafRegistry[L] = LeafRegistry(account.broker.ids)
        self._broadcast: InterestBroadcast[L] | None = None
        self._single: list[L] = []
        self._timer: TimerHandle | None = None
        self._dirty = False

    # -- links -----------------------------------------------------------------------------------------------------

    def join(self, link: L) -> None:
        """Add an established link: send it all interest and the account's own loop subject."""
        account = self.account
        if not len(self.registry):
            account.add_interest_listener(self)
        self.registry.add(link)
        account.leafnodes.add(link)
        if link.receives_all_interest:
            if self._broadcast is None:
                self._broadcast = self._start_broadcast()
            link.told(self._broadcast.join(link))
        else:
            self._single.append(link)
            self.announce_all(link)

    def leave(self, link: L) -> None:
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

    def announce_all(self, link: L) -> None:
        """Offer all interest to a link that is served individually."""
        for subject in self._own_subjects():
            link.offer(subject, b"", 1, LOCAL)
        for sub in self.account.subscriptions():
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def _own_subjects(self) -> Iterator[bytes]:
        """Yield the account's interest without subscriptions: its loop subject, and the sources of its mappings."""
        yield self.registry.loop_subject
        yield from self.account.mappings.sources()

    def _start_broadcast(self) -> InterestBroadcast[L]:
        broadcast: InterestBroadcast[L] = InterestBroadcast()
        for subject in self._own_subjects():
            broadcast.add(subject, b"", 1, None)
        for sub in self.account.subscriptions():
            broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
        broadcast.settle()  # who joins is told of all of it
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
        """Announce changed mappings after a reload: leaf nodes publish only subjects with interest."""
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

    # -- announcing --------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether some interest is not announced to leaf nodes yet."""
        return self._broadcast is not None and self._broadcast.pending

    def distribute(self) -> None:
        """Pass the changes to the links; they send them at the end of the turn."""
        if self._broadcast is not None:
            for link, lines in self._broadcast.distribute():
                link.told(lines)

    def flush(self) -> None:
        """End a turn in which the account's own interest changed."""
        self._dirty = False
        self.distribute()

    def _distribute_later(self, sub: Subscription) -> None:
        assert self._broadcast is not None
        if sub.dest.kind is not Kind.LEAF or self._broadcast.changes >= PASS_ON_CHANGES_MAX:
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
    """Return where a subscription lives, as links distinguish it."""
    if sub.dest.kind is not Kind.LEAF:
        return LOCAL
    return cast(InterestLink, sub.dest).interest_origin


def _source_of(sub: Subscription) -> Source | None:
    """Return a subscription's source for the broadcast; None: this server."""
    if sub.dest.kind is not Kind.LEAF:
        return None
    return cast(InterestLink, sub.dest).source
