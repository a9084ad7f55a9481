"""The route of one subject, computed once: the compiled form of a `SubList` match.

A `Route` splits the matching subscriptions by how they are served: plain local ones, leaf links (each once, however
many of its subscriptions match), and queue groups with local members and leaf members apart, because local members are
preferred. Shadow subscriptions of stream imports are resolved to the subscription they serve and its subject. A route
is stored in `Match.memo`, hence it exists exactly as long as the match is valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, cast

from eyot_daemon.router.subscription import Destination, Kind, LeafDestination, SubjectSpace, Subscription
from eyot_wire.native import IngestQueue, Match
from eyot_wire.sublist import EMPTY


class FastTarget(Destination, Protocol):
    """A destination to whose buffer a publish may append ready frames (a client connection)."""

    out: bytearray
    out_msgs: int
    out_bytes: int
    headers: bool
    closed: bool
    dirty: bool


class Member(NamedTuple):
    """A local subscription that gets the message; `local`: its subject, if an import renames it."""

    sub: Subscription
    local: bytes


class LeafMember(NamedTuple):
    """A leaf link that gets the message on `subject`; `weight`: the members of a group that it represents."""

    dest: LeafDestination
    subject: bytes
    weight: int


class Target(NamedTuple):
    """A client connection to whose buffer ready frames may be appended; `subject`: the one it sees."""

    sub: Subscription
    subject: bytes
    dest: FastTarget


class QueueGroup:
    """One queue group's members for one subject. `targets`: the local members, if all are client connections."""

    __slots__ = ("leaf_links", "local", "queue", "targets")

    def __init__(self, queue: bytes, subject: bytes, members: Iterable[Subscription]) -> None:
        self.queue = queue
        self.local, self.leaf_links = _sort(subject, members)
        self.targets: tuple[Target, ...] = ()
        if all(_is_fast(member.sub) for member in self.local):
            self.targets = tuple(_target(subject, member) for member in self.local)

    def within(self, account: SubjectSpace) -> QueueGroup:
        """Return the group without members of other accounts."""
        own = QueueGroup(self.queue, b"", ())
        own.local = tuple(member for member in self.local if member.sub.account is account)
        own.leaf_links, own.targets = self.leaf_links, ()
        return own


