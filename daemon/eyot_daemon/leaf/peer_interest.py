"""The interest of a link's peer, as subscriptions of the account that the link is bound to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import chain

from eyot_daemon.leaf.stale_request_refuser import StaleRequestRefuser
from eyot_daemon.router.account import Account
from eyot_daemon.router.retired import retire
from eyot_daemon.router.subscription import LeafDestination, Subscription
from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.later_turns import LaterTurns
from eyot_sync.leaf import errors
from eyot_sync.leaf.session import LeafSession
from eyot_sync.link.state import LinkState
from eyot_wire.frames import LsAdd

log = logging.getLogger("eyot.leaf")


class PeerInterest:
    """The interest that the peer announced. `api_seen`: it included a JetStream API since the flag was last cleared."""

    __slots__ = (
        "_account",
        "_clock",
        "_close",
        "_dest",
        "_domain",
        "_is_own_loop",
        "_later_turns",
        "_remotes",
        "_session",
        "_state",
        "_wakeups",
        "api_seen",
        "subs",
        "subs_max",
    )

    def __init__(
        self,
        dest: LeafDestination,
        session: LeafSession,
        state: LinkState,
        wakeups: StaleRequestRefuser,
        *,
        clock: Clock,
        later_turns: LaterTurns,
        domain: str,
        remotes: Iterable[LinkState],
        close: Callable[[str], None],
    ) -> None:
        """Create the interest of one link.

        `domain`: this server's JetStream domain. `remotes`: the records of all links that this server solicits. `close`
        ends the link with an error's text.
        """
        self.subs: dict[tuple[bytes, bytes], Subscription] = {}
        self.api_seen = False
        #: the most subscriptions of the peer's user; -1: no limit
        self.subs_max = -1
        self._dest = dest
        self._session = session
        self._state = state
        self._wakeups = wakeups
        self._clock = clock
        self._later_turns = later_turns
        self._domain = domain
        self._remotes = remotes
        self._close = close
        self._account: Account | None = None
        self._is_own_loop: Callable[[bytes], bool] = lambda _: False

    def bind(self, account: Account, is_own_loop: Callable[[bytes], bool]) -> None:
        """Bind the link to its account; `is_own_loop` detects the account's loop subject."""
        self._account = account
        self._is_own_loop = is_own_loop

    def added(self, op: LsAdd) -> None:
        """Add announced interest, or a changed weight. The account's own loop subject ends the link."""
        account = self._account
        assert account is not None
        key = (op.subject, op.queue)
        known = self.subs.get(key)
        if known is not None:
            if op.queue:
                account.set_weight(known, max(1, op.weight))
            return
        if self._is_own_loop(op.subject):
            self._close(errors.loop_detected(account.name))
            return
        held = len(self.subs)
        if 0 <= account.subscriptions_max <= held or 0 <= self.subs_max <= held:
            self._session.report(errors.MAX_SUBSCRIPTIONS)
            return
        self.subs[key] = account.subscribe(op.subject, self._dest, op.queue, weight=max(1, op.weight))
        if not self._wakeups.done:
            self._wakeups.announced(op.subject)
        if op.subject.startswith(b"$JS.") and b".API." in op.subject:
            self.api_seen = True
            if self._is_own_api(op.subject):
                self._see_twin(op.subject)

    def removed(self, subject: bytes, queue: bytes) -> None:
        """Remove withdrawn interest."""
        sub = self.subs.pop((subject, queue), None)
        if sub is not None:
            sub.account.unsubscribe(sub)
            self._drop_deliveries(subject)
            if self._is_own_api(subject):
                self._state.interest_of_twin_gone()
        if not self._wakeups.done:
            self._wakeups.withdrawn(subject)

    def _drop_deliveries(self, subject: bytes) -> None:
        """Drop deliveries that wait for the link and that no other interest of the peer gets."""
        lanes, account = self._session.outbox.streams, self._account
        if account is None or not lanes.waits_on(subject):
            return
        route = account.route(subject)
        members = chain(route.leaf_links, *(group.leaf_links for group in route.groups))
        if all(member.dest is not self._dest for member in members):
            lanes.drop(subject)

    def _is_own_api(self, subject: bytes) -> bool:
        """Return whether a hub announces the API of this server's domain: no request for it returns on this link."""
        domain = self._domain
        return bool(domain) and self._session.is_spoke and subject.startswith(b"$JS.%b.API." % domain.encode())

    def _see_twin(self, subject: bytes) -> None:
        """Record that another server behind the hub serves this one's domain: the hub may replicate that server's streams."""
        state, domain = self._state, self._domain
        others = [one for one in self._remotes if one is not state and one.is_up and one.peer_group == state.peer_group]
        if state.peer_domain == domain or others:
            return  # the hub's own, or this server's over its link for another account
        state.twin_by_interest += 1
        if not state.twin:
            log.error(
                "%r - another leafnode of %s has this server's JetStream domain %r",
                self._dest,
                state.peer_group,
                domain,
            )
            text = f'another leaf node of {state.peer_group} has this server\'s JetStream domain "{domain}"'
            state.saw_twin(text, self._clock.now_ns())

    def clear(self, done: Callable[[], None]) -> None:
        """Remove all interest when the link ends, much of it in later turns; `done` is called when nothing is left."""
        subs = list(self.subs.values())
        self.subs.clear()
        retire(self._later_turns, subs, done)
