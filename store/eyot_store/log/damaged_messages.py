"""The damaged messages of a log that reads have met: each is told of once, and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from eyot_wire.quantities import counted

#: So many are told of one by one; a log with more is hardly readable.
MET_MAX = 1024
_NAMED_MAX = 8


class DamagedMessages:
    """Those met since the store was opened, also when they are removed since. `on_met(seq)` is called once for each."""

    __slots__ = ("_seqs", "on_met")

    def __init__(self) -> None:
        self._seqs: set[int] = set()
        self.on_met: Callable[[int], None] | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._seqs))

    def __contains__(self, seq: int) -> bool:
        return seq in self._seqs

    def met(self, seqs: Iterable[int]) -> None:
        """Note committed messages whose records are damaged."""
        for seq in seqs:
            if seq in self._seqs or len(self._seqs) >= MET_MAX:
                continue
            self._seqs.add(seq)
            if self.on_met is not None:
                self.on_met(seq)

    def __str__(self) -> str:
        """Return how many there are, and the sequences of the first."""
        seqs = list(self)
        named = ", ".join(map(str, seqs[:_NAMED_MAX])) + (", ..." if len(seqs) > _NAMED_MAX else "")
        return f"{counted(len(seqs), 'damaged message')} (sequence {named})"
