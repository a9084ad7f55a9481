"""Random conversations about JetStream with eyotd and a real nats-server 2.14 at once: every answer, delivery and advisory compared.

A seed decides a conversation (`support/js_operations.py`, by scenario `js_scenarios.py`); `tests/fuzz/differential.py` holds as many of them as it is asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.eyotd import Eyotd
from support.js_differential import Talk
from support.js_peer import Side
from support.js_scenarios import THEMES, config_of
from support.newer_nats_server import NewerNatsServer

#: The conversations: theme, seed and steps.
TALKS = [("all", seed, 40) for seed in range(5)] + [(theme, 0, 20) for theme in THEMES if theme != "all"]


@pytest.mark.parametrize(("theme", "seed", "steps"), TALKS)
def test_the_same_is_heard(tmp_path: Path, theme: str, seed: int, steps: int) -> None:
    """With servers of its own: they count what they are asked, and go on counting."""
    talker, config = THEMES[theme](seed), config_of(theme)
    with Eyotd(config, tmp_path / "eyotd") as eyotd, NewerNatsServer(config, tmp_path / "nats") as reference:
        talk = Talk((Side(eyotd.client_port, **talker.connect), Side(reference.client_port, **talker.connect)))
        first = next(talk.play(talker.steps(steps)), None)
        last = talk.end()
    assert first is None, f"{theme} {seed}, {first}"
    assert last is None, f"{theme} {seed}, {last}"
