"""Subject mappings of an account: sources with one or several weighted destinations.

A literal source that equals the subject comes first, else the first wildcard source that matches, in the order of
declaration. Weights are percentages. The missing part to 100 leaves the subject unchanged; if the source itself is one
of the destinations, the missing part of the messages is dropped, which simulates loss.
"""

import random
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from eyot_wire.subject import REST, STAR, is_literal, is_valid, literal_start
from eyot_wire.transform import Transform, TransformError

# The mapping of a dropped message. No subject is empty.
DROPPED: Final = b""

# Subjects whose mapping is remembered, 200 bytes each.
REMEMBERED_SUBJECTS_MAX: Final = 4096
REMEMBERED_LENGTH_MAX: Final = 1024

_SYSTEM_RANDOM: Final = random.SystemRandom()
_UNKNOWN: Final = b"\n"  # in the memo's answers: not remembered


class WeightedDest(Struct, frozen=True):
    """A destination of a mapping, `weight` in percent; `cluster`: for messages in that cluster only."""

    dest: bytes
    weight: int = 100
    cluster: str = ""


class Mapping:
    """One source with its destinations. Raises TransformError for an invalid source, destination or weight."""

    __slots__ = ("_rng", "_shares", "_single", "constant", "dests", "src")

    def __init__(
        self,
        src: bytes,
        dests: Iterable[WeightedDest | bytes],
        *,
        cluster: str = "",
        rng: random.Random = _SYSTEM_RANDOM,
    ) -> None:
        if not is_valid(src):
            raise TransformError("invalid subject")
        self.src = src
        self.dests = tuple(WeightedDest(one) if isinstance(one, bytes) else one for one in dests)
        self._rng = rng
        _check_weights(self.dests)
        mine = [one for one in self.dests if cluster and one.cluster == cluster]
        chosen = mine or [one for one in self.dests if not one.cluster]
        total = 0
        self._shares: list[tuple[int, Transform | None]] = []  # (upper bound in percent, transform; None: unchanged)
        for one in self.dests:
            transform = (
                None if one.dest == src else Transform(src, one.dest, rng=rng)
            )  # validates all destinations, used or not
            if one in chosen:
                total += one.weight
                self._shares.append((total, transform))
        if total < 100 and all(transform is not None for _, transform in self._shares):
            self._shares.append((100, None))
        # The common mapping has one destination for everything.
        self._single = self._shares[0][1] if self._shares[0][0] == 100 else None
        self.constant = self._shares[0][0] == 100 and (self._single is None or self._single.constant)

    def __repr__(self) -> str:
        return f"Mapping({self.src!r}, {self.dests!r})"

    def apply(self, subject: bytes) -> bytes:
        """Return the new subject of a message on `subject`, which the source matches, or DROPPED."""
        if self._single is not None:
            return _or_unchanged(self._single.apply(subject), subject)
        point = self._rng.random() * 100
        for bound, transform in self._shares:
            if point < bound:
                return subject if transform is None else _or_unchanged(transform.apply(subject), subject)
        return DROPPED


