"""The compiled permissions of one connection.

Answers are cached per subject (bounded), because a client uses the same few subjects again and again. Rules
(nats-server's): deny overrides allow. A missing allow list allows everything, an empty one nothing. An allow entry must
match a wildcard subscription, whose wildcards count as plain tokens (so `*` matches a last `>`: `in.*` allows a
subscription to `in.>`). A wildcard subscription that overlaps a deny entry is accepted, and denied messages are
filtered at delivery. Entries of a subscribe list may have a queue pattern (`subject queue`).

`allow_responses` lets a connection answer received messages: for a while, the reply subject of each delivered message
may be published to a few times, even if the publish lists deny it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from eyot_daemon.config.permissions import Permissions, ResponsePermission
from eyot_wire.subject import is_literal, matches, overlaps

#: Answers remembered per connection and question; full caches are emptied.
CACHE_MAX = 4096
#: Longer subjects are not remembered.
CACHED_LENGTH_MAX = 1024
#: Reply subjects tracked per connection for `allow_responses`; the oldest is forgotten first.
REPLIES_MAX = 4096


class SubjectSet:
    """A list of subject patterns: literals in a set, patterns in a tuple."""

    __slots__ = ("literals", "patterns")

    def __init__(self, subjects: Iterable[bytes]) -> None:
        entries = tuple(subjects)
        self.literals = frozenset(entry for entry in entries if is_literal(entry))
        self.patterns = tuple(entry for entry in entries if entry not in self.literals)

    def __bool__(self) -> bool:
        return bool(self.literals or self.patterns)

    def matches(self, subject: bytes) -> bool:
        """Return whether an entry matches this subject, whose wildcards are plain tokens, as in nats-server."""
        return subject in self.literals or any(matches(pattern, subject) for pattern in self.patterns)

    def overlaps(self, subject: bytes) -> bool:
        """Return whether some literal subject matches both an entry and `subject`."""
        return any(overlaps(entry, subject) for entry in self.patterns) or any(
            matches(subject, literal) for literal in self.literals
        )


class QueueEntries:
    """The `subject queue` entries of a subscribe list."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[bytes]) -> None:
        self.entries = tuple((subject, queue) for subject, _, queue in (entry.partition(b" ") for entry in entries))

    def match(self, subject: bytes, queue: bytes) -> bool | None:
        """Return None without an entry for `subject`, else whether one of the matching entries names `queue`."""
        names = [name for pattern, name in self.entries if matches(pattern, subject)]
        if not names:
            return None
        return any(name == queue or matches(name, queue) for name in names)

    def overlaps(self, subject: bytes) -> bool:
        """Return whether some literal subject matches both an entry and `subject`."""
        return any(overlaps(pattern, subject) for pattern, _ in self.entries)


class ReplyTracker:
    """Reply subjects of messages delivered to a connection with `allow_responses`."""

    __slots__ = ("_expires_s", "_max_messages", "_replies")

    def __init__(self, permission: ResponsePermission) -> None:
        self._max_messages = permission.max_messages
        self._expires_s = permission.expires_s
        self._replies: OrderedDict[bytes, tuple[float, int]] = OrderedDict()  # reply -> (since, used), oldest first

    def __len__(self) -> int:
        return len(self._replies)

    def delivered(self, reply: bytes, now: float) -> None:
        """Record the reply subject of a message delivered at `now` (monotonic seconds)."""
        replies = self._replies
        replies.pop(reply, None)
        if len(replies) >= REPLIES_MAX:
            self._forget(now)
        replies[reply] = (now, 0)

    def _forget(self, now: float) -> None:
        replies, expires_s = self._replies, self._expires_s
        while len(replies) >= REPLIES_MAX:
            replies.popitem(last=False)
        while expires_s > 0 and replies and now - next(iter(replies.values()))[0] > expires_s:
            replies.popitem(last=False)

    def use(self, reply: bytes, now: float) -> bool:
        """May the connection publish to `reply` at `now`? Counts as one use if so."""
        tracked = self._replies.get(reply)
        if tracked is None:
            return False
        since, used = tracked
        if self._expires_s > 0 and now - since > self._expires_s:
            del self._replies[reply]
            return False
        used += 1
        if 0 < self._max_messages <= used:
            del self._replies[reply]
        else:
            self._replies[reply] = (since, used)
        return True


