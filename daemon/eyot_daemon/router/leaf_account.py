"""The leaf links of one account: the interest that each is sent, and the links that must be refused.

One `AccountLinks` listens to an account's subscriptions for all of its links. Leaf nodes without permissions of their
own are served together (`leaf/broadcast.py`). Links to hubs, and leaf nodes with restricted permissions, are offered
each subscription. It also holds the account's loop subject and detects duplicates and loops.

A link that joins is told of `ANNOUNCED_MAX` subscriptions at once, and of others in later turns. Messages wait for that: no
answer may come before the peer knows who listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Destination, Kind, Subscription
from eyot_daemon.router.unannounced import Unannounced
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.leaf.broadcast import BroadcastMember, InterestBroadcast, Key, Source
from eyot_sync.leaf.interest import LOCAL, InterestOrigin
from eyot_sync.leaf.registry import LeafRegistry, RegisteredLink

#: Interest from one link is passed to the others together, after a delay that grows with the number of links: when a
#: fleet reconnects, every leaf node's interest concerns every other one. Messages never overtake it; pending interest
#: is sent before them.
PASS_ON_S_PER_LINK = 0.00025
PASS_ON_S_MAX = 0.25
#: That many subjects with changed interest do not wait: passing them on takes about 5 ms, and others wait meanwhile.
PASS_ON_CHANGES_MAX = 1024
#: Subscriptions, or subjects, that one turn announces to a link that has joined: 512 take 2 to 3 ms.
ANNOUNCED_MAX = 512


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

    def await_interest(self, waits: bool) -> None:
        """Hold messages back while more of the first interest is to come."""
        ...


L = TypeVar("L", bound=InterestLink)


class AccountLinks(Generic[L]):
    """Established links of one account; the account's interest listener while there are any."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.registry: LeafRegistry[L] = LeafRegistry(account.broker.ids)
        self._broadcast: InterestBroadcast[L] | None = None
        #: what the broadcast does not count yet
        self._uncounted = Unannounced()
        #: by link of the broadcast: the keys that it was not told of yet, the next ones last
        self._untold: dict[L, list[Key]] = {}
        self._single: list[L] = []
        #: by link of its own: what it was not offered yet
        self._unoffered: dict[L, Unannounced] = {}
        self._goes_on = False
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
            self._join_broadcast(link)
        else:
            self._single.append(link)
            for subject in self._own_subjects():
                link.offer(subject, b"", 1, LOCAL)
            self._unoffered[link] = Unannounced(sub for sub in self.account.subscriptions() if sub.dest is not link)
            self._offer_some(link)
        if self._is_incomplete(link):
            link.await_interest(True)
            self._go_on_later()

    def leave(self, link: L) -> None:
        account = self.account
        if link not in account.leafnodes:
            return
        account.leafnodes.discard(link)
        self.registry.remove(link)
        self._unoffered.pop(link, None)
        self._untold.pop(link, None)
        if link in self._single:
            self._single.remove(link)
        elif self._broadcast is not None:
            self._broadcast.leave(link)
            if not len(self._broadcast):
                self._broadcast = None
                self._uncounted = Unannounced()
        if not len(self.registry):
            account.remove_interest_listener(self)

    def announce_all(self, link: L) -> None:
        """Offer all interest to a link that is served individually, at once: it withdraws what it is not offered again."""
        if self._unoffered.pop(link, None) is not None:
            link.await_interest(False)
        for subject in self._own_subjects():
            link.offer(subject, b"", 1, LOCAL)
        for sub in self.account.subscriptions():
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def _own_subjects(self) -> Iterator[bytes]:
        """Yield the account's interest without subscriptions: its loop subject, and the sources of its mappings."""
        yield self.registry.loop_subject
        yield from self.account.mappings.sources()

    # -- the first announcement --------------------------------------------------------------------------------------

    def _join_broadcast(self, link: L) -> None:
        broadcast = self._broadcast
        if broadcast is None:
            broadcast = self._broadcast = InterestBroadcast()
            for subject in self._own_subjects():
                broadcast.add(subject, b"", 1, None)
            self._uncounted = Unannounced(self.account.subscriptions())
            self._count_some(broadcast)
            broadcast.settle()  # who joins is told of all of it
        if broadcast.keys <= ANNOUNCED_MAX + PASS_ON_CHANGES_MAX:
            link.told(broadcast.join(link))
        else:
            self._untold[link] = broadcast.enter(link)
            self._tell_some(broadcast, link)

    def _is_incomplete(self, link: L) -> bool:
        """Return whether a link lacks some interest that was there before it."""
        if link in self._single:
            return link in self._unoffered
        return bool(self._uncounted) or link in self._untold

    def _go_on_later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self.account.broker.later_turns.add(self._announce_some)

    def _announce_some(self) -> None:
        """Announce a slice of what links that have joined lack."""
        self._goes_on = False
        broadcast = self._broadcast
        if broadcast is not None and self._uncounted:
            self._count_some(broadcast)
            self.distribute()
            if not self._uncounted:
                for link in broadcast.members:
                    self._has_all_if_complete(link)
        elif broadcast is not None and self._untold:
            link = next(iter(self._untold))
            self._tell_some(broadcast, link)
            self._has_all_if_complete(link)
        elif self._unoffered:
            link = next(iter(self._unoffered))
            self._offer_some(link)
            self._has_all_if_complete(link)
        if self._uncounted or self._untold or self._unoffered:
            self._go_on_later()

    def _has_all_if_complete(self, link: L) -> None:
        if not self._is_incomplete(link):
            link.await_interest(False)

    def _count_some(self, broadcast: InterestBroadcast[L]) -> None:
        for sub in self._uncounted.take(ANNOUNCED_MAX):
            broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))

    def _tell_some(self, broadcast: InterestBroadcast[L], link: L) -> None:
        keys = self._untold[link]
        link.told(broadcast.lines_for(link, reversed(keys[-ANNOUNCED_MAX:])))
        del keys[-ANNOUNCED_MAX:]
        if not keys:
            del self._untold[link]

    def _offer_some(self, link: L) -> None:
        unoffered = self._unoffered[link]
        for sub in unoffered.take(ANNOUNCED_MAX):
            link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))
        if not unoffered:
            del self._unoffered[link]

    def _was_offered(self, link: L, sub: Subscription) -> bool:
        """Return whether a link knows of a subscription that is not its own."""
        unoffered = self._unoffered.get(link)
        return sub.dest is not link and (unoffered is None or sub not in unoffered)

    # -- interest listener -----------------------------------------------------------------------------------------

    def sub_added(self, sub: Subscription) -> None:
        if self._broadcast is not None:
            self._broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if sub.dest is not link:
                link.offer(sub.subject, sub.queue, sub.weight, _origin_of(sub))

    def sub_removed(self, sub: Subscription) -> None:
        if self._broadcast is not None and not self._uncounted.drop(sub):
            self._broadcast.remove(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if self._was_offered(link, sub):
                link.withdraw(sub.subject, sub.queue, sub.weight, _origin_of(sub))
            elif link in self._unoffered:
                self._unoffered[link].drop(sub)

    def weight_changed(self, sub: Subscription, previous: int) -> None:
        if self._broadcast is not None and sub not in self._uncounted:
            self._broadcast.add(sub.subject, sub.queue, sub.weight, _source_of(sub))
            self._broadcast.remove(sub.subject, sub.queue, previous, _source_of(sub))
            self._distribute_later(sub)
        for link in self._single:
            if self._was_offered(link, sub):
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
