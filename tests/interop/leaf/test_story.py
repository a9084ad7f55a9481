"""The main job in small, with Eyot and with Debian's nats-server in either role: every acknowledged message exactly once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from story import Story

MESSAGES = 3_000


def play(folder: Path, leaf: str, hub: str) -> None:
    story = Story(folder, MESSAGES, leaf, hub)
    try:
        truth = asyncio.run(story.play())
        assert truth.holds(ordered=[("on hub", "on leaf")]), (
            f"{truth.line()}: {[truth.duplicated(place) for place in truth.places]}\n{story.leaf.log()}\n{story.hub.log()}"
        )
        assert truth.line() == f"acked {MESSAGES}, on leaf {MESSAGES}, on hub {MESSAGES}, lost 0, duplicated 0"
    finally:
        story.close()


@pytest.mark.parametrize(
    ("leaf", "hub"), [("eyotd", "eyotd"), ("eyotd", "nats-server"), ("nats-server", "eyotd")], ids=lambda kind: kind
)
def test_offline_power_cut_and_return(tmp_path: Path, leaf: str, hub: str) -> None:
    play(tmp_path, leaf, hub)
