"""The documentation's walk-through gives the same tables with either server as hub and as leaf node."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.links.walkthrough import PAIRS, walk

REFERENCE = PAIRS[-1]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What a pair of nats-servers shows."""
    return [report.comparable() for report in walk(*REFERENCE, tmp_path_factory.mktemp("reference"))]


@pytest.mark.parametrize(("hub", "leaf"), PAIRS[:-1], ids=[f"{hub}-hub,{leaf}-leaf" for hub, leaf in PAIRS[:-1]])
def test_the_tables_are_the_same(hub: str, leaf: str, reference: list[object], tmp_path: Path) -> None:
    assert [report.comparable() for report in walk(hub, leaf, tmp_path)] == reference
