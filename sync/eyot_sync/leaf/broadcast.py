"""Interest announced to many links at once: what a hub sends to the leaf nodes of one account.

Nearly everything that a hub announces is the same for all its leaf nodes: the account's own subscriptions, and each
leaf node's interest for all others. Counting it per link would cost links times subscriptions, in time and in memory,
exactly when a whole fleet reconnects. This module counts it once. A `Tally` per subject and queue holds the number of
local members and of members beyond each link. A change marks the key, and `distribute` turns all marked keys into
lines. One chunk of lines serves every link that contributes nothing to the changed keys. Only for contributing links
(which receive neither their own interest nor that of their cluster) lines are built one by one.

An isolated link receives local interest and loop subjects only. Links with permissions of their own, and links to hubs,
are not members here; each has a `LeafInterest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from eyot_sync.leaf.interest import LOOP_PREFIX
from eyot_wire.frames import encode_ls_add, encode_ls_del

Key = tuple[bytes, bytes]

#: Changes per chunk: about a slice of lines.
_GROUP = 256


class BroadcastMember(Hashable, Protocol):
    """A link that receives the interest. Equal only to itself."""

    @property
    def cluster(self) -> str: ...

    @property
    def isolated(self) -> bool: ...


class Source:
    """A link that is the origin of interest, a member or not. `cluster` empty: no cluster."""

    __slots__ = ("cluster", "link")

    def __init__(self, link: Hashable, cluster: str) -> None:
        self.link = link
        self.cluster = cluster


class Tally:
    """Members of one key: at home, and beyond each link (plain interest counts 1 a subscription)."""

    __slots__ = ("beyond", "home")

    def __init__(self, home: int = 0, beyond: dict[Hashable, tuple[int, str]] | None = None) -> None:
        self.home = home
        # Link to (weight, cluster).
        self.beyond = beyond if beyond is not None else {}

    def copy(self) -> Tally:
        return Tally(self.home, dict(self.beyond))

    @property
    def everywhere(self) -> int:
        return self.home + sum(weight for weight, _ in self.beyond.values())

    def besides(self, link: Hashable, cluster: str) -> int:
        """Return the members beyond all links but this one and its cluster's."""
        return self.home + sum(
            weight
            for other, (weight, other_cluster) in self.beyond.items()
            if other is not link and (not cluster or other_cluster != cluster)
        )


#: of keys without members; never changed
_NOBODY = Tally()


class _Change:
    """A changed key as lines: for members that contribute nothing to it, for isolated ones (None: the same), and for contributors."""

    __slots__ = ("for_all", "for_isolated", "own")

    def __init__(self, for_all: bytes, for_isolated: bytes | None, own: dict[Hashable, bytes]) -> None:
        self.for_all = for_all
        self.for_isolated = for_isolated
        self.own = own

    @property
    def to_isolated(self) -> bytes:
        return self.for_all if self.for_isolated is None else self.for_isolated


class _Chunk:
    """The lines of all changes, as most members receive them; a few lines may differ for a member."""

    __slots__ = ("_ends", "whole")

    def __init__(self, lines: list[bytes]) -> None:
        self.whole = b"".join(lines)
        self._ends = list(accumulate(map(len, lines), initial=0))

    def with_lines(self, others: list[tuple[int, bytes]]) -> bytes:
        """With other lines for changes of these numbers, in ascending order."""
        ends, whole = self._ends, memoryview(self.whole)
        parts: list[bytes | memoryview] = []
        at = 0
        for number, line in others:
            parts += (whole[at : ends[number]], line)
            at = ends[number + 1]
        parts.append(whole[at:])
        return b"".join(parts)


M = TypeVar("M", bound=BroadcastMember)


