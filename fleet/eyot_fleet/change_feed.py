"""Tells subscribers which devices have changed. A subscriber that is slow loses nothing but detail: it is told to reload."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

import trio
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names that may wait for one subscriber; beyond, it reloads.
WAITING_MAX: Final = 2_000
SUBSCRIBERS_MAX: Final = 500


class TooManySubscribers(Exception):
    """So many subscribers as are allowed are there already."""


class Changes(Struct, frozen=True):
    """Names of devices that changed or went, up to `revision`. With `reload` anything may have changed, and `names` is empty."""

    revision: int
    names: frozenset[str] = frozenset()
    reload: bool = False


class Subscription:
    """An endless iterator of changes. A name that changes several times between two steps is told once."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._names: set[str] = set()
        self._reload = False
        self._wakeup = trio.Event()

    def note(self, names: frozenset[str]) -> None:
        """Keep names for the next step; more than WAITING_MAX become one reload. Called by the feed."""
        if not self._reload:
            self._names |= names
            if len(self._names) > WAITING_MAX:
                self._names.clear()
                self._reload = True
                self._feed.reloads += 1
        self._wakeup.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changes:
        """Wait until something has changed since the last step, and return all of it."""
        await self._wakeup.wait()
        self._wakeup = trio.Event()
        changes = Changes(self._feed.revision, frozenset(self._names), self._reload)
        self._names.clear()
        self._reload = False
        return changes


class ChangeFeed:
    """All subscribers. Bounded: subscribers by SUBSCRIBERS_MAX, each one's names by WAITING_MAX."""

    def __init__(self) -> None:
        #: counts changes; a greater one is later
        self.revision = 0
        #: times that a subscriber was told to reload
        self.reloads = 0
        self._subscriptions: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._subscriptions)

    def publish(self, names: frozenset[str]) -> None:
        """Tell all subscribers of changed devices."""
        if not names:
            return
        self.revision += 1
        for each in self._subscriptions:
            each.note(names)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Return a subscription from now on. Raises TooManySubscribers."""
        if len(self._subscriptions) >= SUBSCRIBERS_MAX:
            raise TooManySubscribers(f"{SUBSCRIBERS_MAX} subscribers follow the fleet already")
        made = Subscription(self)
        self._subscriptions.add(made)
        try:
            yield made
        finally:
            self._subscriptions.discard(made)
