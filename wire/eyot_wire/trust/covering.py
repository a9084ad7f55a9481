"""Which subjects of many cover which: a tree of tokens, so that an account's 100,000 exports are not compared in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eyot_wire.pattern_set import TooManySteps

#: Nodes of the tree that may be visited for each token, on average; 2 without crafted wildcards.
STEPS_PER_TOKEN: Final = 16


def covers(granted: str, wanted: str) -> bool:
    """Return whether every subject of `wanted` is one of `granted`; both may contain wildcards.

    The library regards `a.>` as part of `a.*`; that would exceed the grant, so this function refuses it.
    """
    theirs, ours = granted.split("."), wanted.split(".")
    if len(ours) > len(theirs) and theirs[-1] != ">":
        return False
    if len(ours) < len(theirs):
        return False
    for index, part in enumerate(theirs):
        if index == len(theirs) - 1 and part == ">":
            return True
        if part != ours[index] and (part != "*" or ours[index] == ">"):
            return False
    return True


class _Node:
    __slots__ = ("below", "ends")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        #: numbers of the subjects that end here
        self.ends: list[int] = []


def covering_pairs(subjects: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (number of a subject, number of another one that covers it), in ascending order. The same subject twice covers itself.

    Raises TooManySteps if the wildcards fork so often that the cost would no longer grow with the subjects' tokens.
    """
    tokens = [subject.split(".") for subject in subjects]
    root = _Node()
    for number, parts in enumerate(tokens):
        node = root
        for token in parts:
            below = node.below.get(token)
            if below is None:
                below = node.below[token] = _Node()
            node = below
        node.ends.append(number)
    steps = STEPS_PER_TOKEN * (sum(map(len, tokens)) + 100)
    for number, parts in enumerate(tokens):
        found, taken = _outer(root, parts)
        steps -= taken
        if steps < 0:
            raise TooManySteps
        for other in sorted(found):
            if other != number:
                yield number, other


def _outer(root: _Node, wanted: list[str]) -> tuple[list[int], int]:
    """Return the numbers of what covers these tokens, as `covers` tells, and the nodes visited."""
    found: list[int] = []
    taken = 0
    nodes = [root]
    for part in wanted:
        taken += len(nodes)
        following: list[_Node] = []
        for node in nodes:
            below = node.below
            rest = below.get(">")
            if rest is not None:
                found += rest.ends
                if part == ">":  # one in the middle of a subject is an ordinary token
                    following.append(_without_ends(rest))
            if part != ">" and (same := below.get(part)) is not None:
                following.append(same)
            if part not in ("*", ">") and (wildcard := below.get("*")) is not None:
                following.append(wildcard)
        nodes = following
    for node in nodes:
        found += node.ends
    return found, taken


def _without_ends(node: _Node) -> _Node:
    """Return a node of which only what follows matters: its own ends are counted."""
    other = _Node()
    other.below = node.below
    return other
