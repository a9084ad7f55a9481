"""The deliver subjects of push consumers: interest in them, and the heartbeats sent there.

A push consumer delivers only while its deliver subject has a subscriber (with a deliver group: a member of that group),
and an ephemeral one is deleted without one after its inactive threshold. Consumers register their literal deliver
subject here and are called when interest in it may have changed; `has_interest` then returns the present state. There is
one listener per account for every subscription.
"""

from typing import TYPE_CHECKING, Protocol
from weakref import ReferenceType, WeakKeyDictionary, ref

from eyot_wire import subject as subjects

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.subscription import Subscription


class Watcher(Protocol):
    """Called when interest in its subject may have changed."""

    def interest_changed(self) -> None: ...


def has_interest(account: "Account", subject: bytes, group: bytes, *, copied: bool) -> bool:
    """Return whether a deliver subject has a subscriber; `group` b"": no deliver group.

    As in nats-server the subscription must be on that very subject, unless a mirror or source uses the consumer
    (`copied`).
    """
    match = account.sublist.match(subject)
    if not group:
        if copied:
            return any(sub.active for sub in match.plain) or any(
                sub.active for _, those in match.groups for sub in those
            )
        return any(sub.subject == subject and sub.active for sub in match.plain)
    members = [sub for queue, those in match.groups if queue == group for sub in those if sub.active]
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
        """Ignore a queue group's changed number of members: there is interest anyway."""

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
    """Return the account's DeliverInterest, created on first use."""
    known = _by_account.get(account)
    found = None if known is None else known()
    if found is None:
        found = DeliverInterest(account)
        _by_account[account] = ref(found)
    return found


def idle_heartbeat(cseq: int, sseq: int, stalled_on: bytes = b"", held: int = 0) -> bytes:
    """Return the header of a heartbeat: the last delivery, and the flow-control subject whose answer is awaited, if any.

    `held`: number of messages that are held back, for a mirror or source.
    """
    header = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (cseq, sseq)
    if stalled_on:
        header += b"Nats-Consumer-Stalled: %b\r\n" % stalled_on
    if held:
        header += b"Nats-Pending-Messages: %d\r\n" % held
    return header + b"\r\n"