class InterestBroadcast(Generic[M]):
    """The interest of one account, and the links that receive it."""

    __slots__ = ("_before", "_by_cluster", "_from_cluster", "_members", "_tallies")

    def __init__(self) -> None:
        self._tallies: dict[Key, Tally] = {}
        # Keys changed since the last `distribute`, as they were then.
        self._before: dict[Key, Tally] = {}
        # A dict keeps the order of arrival.
        self._members: dict[M, None] = {}
        self._by_cluster: dict[str, list[M]] = {}
        # The number of contributions to tallies from each cluster.
        self._from_cluster: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def pending(self) -> bool:
        """Whether members lack some changes."""
        return bool(self._before)

    def add(self, subject: bytes, queue: bytes, weight: int, source: Source | None) -> None:
        """Interest appeared, at home (`source` None) or beyond a link."""
        self._change((subject, queue), weight if queue else 1, source)

    def remove(self, subject: bytes, queue: bytes, weight: int, source: Source | None) -> None:
        self._change((subject, queue), -weight if queue else -1, source)

    def join(self, member: M) -> bytes:
        """Add a member that has received nothing and whose interest is unknown; return its first lines.

        They contain what the other members received; the next `distribute` serves it with them.
        """
        cluster = member.cluster
        has_kin = bool(cluster) and self._from_cluster[cluster] > 0
        self._members[member] = None
        if cluster:
            self._by_cluster.setdefault(cluster, []).append(member)
        before = self._before
        lines: list[bytes] = []
        for key, tally in self._tallies.items():
            if key not in before:
                self._tell(lines, member, key, tally, has_kin=has_kin)
        for key, tally in before.items():
            self._tell(lines, member, key, tally, has_kin=bool(cluster))
        return b"".join(lines)

    def enter(self, member: M) -> list[Key]:
        """Add a member as `join` does, but tell it nothing yet: `lines_for` has it for the returned keys, the last ones first.

        Meanwhile `distribute` serves it as all others. A line that it does not need changes nothing.
        """
        self._members[member] = None
        if member.cluster:
            self._by_cluster.setdefault(member.cluster, []).append(member)
        return list(reversed(self._tallies))

    def lines_for(self, member: M, keys: Iterable[Key]) -> bytes:
        """Return the lines of keys as they are now."""
        lines: list[bytes] = []
        for key in keys:
            tally = self._tallies.get(key)
            if tally is not None:
                self._tell(lines, member, key, tally, has_kin=True)
        return b"".join(lines)

    @property
    def members(self) -> tuple[M, ...]:
        return tuple(self._members)

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self._tallies)

    @staticmethod
    def _tell(lines: list[bytes], member: M, key: Key, tally: Tally, *, has_kin: bool) -> None:
        subject, queue = key
        if member.isolated and not subject.startswith(LOOP_PREFIX):
            count = tally.home
        elif has_kin:
            count = tally.besides(member, member.cluster)
        else:
            count = tally.everywhere
        if count:
            lines.append(encode_ls_add(subject, queue, count))

    def leave(self, member: M) -> None:
        """Remove a member whose link ended; its own interest must be removed separately."""
        if member not in self._members:
            return
        del self._members[member]
        if member.cluster:
            same = self._by_cluster[member.cluster]
            same.remove(member)
            if not same:
                del self._by_cluster[member.cluster]

    def distribute(self) -> Iterator[tuple[M, bytes]]:
        """Yield lines for each member with something to receive; nothing is pending afterwards.

        Many changes are sent in groups that most members share: while the lines wait to be sent they exist once.
        """
        before = self._before
        self.settle()
        changes = [self._compare(key, old) for key, old in before.items()]
        for start in range(0, len(changes), _GROUP):
            yield from self._tell_all(changes[start : start + _GROUP])

    def settle(self) -> None:
        """Forget the changes: the members have them, or there are none yet."""
        self._before = {}

    @property
    def changes(self) -> int:
        """How many keys have changed since the last `distribute`."""
        return len(self._before)

    def _tell_all(self, changes: list[_Change]) -> Iterator[tuple[M, bytes]]:
        for_all = _Chunk([change.for_all for change in changes])
        for_isolated = _Chunk([change.to_isolated for change in changes])
        # the links that contribute to changes
        own: dict[Hashable, list[int]] = {}
        for number, change in enumerate(changes):
            for link in change.own:
                own.setdefault(link, []).append(number)
        for member in tuple(self._members):
            chunk = for_isolated if member.isolated else for_all
            numbers = own.get(member, ())
            if member.isolated:
                numbers = [number for number in numbers if changes[number].for_isolated is None]
            data = chunk.whole
            if numbers:
                data = chunk.with_lines([(number, changes[number].own[member]) for number in numbers])
            if data:
                yield member, data

    # -- inside ----------------------------------------------------------------------------------------------------

    def _change(self, key: Key, delta: int, source: Source | None) -> None:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
            self._before.setdefault(key, _NOBODY)
        elif key not in self._before:
            self._before[key] = tally.copy()
        if source is None:
            tally.home = max(0, tally.home + delta)
        else:
            former = tally.beyond.pop(source.link, None)
            weight = (former[0] if former is not None else 0) + delta
            if weight > 0:
                tally.beyond[source.link] = (weight, source.cluster)
            self._from_cluster[source.cluster] += (weight > 0) - (former is not None)
        if not tally.home and not tally.beyond:
            del self._tallies[key]

    def _compare(self, key: Key, old: Tally) -> _Change:
        new = self._tallies.get(key, _NOBODY)
        if not old.beyond and not new.beyond:
            return _Change(_line(key, old.home, new.home), None, {})
        for_all = _line(key, old.everywhere, new.everywhere)
        for_isolated = None if key[0].startswith(LOOP_PREFIX) else _line(key, old.home, new.home)
        own: dict[Hashable, bytes] = {}
        if old.beyond or new.beyond:
            for link, cluster in self._with_a_part(old, new).items():
                own[link] = _line(key, old.besides(link, cluster), new.besides(link, cluster))
        return _Change(for_all, for_isolated, own)

    def _with_a_part(self, old: Tally, new: Tally) -> dict[Hashable, str]:
        """Return the links (and their clusters) for which a key's lines differ."""
        found: dict[Hashable, str] = {}
        for tally in (old, new):
            for link, (_, cluster) in tally.beyond.items():
                found[link] = cluster
                for same in self._by_cluster.get(cluster, ()) if cluster else ():
                    found[same] = cluster
        return found


def _line(key: Key, before: int, now: int) -> bytes:
    """Return the line for a changed count of a key; b"" when there is none."""
    subject, queue = key
    if not queue:
        before, now = min(before, 1), min(now, 1)
    if before == now:
        return b""
    return encode_ls_add(subject, queue, now) if now else encode_ls_del(subject, queue)
