"""Who listens on the deliver subjects of push consumers: one listener per account, told of every subscription.

A push consumer delivers only while somebody listens (with a deliver group: while a member of that group does), and an
ephemeral one dies when nobody has for its inactive threshold. Consumers register their literal deliver subject here and
are called when interest in it may have changed; what the interest is, they ask `has_interest`.
"""

from typing import TYPE_CHECKING, Protocol
from weakref import ReferenceType, WeakKeyDictionary, ref

from eyot_wire import subject as subjects

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.subscription import Subscription


class Watcher(Protocol):
    """Told that interest in its subject may have come or gone."""

    def interest_changed(self) -> None: ...


def has_interest(account: "Account", subject: bytes, group: bytes, *, copied: bool) -> bool:
    """True if somebody listens on a deliver subject; `group` b"" for consumers without a deliver group. As in nats-server the
    subscription has to be on that very subject, unless the consumer is `copied` out of by a mirror or source."""
    match = account.sublist.match(subject)
    if not group:
        if copied:
            return bool(match.plain or match.groups)
        return any(sub.subject == subject for sub in match.plain)
    members = [sub for queue, those in match.groups if queue == group for sub in those]
    return any(copied or sub.subject == subject for sub in members)


class DeliverInterest:
    """The watched subjects of one account; an InterestListener of it."""

    def __init__(self, account: "Account") -> None:
        self._watchers: dict[bytes, list[Watcher]] = {}
        account.add_interest_listener(self)

    def watch(self, subject: bytes, watcher: Watcher) -> None:
        self._watchers.setdefault(subject, []).append(watcher)

    def unwatch(self, subject: bytes, watcher: Watcher) -> None:
        watchers = self._watchers.get(subject, [])
        if watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[subject]

    def sub_added(self, sub: "Subscription") -> None:
        self._changed(sub.subject)

    def sub_removed(self, sub: "Subscription") -> None:
        self._changed(sub.subject)

    def weight_changed(self, sub: "Subscription", previous: int) -> None:
        """A queue group has more or fewer members: there is interest all the same."""

    def _changed(self, pattern: bytes) -> None:
        if not self._watchers:
            return
        if subjects.is_literal(pattern):
            watchers = self._watchers.get(pattern)
            if watchers:
                self._tell(watchers)
            return
        start = pattern[: min(at for at in (pattern.find(b"*"), pattern.find(b">")) if at >= 0)]
        for subject, watchers in list(self._watchers.items()):
            if subject.startswith(start) and subjects.matches(pattern, subject):
                self._tell(watchers)

    @staticmethod
    def _tell(watchers: list[Watcher]) -> None:
        for watcher in list(watchers):
            watcher.interest_changed()


#: An account keeps its own, as one of its listeners.
_by_account: "WeakKeyDictionary[Account, ReferenceType[DeliverInterest]]" = WeakKeyDictionary()


def interest_of(account: "Account") -> DeliverInterest:
    """The account's DeliverInterest, made on first use."""
    known = _by_account.get(account)
    found = None if known is None else known()
    if found is None:
        found = DeliverInterest(account)
        _by_account[account] = ref(found)
    return found
