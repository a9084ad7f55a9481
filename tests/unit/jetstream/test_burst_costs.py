"""The cost of a message in a burst does not grow with the burst, whatever limit or header makes room for it.

Calls of functions are counted, in Python and of built-in ones. A search through what a turn has staged, or through the
stream, for each message makes four times as many messages cost sixteen times as much: a client that publishes ten thousand
at once kept all others waiting for minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from eyot_store import StoreOptions
from support.jetstream.consumers import ConsumerFixture

STORE = StoreOptions(inline=True, flush=False, map_size=256 << 20)
N, TURNS = 1000, 4
#: From N to 4 N: 4 is linear, 16 is quadratic.
GROWTH_MAX = 6.0

Header = Callable[[Random], dict[str, str]]


def none(_: Random) -> dict[str, str]:
    return {}


def some(chance: float, key: str, value: str) -> Header:
    return lambda rng: {key: value} if rng.random() < chance else {}


ROLL_UPS = {"allow_rollup_hdrs": True}
#: configuration, subjects, header
BURSTS: dict[str, tuple[dict[str, Any], int, Header]] = {
    "no limit": ({}, 100, none),
    "max_msgs": ({"max_msgs": 5}, 100, none),
    "max_msgs, with headers": ({"max_msgs": 5}, 100, some(1, "a", "b")),
    "max_bytes": ({"max_bytes": 1000}, 100, none),
    "max_bytes, with headers": ({"max_bytes": 1000}, 100, some(0.5, "a", "b")),
    "the last of each subject": ({"max_msgs_per_subject": 1}, 300, none),
    "the last of one subject": ({"max_msgs_per_subject": 1}, 1, none),
    "some of each subject": ({"max_msgs_per_subject": 3}, 100, none),
    "some of each subject, with headers": ({"max_msgs_per_subject": 3}, 100, some(1, "a", "b")),
    "some of each subject, and of all": ({"max_msgs_per_subject": 3, "max_msgs": 200}, 300, none),
    "new ones refused": ({"discard": "new", "max_msgs": 100}, 100, none),
    "new ones refused by size": ({"discard": "new", "max_bytes": 3000, "max_msgs_per_subject": 2}, 100, none),
    "roll-ups of many subjects": (ROLL_UPS, 300, some(0.5, "Nats-Rollup", "sub")),
    "roll-ups of few subjects": (ROLL_UPS, 5, some(0.05, "Nats-Rollup", "sub")),
    "roll-ups of everything": (ROLL_UPS, 5, some(0.3, "Nats-Rollup", "all")),
    "roll-ups in a bucket": ({**ROLL_UPS, "max_msgs_per_subject": 5}, 40, some(0.2, "Nats-Rollup", "sub")),
    "roll-ups, and few messages": ({**ROLL_UPS, "max_msgs": 50}, 100, some(0.2, "Nats-Rollup", "sub")),
    "last sequence of the subject": ({}, 300, some(1, "Nats-Expected-Last-Subject-Sequence", "0")),
    "last sequence of the subject, in a bucket": (
        {"max_msgs_per_subject": 1},
        300,
        some(0.5, "Nats-Expected-Last-Subject-Sequence", "0"),
    ),
    "time to live": ({"allow_msg_ttl": True}, 100, some(1, "Nats-TTL", "5s")),
    "counters": ({"allow_msg_counter": True}, 50, some(1, "Nats-Incr", "+1")),
    "interest": ({"retention": "interest"}, 100, none),
    "work queue": ({"retention": "workqueue", "max_msgs": 100}, 100, none),
}


def counted(act: Callable[[], None]) -> int:
    """Return how many functions `act` calls."""
    calls = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("which", BURSTS)
def test_a_message_of_a_burst_costs_the_same_in_any_burst(tmp_path: Path, which: str, storage: str) -> None:
    config, subjects, header = BURSTS[which]

    def burst(number: int) -> int:
        fixture = ConsumerFixture(tmp_path / str(number), store_options=STORE)
        assert "error" not in fixture.create("S", storage=storage, **config)
        rng = Random(1)
        payload = b"" if "allow_msg_counter" in config else b"x" * 10

        def publish() -> None:
            for index in range(number):
                fixture.publish(b"s.%d" % rng.randrange(subjects), payload, header(rng))
                if index % (number // TURNS) == 0:
                    fixture.commit()
            fixture.commit()

        try:
            return counted(publish)
        finally:
            fixture.js.stop()
            fixture.store.close()

    few, many = burst(N), burst(4 * N)
    assert many < few * GROWTH_MAX, (few / N, many / (4 * N))
