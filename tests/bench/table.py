"""Figures of several runs as a table: medians, and ratios within the same run."""

from __future__ import annotations

import math
import os
import platform
import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass
class Row:
    """One measurement: a figure for each peer and round; `unit` says whether more is better."""

    what: str
    unit: str
    figures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s")

    def median(self, peer: str) -> float | None:
        values = self.figures.get(peer)
        return statistics.median(values) if values else None

    def ratio(self, ours: str, theirs: str) -> float | None:
        """The median, over rounds, of ours to theirs; above 1 is faster than they for rates, below 1 for times."""
        pairs = zip(self.figures.get(ours, []), self.figures.get(theirs, []), strict=False)
        ratios = [mine / other for mine, other in pairs if other]
        return statistics.median(ratios) if ratios else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(rows: list[Row], ours: str, peers: list[str]) -> str:
    head = ["what", "unit", ours, *peers, *(f"ratio to {peer}" for peer in peers)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row.what, row.unit, *(_number(row.median(peer)) for peer in (ours, *peers))]
        cells += ["-" if (ratio := row.ratio(ours, peer)) is None else f"{ratio:.2f}" for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def percentile(figures: list[float], at: float) -> float:
    """The figure below which the part `at` of all lies (nearest rank)."""
    ranked = sorted(figures)
    return ranked[max(0, math.ceil(at * len(ranked)) - 1)]


def machine() -> str:
    """When, and on what."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} shared cores ({cpu}), Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def conditions(rounds: int, versions: dict[str, str]) -> str:
    """What a reader needs to know to compare: machine, versions, how."""
    named = "; ".join(f"{peer} = {version}" for peer, version in versions.items())
    return (
        f"{machine()}; {named}. Median of {rounds} alternating rounds; ratios are taken round by "
        "round, so that they hold when the machine's speed drifts. Rates: above 1 is faster than the peer; times: below 1.\n"
    )