class Access:
    """The permissions of one connection, in a form for the hot path."""

    __slots__ = (
        "_deliver_cache",
        "_publish_allow",
        "_publish_deny",
        "_subscribe_allow",
        "_subscribe_allow_queues",
        "_subscribe_deny",
        "_subscribe_deny_queues",
        "permissions",
        "publish_recent",
        "replies",
    )

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        publish, subscribe = permissions.publish, permissions.subscribe
        allow = publish.allow
        if allow is None and permissions.allow_responses is not None:
            allow = ()  # tracked replies are then all that may be published
        self._publish_allow = None if allow is None else SubjectSet(allow)
        self._publish_deny = SubjectSet(publish.deny)
        self._subscribe_allow: SubjectSet | None = None
        self._subscribe_allow_queues = QueueEntries(())
        if subscribe.allow is not None:
            self._subscribe_allow = SubjectSet(entry for entry in subscribe.allow if b" " not in entry)
            self._subscribe_allow_queues = QueueEntries(entry for entry in subscribe.allow if b" " in entry)
        self._subscribe_deny = SubjectSet(entry for entry in subscribe.deny if b" " not in entry)
        self._subscribe_deny_queues = QueueEntries(entry for entry in subscribe.deny if b" " in entry)
        self.publish_recent: dict[bytes, bool] = {}
        self._deliver_cache: dict[bytes, bool] = {}
        responses = permissions.allow_responses
        self.replies = None if responses is None else ReplyTracker(responses)

    def may_publish(self, subject: bytes, now: float) -> bool:
        """May a message be published on `subject`? `now` (monotonic seconds) ages tracked replies."""
        allowed = self.may_publish_always(subject)
        if not allowed and self.replies is not None:
            return self.replies.use(subject, now)
        return allowed

    def may_publish_always(self, subject: bytes) -> bool:
        """Return the cached part of the answer, which does not depend on tracked replies."""
        cache = self.publish_recent
        allowed = cache.get(subject)
        if allowed is None:
            allow = self._publish_allow
            allowed = (allow is None or allow.matches(subject)) and not self._publish_deny.matches(subject)
            _remember(cache, subject, allowed)
        return allowed

    def may_subscribe(self, subject: bytes, queue: bytes = b"") -> bool:
        """Return whether a client may subscribe to `subject` (wildcards allowed), as a member of `queue` if given."""
        allowed = True
        if self._subscribe_allow is not None:
            allowed = self._subscribe_allow.matches(subject)
            if queue:
                named = self._subscribe_allow_queues.match(subject, queue)
                allowed = allowed if named is None else named
        if allowed:
            allowed = not self._denied(subject, queue)
        return allowed

    def _denied(self, subject: bytes, queue: bytes) -> bool:
        # An entry for another queue does not lift the denial of an entry without queue.
        if self._subscribe_deny.matches(subject):
            return True
        return bool(queue) and bool(self._subscribe_deny_queues.match(subject, queue))

    def needs_deny_filter(self, subject: bytes, queue: bytes = b"") -> bool:
        """Return whether messages for a subscription on `subject` need individual checks with `may_receive`."""
        if is_literal(subject):
            return False
        return self._subscribe_deny.overlaps(subject) or (bool(queue) and self._subscribe_deny_queues.overlaps(subject))

    def may_receive(self, subject: bytes, queue: bytes = b"") -> bool:
        """Return whether the deny filter passes a message on this literal subject, for a member of `queue` if given."""
        cache = self._deliver_cache
        key = subject + b" " + queue
        allowed = cache.get(key)
        if allowed is None:
            allowed = not self._denied(subject, queue)
            _remember(cache, key, allowed)
        return allowed


def _remember(cache: dict[bytes, bool], subject: bytes, allowed: bool) -> None:
    if len(subject) > CACHED_LENGTH_MAX:
        return
    if len(cache) >= CACHE_MAX:
        cache.clear()
    cache[subject] = allowed
