"""Questions about many subject patterns at once: overlap, coverage, and matching.

The patterns form a trie by token, so that a question costs about as many steps as the pattern has tokens, not one
comparison per pattern. Answers equal those of `subject.overlaps`, `subject.is_subset` and `subject.matches` for some
pattern of the set.

Wildcards fork the search: a hostile question can walk the whole trie. `steps` counts the steps, and a set with
`steps_max` raises `TooManySteps` beyond it, which bounds the cost of a peer's request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from eyot_wire.subject import REST, STAR, matches

#: Steps for the patterns of one request: about 50 ms beyond the cost of plain patterns. A thousand patterns of which
#: half begin and half end with a wildcard stay within it.
REQUEST_STEPS_MAX: Final = 500_000
#: Steps for each pattern that do not count: the cost of a plain one.
_FREE_STEPS: Final = 16

#: This many patterns are faster to compare one by one.
_FEW: Final = 3

#: The key under which a node counts the patterns that end there. No token is None.
_END: Final = None

# token -> node, _END -> number of patterns that end here, `>` -> number of patterns that continue with any token.
_Node = dict[bytes | None, Any]


class TooManySteps(Exception):
    """A question that needs more steps than the set allows."""


class PatternSet:
    """A multiset of patterns."""

    __slots__ = ("_count", "_root", "steps", "steps_max")

    def __init__(self, patterns: Iterable[bytes] = (), *, steps_max: int = 0) -> None:
        """Create a set; `steps_max`: steps for all questions together, 0: unlimited."""
        self._root: _Node = {}
        self._count = 0
        self.steps = 0
        self.steps_max = steps_max
        for pattern in patterns:
            self.add(pattern)

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: bytes) -> None:
        """Add one occurrence of `pattern`."""
        node, end = self._root, _END
        for token in pattern.split(b"."):
            if token == REST:
                end = REST
                break
            below = node.get(token)
            if below is None:
                below = node[token] = {}
            node = below
        node[end] = node.get(end, 0) + 1
        self._count += 1

    def discard(self, pattern: bytes) -> None:
        """Remove one occurrence of `pattern`, which must be present."""
        path: list[tuple[_Node, bytes]] = []
        node, end = self._root, _END
        for token in pattern.split(b"."):
            if token == REST:
                end = REST
                break
            path.append((node, token))
            node = node[token]
        node[end] -= 1
        if not node[end]:
            del node[end]
        while path and not node:
            node, token = path.pop()
            del node[token]
        self._count -= 1

    def overlaps(self, pattern: bytes) -> bool:
        """Return whether some subject matches both `pattern` and a pattern of the set. Raises TooManySteps."""
        tokens = pattern.split(b".")
        count = len(tokens)
        waiting: list[tuple[_Node, int]] = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            self._count_steps(1)
            if at == count:
                if _END in node:
                    return True
                continue
            token = tokens[at]
            if REST in node or (token == REST and len(node) > (_END in node)):
                return True
            at += 1
            if token == STAR:
                self._count_steps(len(node))
                waiting += [(child, at) for key, child in node.items() if key is not _END]
                continue
            child = node.get(token)
            if child is not None:
                waiting.append((child, at))
            child = node.get(STAR)
            if child is not None:
                waiting.append((child, at))
        return False

    def covers(self, pattern: bytes) -> int:
        """Return how many patterns of the set cover `pattern` (itself included, if present), counted up to two."""
        found = 0
        level: list[_Node] = [self._root]
        for token in pattern.split(b"."):
            self._count_steps(len(level))
            below: list[_Node] = []
            for node in level:
                found += node.get(REST, 0)
                if found > 1:
                    return 2
                if token == REST:
                    continue
                child = node.get(token)
                if child is not None:
                    below.append(child)
                if token != STAR:
                    child = node.get(STAR)
                    if child is not None:
                        below.append(child)
            level = below
        for node in level:
            found += node.get(_END, 0)
        return min(found, 2)

    def matches(self, literal: bytes) -> bool:
        """Return whether a pattern of the set matches a message on `literal`. All patterns must be valid."""
        level: list[_Node] = [self._root]
        for token in literal.split(b"."):
            self._count_steps(len(level))
            below: list[_Node] = []
            for node in level:
                if REST in node:
                    return True
                child = node.get(STAR)
                if child is not None:
                    below.append(child)
                child = (
                    node.get(token) if token not in (STAR, REST) else None
                )  # wildcard characters in a published subject are plain tokens
                if child is not None:
                    below.append(child)
            level = below
        return any(_END in node for node in level)

    def _count_steps(self, steps: int) -> None:
        self.steps += steps
        if self.steps_max and self.steps > self.steps_max + _FREE_STEPS * self._count:
            raise TooManySteps("the patterns take too long to compare")


def bounded(patterns: Iterable[bytes] = ()) -> PatternSet:
    """Return a set for the patterns of a peer's request."""
    return PatternSet(patterns, steps_max=REQUEST_STEPS_MAX)


def matcher_of(patterns: Sequence[bytes]) -> Callable[[bytes], bool]:
    """Return a predicate: whether one of `patterns` matches a literal subject."""
    if len(patterns) > _FEW:
        return PatternSet(patterns).matches
    few = tuple(patterns)
    return lambda literal: any(matches(pattern, literal) for pattern in few)


def first_overlapping(patterns: Sequence[bytes], *, steps_max: int = REQUEST_STEPS_MAX) -> int:
    """Return the index of the first pattern that overlaps a later one; -1: no two overlap. Raises TooManySteps."""
    later = PatternSet(steps_max=steps_max)
    first = -1
    for index in range(len(patterns) - 1, -1, -1):
        if later.overlaps(patterns[index]):
            first = index
        later.add(patterns[index])
    return first
