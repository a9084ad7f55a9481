"""Random conversations about JetStream with eyotd and a real nats-server 2.14 at once: every answer, delivery and advisory compared.

A seed decides a conversation (`support/js_sayings.py`, by theme `js_themes.py`); `tests/fuzz/talk.py` holds as many of them as it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.eyotd import Eyotd
from support.js_side import Side
from support.js_talk import CONFIG, Talk
from support.js_themes import THEMES
from support.newer_nats_server import NewerNatsServer

#: The conversations: theme, seed and steps.
TALKS = [("all", seed, 40) for seed in range(5)] + [(theme, 0, 20) for theme in THEMES if theme != "all"]


@pytest.fixture
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """Of its own for each conversation: the servers count what they are asked, and go on counting."""
    with (
        Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd,
        NewerNatsServer(CONFIG, tmp_path_factory.mktemp("nats")) as reference,
    ):
        yield Talk((Side(eyotd.client_port), Side(reference.client_port)))


@pytest.mark.parametrize(("theme", "seed", "steps"), TALKS)
def test_the_same_is_heard(talk: Talk, theme: str, seed: int, steps: int) -> None:
    first = next(talk.play(THEMES[theme](seed).steps(steps)), None)
    last = talk.end()
    assert first is None, f"{theme} {seed}, {first}"
    assert last is None, f"{theme} {seed}, {last}"
