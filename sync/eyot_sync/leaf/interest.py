"""The interest that a link announces to its peer, and the `LS+`/`LS-` lines that keep the peer's view correct.

`crosses` decides whether a subscription is announced: never back where it came from, not to another link of the same
cluster, from an upstream hub only downwards, and leaf interest never to an isolated peer. Loop subjects (`$LDS.`) are
exempt from all but the cluster rule: a loop through several brokers is found only if every broker forwards them.

`LeafInterest` counts what crosses by subject and queue. Changes are not written one by one: a turn marks keys, and
`drain` compares the wanted state with the announced one. A request's inbox that came and went within one turn costs
nothing, a queue weight that changed twice is sent once, and a replaced subscription is never withdrawn in between.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from eyot_wire.frames import encode_ls_add, encode_ls_del

LOOP_PREFIX = b"$LDS."


class InterestOrigin(Struct, frozen=True):
    """Where a subscription lives: on this server, or beyond a leaf link."""

    is_leaf: bool = False
    # For leaf interest: this server is the spoke on that link.
    from_upstream: bool = False
    cluster: str = ""


LOCAL = InterestOrigin()


class LinkPeer(Struct, frozen=True):
    """The far end of a link as far as interest is concerned."""

    # This server is the spoke on this link.
    is_upstream: bool
    cluster: str = ""
    isolated: bool = False
    # The peer supports message traces.
    traces: bool = False


def crosses(origin: InterestOrigin, peer: LinkPeer, subject: bytes) -> bool:
    """Return whether interest of this origin is announced to this peer.

    The caller excludes the link's own subscriptions.
    """
    if not origin.is_leaf:
        return True
    if origin.cluster and origin.cluster == peer.cluster:
        return False
    if subject.startswith(LOOP_PREFIX):
        return True
    if peer.is_upstream and origin.from_upstream:
        return False
    return not peer.isolated


def may_forward(origin: InterestOrigin, peer: LinkPeer) -> bool:
    """Return whether a message from `origin` may leave towards this peer.

    The caller excludes the link it came from.
    """
    if not origin.is_leaf:
        return True
    if origin.cluster and origin.cluster == peer.cluster:
        return False
    return not (peer.is_upstream and origin.from_upstream)


class LeafInterest:
    """Counts per (subject, queue): members for queues, plain subscriptions otherwise."""

    __slots__ = ("_announced", "_dirty", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[tuple[bytes, bytes], int] = {}
        # The announced state: the weight for queues, 1 for plain interest.
        self._announced: dict[tuple[bytes, bytes], int] = {}
        # In the order in which keys changed first. A plain dict walks past all that were taken before it finds its first.
        self._dirty: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of announced keys."""
        return len(self._announced)

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty)

    def add(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        key = (subject, queue)
        self._wanted[key] = self._wanted.get(key, 0) + (weight if queue else 1)
        self._dirty[key] = None

    def remove(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        key = (subject, queue)
        left = self._wanted.get(key, 0) - (weight if queue else 1)
        if left > 0:
            self._wanted[key] = left
        elif self._wanted.pop(key, None) is None:
            return
        self._dirty[key] = None

    def forget_wanted(self) -> None:
        """Restart the count; announced keys that are not added again will be withdrawn."""
        for key in self._wanted:
            self._dirty[key] = None
        self._wanted.clear()

    def drain(self, keys_max: int) -> list[bytes]:
        """Return encoded `LS+`/`LS-` lines for at most `keys_max` changed keys; the rest stays for the next call."""
        lines: list[bytes] = []
        while self._dirty and keys_max > 0:
            keys_max -= 1
            key, _ = self._dirty.popitem(last=False)
            line = self._line(key)
            if line:
                lines.append(line)
        return lines

    def announced(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield the announced interest: subject, queue, weight (1 for plain interest)."""
        for (subject, queue), weight in self._announced.items():
            yield subject, queue, weight

    def _line(self, key: tuple[bytes, bytes]) -> bytes:
        subject, queue = key
        count = self._wanted.get(key, 0)
        weight = count if queue else min(count, 1)
        if weight == self._announced.get(key, 0):
            return b""
        if weight:
            self._announced[key] = weight
            return encode_ls_add(subject, queue, weight)
        del self._announced[key]
        return encode_ls_del(subject, queue)