class MappingTable:
    """All mappings of an account. False when it is empty."""

    def __init__(self, *, rng: random.Random = _SYSTEM_RANDOM) -> None:
        self._rng = rng
        #: mappings of literal sources, by source
        self.literal: dict[bytes, Mapping] = {}
        # Wildcard sources by their first token, with the order of declaration; `*` and `>` apply to every subject.
        self._wildcard: dict[bytes, list[tuple[int, Mapping, Transform]]] = {}
        #: literal prefixes of the wildcard sources: most subjects begin otherwise and need no further check
        self.heads: tuple[bytes, ...] = ()
        self._declared = 0
        #: increases with every change
        self.changes = 0
        #: recent answers of `apply` that are constant, for callers that ask very often
        self.recent: dict[bytes, bytes | None] = {}

    def __bool__(self) -> bool:
        return bool(self.literal or self._wildcard)

    def sources(self) -> list[bytes]:
        """All sources: announced to leaf links as interest, since messages to them are wanted."""
        wildcard = sorted((order, one.src) for group in self._wildcard.values() for order, one, _ in group)
        return [*self.literal, *[src for _, src in wildcard]]

    def add(self, src: bytes, dests: Iterable[WeightedDest | bytes], *, cluster: str = "") -> Mapping:
        """Add a mapping, in place of a former mapping of the same source. Raises TransformError: see Mapping.

        `cluster`: the name of this server's cluster; "": it is in none.
        """
        mapping = Mapping(src, dests, cluster=cluster, rng=self._rng)
        self.recent.clear()
        self.changes += 1
        if is_literal(src):
            self.literal[src] = mapping
            return mapping
        group = self._wildcard.setdefault(src.partition(b".")[0], [])
        for index, (order, former, test) in enumerate(group):
            if former.src == src:
                group[index] = (order, mapping, test)
                return mapping
        self._declared += 1
        group.append((self._declared, mapping, Transform(src, b"")))
        self.heads = self._heads_of_sources()
        return mapping

    def remove(self, src: bytes) -> bool:
        """Remove the mapping of `src`; return whether there was one."""
        self.recent.clear()
        self.changes += 1
        if src in self.literal:
            del self.literal[src]
            return True
        first = src.partition(b".")[0]
        group = self._wildcard.get(first, [])
        for index, (_, mapping, _) in enumerate(group):
            if mapping.src == src:
                del group[index]
                if not group:
                    del self._wildcard[first]
                self.heads = self._heads_of_sources()
                return True
        return False

    def _heads_of_sources(self) -> tuple[bytes, ...]:
        return tuple({literal_start(mapping.src) for group in self._wildcard.values() for _, mapping, _ in group})

    def apply(self, subject: bytes) -> bytes | None:
        """Return where a message on `subject` goes: None when not mapped, DROPPED (b"") when dropped, else the new subject."""
        known = self.recent.get(subject, _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        mapping = self._find(subject)
        result = mapping.apply(subject) if mapping is not None else None
        if mapping is None or mapping.constant:
            self._remember(subject, result)
        return result

    def maps(self, subject: bytes) -> bool:
        """Return whether a mapping applies to `subject`."""
        if not subject.startswith(self.heads) and subject not in self.literal:
            return False
        known = self.recent.get(subject, _UNKNOWN)
        if known is not _UNKNOWN:
            return known is not None
        mapping = self._find(subject)
        if mapping is None:
            self._remember(subject, None)
        return mapping is not None

    def maps_below(self, prefix: bytes) -> bool:
        """Return whether a mapping may apply to subjects that begin with `prefix`."""
        heads = (head.startswith(prefix) or prefix.startswith(head) for head in self.heads)
        return any(heads) or any(subject.startswith(prefix) for subject in self.literal)

    def _remember(self, subject: bytes, result: bytes | None) -> None:
        if len(subject) > REMEMBERED_LENGTH_MAX:
            return
        if len(self.recent) >= REMEMBERED_SUBJECTS_MAX:
            self.recent.clear()
        self.recent[subject] = result

    def _find(self, subject: bytes) -> Mapping | None:
        literal = self.literal.get(subject)
        if literal is not None or not subject.startswith(self.heads):
            return literal
        best: tuple[int, Mapping] | None = None
        for first in (subject.partition(b".")[0], STAR, REST):
            for order, mapping, test in self._wildcard.get(first, ()):
                if best is not None and order > best[0]:
                    break
                if test.apply(subject) is not None:
                    best = (order, mapping)
                    break
        return best[1] if best is not None else None


def _or_unchanged(mapped: bytes | None, subject: bytes) -> bytes:
    return subject if mapped is None else mapped


def _check_weights(dests: tuple[WeightedDest, ...]) -> None:
    if not dests:
        raise TransformError("mapping without destinations")
    totals: dict[str, int] = {}
    seen: set[tuple[bytes, str]] = set()
    for one in dests:
        if (one.dest, one.cluster) in seen:
            raise TransformError(f'duplicate entry for "{one.dest.decode("utf-8", "replace")}"')
        seen.add((one.dest, one.cluster))
        if not 0 <= one.weight <= 100:
            raise TransformError("individual weights need to be <= 100")
        totals[one.cluster] = totals.get(one.cluster, 0) + one.weight
    if any(total > 100 for total in totals.values()):
        raise TransformError("total weight needs to be <= 100")
