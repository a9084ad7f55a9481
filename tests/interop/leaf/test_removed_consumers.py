"""Somebody removes the consumer of a mirror or source at its origin: the copy goes on, and no message is missing or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.links.origin_and_copy import Claims, OriginAndCopy, origin_and_copy, until

#: Hub, leaf, and which of both has the origin.
PEERS = {
    "eyotd-from-eyotd": ("eyotd", "eyotd", "leaf"),
    "hub-from-nats-server": ("eyotd", "2.14.6", "leaf"),
    "leaf-from-nats-server": ("2.14.6", "eyotd", "hub"),
    "nats-server-from-eyotd": ("2.14.6", "eyotd", "leaf"),
}
#: A nats-server keeps nothing in an interest stream for a mirror or source that is away.
CASES = [
    ("eyotd-from-eyotd", "source", "interest"),
    ("eyotd-from-eyotd", "mirror", "limits"),
    ("hub-from-nats-server", "source", "limits"),
    ("leaf-from-nats-server", "mirror", "limits"),
    ("nats-server-from-eyotd", "source", "interest"),
]
WORDS = {"a": 50, "b": 300, "c": 1, "d": 1}
_NAME = rb'"stream_name":"R","name":"([^"]+)"'


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OriginAndCopy]:
    hub, leaf, origin_end = PEERS[request.param]
    with origin_and_copy(hub, leaf, origin_end, tmp_path) as found:
        yield found


def _remove(play: OriginAndCopy) -> str:
    """The consumer is a hidden one: its name passes the link with the answer to the request."""
    name = (play.link.find(_NAME) or b"").decode()
    assert play.ask(play.origin, f"CONSUMER.DELETE.R.{name}")["success"]
    return name


@pytest.mark.parametrize(("play", "kind", "retention"), CASES, indirect=["play"])
def test_a_copy_goes_on_without_its_consumer(play: OriginAndCopy, kind: str, retention: str) -> None:
    play.make_origin(retention=retention)
    play.make_copy(kind)
    until(lambda: play.link.find(_NAME) is not None, "there is a consumer")
    play.publish("a", 50)
    until(lambda: play.held() == 50 and play.report()["synced"] is not False, "the first are copied")
    with Claims(play, lambda: play.acknowledged) as claims:
        publishing = threading.Thread(target=play.publish, args=("b", 300))
        publishing.start()
        until(lambda: play.held() > 100, "more is copied")
        first = _remove(play)
        publishing.join()
        until(lambda: play.held() == 350, "the copy goes on in the middle")
        second = _remove(play)
        play.publish("c", 1)
        until(lambda: play.held() == 351, "the copy goes on at the end")
        _remove(play)
        time.sleep(8)  # nothing new is there to be copied
        play.publish("d", 1)
        until(lambda: play.held() == 352, "the copy goes on after a while")
        if play.at_eyotd:
            until(lambda: play.report()["synced"], "the origin knows")
    assert not claims.lies
    assert first != second
    assert play.texts() == [f"{word}-{number}" for word, count in WORDS.items() for number in range(count)]
