"""Random conversations about JetStream with eyotd and a real nats-server 2.14 at once: every answer, delivery and advisory compared.

A seed decides a conversation (`support/js_sayings.py`); `tests/fuzz/talk.py` holds as many of them as it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.eyotd import Eyotd
from support.js_sayings import Talker
from support.js_side import Side
from support.js_talk import CONFIG, Talk
from support.newer_nats_server import NewerNatsServer

CONVERSATIONS, STEPS = 6, 40


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    with (
        Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd,
        NewerNatsServer(CONFIG, tmp_path_factory.mktemp("nats")) as reference,
    ):
        yield Talk((Side(eyotd.client_port), Side(reference.client_port)))


@pytest.mark.parametrize("seed", range(CONVERSATIONS))
def test_the_same_is_heard(talk: Talk, seed: int) -> None:
    first = next(talk.play(Talker(seed).steps(STEPS)), None)
    last = talk.end()
    assert first is None, f"seed {seed}, {first}"
    assert last is None, f"seed {seed}, {last}"
