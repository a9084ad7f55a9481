"""Two daemons, one with the compiled twin of the hot room and one with the plain one: whole conversations sound the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.conversation import CONFIG, play, script
from support.servers.eyotd import Eyotd, PlainEyotd

CONVERSATIONS = 400


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Eyotd, Eyotd]]:
    folder: Path = tmp_path_factory.mktemp("twins")
    config = CONFIG + "\ndebug: true"
    with Eyotd(config, folder / "compiled") as compiled, PlainEyotd(config, folder / "plain") as plain:
        yield compiled, plain


def test_each_says_which_it_is(twins: tuple[Eyotd, Eyotd]) -> None:
    compiled, plain = twins
    compiled.wait_log("Scanner and fan-out: compiled")
    plain.wait_log("Scanner and fan-out: plain Python")


@pytest.mark.parametrize("part", range(5))
def test_conversations(twins: tuple[Eyotd, Eyotd], part: int) -> None:
    for seed in range(part, CONVERSATIONS, 5):
        pieces = script(seed)
        compiled, plain = (play(server.client_port, pieces) for server in twins)
        assert compiled.agrees(plain), f"seed {seed}: {compiled}\n{plain}"


def test_nothing_was_left_behind(twins: tuple[Eyotd, Eyotd]) -> None:
    pages = [server.monitor("/varz") for server in twins]
    for key in ("connections", "subscriptions", "in_msgs", "in_bytes", "out_msgs", "out_bytes"):
        assert pages[0][key] == pages[1][key], key
    assert pages[0]["connections"] == 0
    for server in twins:
        assert "Traceback" not in server.log()
