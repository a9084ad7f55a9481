"""Subscriptions of a connection that has ended or left its account: they reach nobody at once, and are removed in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eyot_daemon.router.subscription import Subscription
from eyot_daemon.turn.later_turns import LaterTurns

#: Subscriptions that one turn removes: 512 take 2 to 5 ms, and others wait meanwhile.
REMOVED_MAX = 512


class RetiredSubscriptions:
    """The subscriptions that one connection left behind. `done` is called when none is left."""

    __slots__ = ("_done", "_later_turns", "_subs")

    def __init__(self, later_turns: LaterTurns, subs: list[Subscription], done: Callable[[], None] | None) -> None:
        self._later_turns = later_turns
        self._subs = subs  # the next one last
        self._done = done

    def go_on(self) -> None:
        """Remove some of them, and the others in later turns."""
        subs = self._subs
        for _ in range(min(REMOVED_MAX, len(subs))):
            sub = subs.pop()
            sub.account.remove_retired(sub)
        if subs:
            self._later_turns.add(self.go_on)
        elif self._done is not None:
            self._done()


def retire(later_turns: LaterTurns, subs: Iterable[Subscription], done: Callable[[], None] | None = None) -> None:
    """Remove subscriptions of one account, those beyond `REMOVED_MAX` in later turns. From now on none of them gets a message.

    Those of services (`$JS.`, `$SYS.`) go first: mirrors and sources look whether there is an API.
    """
    services: list[Subscription] = []
    others: list[Subscription] = []
    shadows: list[Subscription] = []
    for sub in subs:
        if sub.active:
            sub.active = False
            sub.slow = True  # no ready frames: whoever delivers asks whether the subscription is active
            (services if sub.subject.startswith(b"$") else others).append(sub)
            if sub.shadows:
                shadows += sub.shadows
    others.reverse()
    others += reversed(services)
    if len(others) > REMOVED_MAX:
        for account in {sub.account for sub in (*shadows, others[0])}:
            account.forget_routes()
    RetiredSubscriptions(later_turns, others, done).go_on()