class Route:
    """Where messages on `subject` go.

    `targets`: the client connections of the plain path. It applies (`fast`) if only client connections and leaf links
    match plainly, and every queue group has local members that are all client connections. `simple`: only `targets`;
    `local`: no leaf links and no groups. `sink`: the ingest queue of the only destination. `exported`: stream imports
    of other accounts get it, too.
    """

    __slots__ = (
        "_rest",
        "_streams",
        "exported",
        "fast",
        "groups",
        "leaf_links",
        "local",
        "plain",
        "simple",
        "sink",
        "subject",
        "targets",
    )

    plain: tuple[Member, ...]
    leaf_links: tuple[LeafMember, ...]
    groups: tuple[QueueGroup, ...]
    targets: tuple[Target, ...]

    def __init__(self, subject: bytes, match: Match[Subscription]) -> None:
        self.subject = subject
        self.sink: IngestQueue | None = None
        self.exported = False
        self._rest: Route | None = None
        self._streams: tuple[tuple[IngestQueue, bytes], ...] | None = None
        if len(match.plain) == 1 and not match.groups and _is_plain_client(match.plain[0]):
            # A reply to an inbox: its subject is used once, so its route must cost little.
            member = Member(match.plain[0], b"")
            self.plain, self.leaf_links, self.groups = (member,), (), ()
            self.fast = self.local = self.simple = True
            self.targets = (_target(subject, member),)
            return
        if len(match.plain) == 1 and not match.groups and _is_plain_stream(match.plain[0]):
            # So is that of a message in a stream of very many subjects.
            self.plain, self.leaf_links, self.groups, self.targets = (Member(match.plain[0], b""),), (), (), ()
            self.local, self.fast, self.simple = True, False, False
            self.sink = _sink(match.plain[0], b"")
            return
        self.plain, leaf_links = _sort(subject, match.plain)
        self.leaf_links = tuple({(id(leaf.dest), leaf.subject): leaf for leaf in leaf_links}.values())
        self.groups = tuple(QueueGroup(queue, subject, members) for queue, members in match.groups)
        self.exported = any(sub.parent is not None for sub in match.plain) or any(
            sub.parent is not None for _, members in match.groups for sub in members
        )
        self.local = not self.groups and not self.leaf_links
        self.fast = all(_is_fast(member.sub) for member in self.plain) and all(group.targets for group in self.groups)
        self.simple = self.fast and self.local
        self.targets = tuple(_target(subject, member) for member in self.plain) if self.fast else ()
        if self.local and len(self.plain) == 1:
            self.sink = _sink(*self.plain[0])

    def __bool__(self) -> bool:
        return bool(self.plain or self.groups or self.leaf_links)

    def takes_frames(self, has_header: bool) -> bool:
        """Return whether all local subscriptions are clients' that accept ready frames without individual checks."""
        return (
            self.fast
            and all(_takes_frames(target, has_header) for target in self.targets)
            and all(_takes_frames(target, has_header) for group in self.groups for target in group.targets)
        )

    def streams(self) -> tuple[tuple[IngestQueue, bytes], ...]:
        """Return the ingest queues of the streams that store the message, each with the subject that it stores."""
        streams = self._streams
        if streams is None:
            found = ((_sink(sub, b""), local or self.subject) for sub, local in self.plain)
            streams = self._streams = tuple((queue, subject) for queue, subject in found if queue is not None)
        return streams

    def without_streams(self) -> Route:
        """Return everything but those streams: for a publisher that has had them store the message."""
        rest = self._rest
        if rest is None:
            if not self.streams():
                return self  # not noted: a route that holds itself is not freed with its account's cache
            rest = self._rest = Route(self.subject, EMPTY)
            rest.plain = tuple(member for member in self.plain if _sink(member.sub, b"") is None)
            rest.leaf_links, rest.groups, rest.exported = self.leaf_links, self.groups, self.exported
            rest.local = not rest.groups and not rest.leaf_links
            rest.fast = rest.simple = False
        return rest

    def within(self, account: SubjectSpace) -> Route:
        """Return the account's own part: a message of a service import is not exported again."""
        if not self.exported:
            return self
        own = Route(self.subject, EMPTY)
        own.plain = tuple(member for member in self.plain if member.sub.account is account)
        own.leaf_links = self.leaf_links
        groups = (group.within(account) for group in self.groups)
        own.groups = tuple(group for group in groups if group.local or group.leaf_links)
        own.local = not own.groups and not own.leaf_links
        own.fast = own.simple = False
        return own


def _sort(subject: bytes, subs: Iterable[Subscription]) -> tuple[tuple[Member, ...], tuple[LeafMember, ...]]:
    """Local members and leaf members apart; shadows resolved, those that do not concern `subject` and retired ones left out."""
    local: list[Member] = []
    leaf_links: list[LeafMember] = []
    for sub in subs:
        if not (sub.parent or sub).active:
            continue
        known = b""
        if sub.translate is not None:
            renamed = sub.translate(subject)
            if renamed is None:
                continue
            if renamed != subject:
                known = renamed
        if sub.dest.kind is Kind.LEAF:
            leaf_links.append(LeafMember(cast(LeafDestination, sub.dest), known or subject, sub.weight))
        else:
            local.append(Member(sub.parent or sub, known))
    return tuple(local), tuple(leaf_links)


def _sink(sub: Subscription, local: bytes) -> IngestQueue | None:
    if local or sub.rewrite is not None or sub.dest.kind is not Kind.JETSTREAM:
        return None
    return cast(IngestQueue | None, getattr(sub.dest, "ingest_queue", None))


def _is_plain_stream(sub: Subscription) -> bool:
    if sub.dest.kind is not Kind.JETSTREAM or not sub.active:
        return False
    return sub.rewrite is None and sub.translate is None and sub.parent is None


def _is_plain_client(sub: Subscription) -> bool:
    if sub.dest.kind is not Kind.CLIENT or not sub.active:
        return False
    return sub.rewrite is None and sub.translate is None and sub.parent is None


def _takes_frames(target: Target, has_header: bool) -> bool:
    return not target.sub.slow and (target.dest.headers or not has_header)


def _is_fast(sub: Subscription) -> bool:
    return sub.dest.kind is Kind.CLIENT and sub.rewrite is None


def _target(subject: bytes, member: Member) -> Target:
    return Target(member.sub, member.local or subject, cast(FastTarget, member.sub.dest))


NO_ROUTE = Route(b"", EMPTY)
