"""What the groups of rows have in common: notes of figures by row and peer, and rounds in which the peers alternate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from table import Row

Say = Callable[[str], None]


class Notes:
    """Rows in the order in which they are first noted. `scale`: factor on all counts."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.rows: list[Row] = []

    def count(self, count: int) -> int:
        return max(100, int(count * self.scale))

    def note(self, what: str, unit: str, peer: str, figure: float) -> None:
        row = next((each for each in self.rows if each.what == what), None)
        if row is None:
            self.rows.append(row := Row(what, unit))
        row.figures.setdefault(peer, []).append(figure)


def alternating(peers: Sequence[str], rounds: int, say: Say, group: str, measure: Callable[[str], None]) -> None:
    """Have each peer measured in each round."""
    for number in range(rounds):
        for peer in peers:
            say(f"{group}, round {number + 1} of {rounds}: {peer}")
            measure(peer)
