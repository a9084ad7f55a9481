"""Random conversations about JetStream with eyotd and a real nats-server 2.14 at once: every answer, delivery and advisory compared.

A seed decides a conversation (`support/jetstream/operations.py`, by scenario `support/jetstream/scenarios.py`); `tests/fuzz/differential.py` holds as many of them as it is asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.jetstream.differential import Conversation
from support.jetstream.peer import Peer
from support.jetstream.scenarios import SCENARIOS, config_of
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer

#: The conversations: theme, seed and steps.
CONVERSATIONS = [("all", seed, 40) for seed in range(5)] + [
    (scenario, 0, 20) for scenario in SCENARIOS if scenario != "all"
]


@pytest.mark.parametrize(("scenario", "seed", "steps"), CONVERSATIONS)
def test_the_same_is_heard(tmp_path: Path, scenario: str, seed: int, steps: int) -> None:
    """With servers of its own: they count what they are asked, and go on counting."""
    talker, config = SCENARIOS[scenario](seed), config_of(scenario)
    with Eyotd(config, tmp_path / "eyotd") as eyotd, NewerNatsServer(config, tmp_path / "nats") as reference:
        conversation = Conversation(
            (Peer(eyotd.client_port, **talker.connect), Peer(reference.client_port, **talker.connect))
        )
        first = next(conversation.play(talker.steps(steps)), None)
        last = conversation.end()
    assert first is None, f"{scenario} {seed}, {first}"
    assert last is None, f"{scenario} {seed}, {last}"
