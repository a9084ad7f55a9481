"""Subscriptions that were there before a link, and that it was not told of yet: a slice of them in each turn."""

from __future__ import annotations

from collections.abc import Iterable

from eyot_daemon.router.subscription import Subscription


class Unannounced:
    """Subscriptions in the order in which they are announced: those of services first, which a link waits for."""

    __slots__ = ("_subs",)

    def __init__(self, subs: Iterable[Subscription] = ()) -> None:
        services: list[Subscription] = []
        others: list[Subscription] = []
        for sub in subs:
            (services if sub.subject.startswith(b"$") else others).append(sub)
        # the next one last: a dict finds its last quickly, however many were taken
        self._subs = dict.fromkeys(reversed(services + others))

    def __bool__(self) -> bool:
        return bool(self._subs)

    def take(self, most: int) -> list[Subscription]:
        """Return the next ones, which are then announced."""
        return [self._subs.popitem()[0] for _ in range(min(most, len(self._subs)))]

    def drop(self, sub: Subscription) -> bool:
        """Forget one that has ended; return whether it was not announced yet."""
        return self._subs.pop(sub, self) is None

    def __contains__(self, sub: Subscription) -> bool:
        return sub in self._subs
