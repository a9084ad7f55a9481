"""A set of sequences as nats-server encodes it: nodes of a first sequence and a bitmap.

A bitmap covers 2048 sequences (4096 in old archives). The set stays encoded, since a set from a peer may describe far
more sequences than it has bytes. Source: nats-server's avl/seqset.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.varint import Cursor

_MAGIC = 22
_WIDTHS = {1: 512, 2: 256}
#: Sequences of one node, as nats-server writes them now.
NODE_WIDTH = 2048


class SeqSet:
    """A set of sequences: nodes as (first sequence, bitmap as an integer), and single sequences."""

    __slots__ = ("_nodes", "_seqs")

    def __init__(self, nodes: dict[int, int] | None = None, seqs: frozenset[int] = frozenset()) -> None:
        self._nodes = nodes or {}
        self._seqs = seqs

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, int):
            return False
        if seq in self._seqs:
            return True
        return any(seq >= base and bits >> (seq - base) & 1 for base, bits in self._near(seq))

    def __iter__(self) -> Iterator[int]:
        yield from sorted(self._seqs)
        for base, bits in sorted(self._nodes.items()):
            left = bits
            while left:
                lowest = left & -left
                yield base + lowest.bit_length() - 1
                left ^= lowest

    def __bool__(self) -> bool:
        return bool(self._nodes or self._seqs)

    def nodes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield (first sequence, bitmap) of the nodes that reach into [first, last], ascending."""
        for base, bits in sorted(self._nodes.items()):
            if base <= last and base + bits.bit_length() > first:
                yield base, bits

    def _near(self, seq: int) -> Iterator[tuple[int, int]]:
        """Yield the nodes that may hold `seq`: nats-server's nodes begin at a multiple of their width."""
        for width in (2048, 4096):
            base = seq - seq % width
            if base in self._nodes:
                yield base, self._nodes[base]


def decode_seqset(cursor: Cursor) -> SeqSet:
    """Decode a set. Raises ArchiveError."""
    magic, version = cursor.take(2)
    if magic != _MAGIC or version not in _WIDTHS:
        raise ArchiveError("ss: bad encoding")
    count = int.from_bytes(cursor.take(4), "little")
    cursor.take(4)  # the number of sequences
    nodes: dict[int, int] = {}
    for _ in range(count):
        base = int.from_bytes(cursor.take(8), "little")
        nodes[base] = nodes.get(base, 0) | int.from_bytes(cursor.take(_WIDTHS[version]), "little")
        cursor.take(2)  # the height of the tree
    return SeqSet(nodes)
