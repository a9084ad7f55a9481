"""A mirror or source meets an origin that was re-created or restored, and the link is lost at each step of finding that out.

The copy is complete in the end, holds nothing twice, and no end says `synced` before that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.links.origin_and_copy import Claims, OriginAndCopy, origin_and_copy, until
from support.servers.eyotd import Eyotd

#: Hub, leaf, and which of both has the origin. The other one, an eyotd but for the last, copies.
PEERS = {
    "eyotd-from-eyotd": ("eyotd", "eyotd", "leaf"),
    "hub-from-nats-server": ("eyotd", "2.14.6", "leaf"),
    "leaf-from-nats-server": ("2.14.6", "eyotd", "hub"),
    "nats-server-from-eyotd": ("2.14.6", "eyotd", "leaf"),
}
#: What passes the link until the copy knows its origin, in this order: the link is lost right behind each.
STEPS = [b".API.CONSUMER.CREATE.R", b"consumer_create_response", b".API.STREAM.INFO.R", b"stream_info_response"]
#: An eyotd answers this along with the consumer.
STEPS_OF_NATS_SERVER = [b".API.STREAM.MSG.GET.R", b"stream_msg_get_response"]
#: Each kind and each reset, and each pairing with nats-server once. Every mirror of nats-server skips.
CASES = [
    ("eyotd-from-eyotd", "source", "re-created"),
    ("eyotd-from-eyotd", "mirror", "restored"),
    ("eyotd-from-eyotd", "mirror that skips", "re-created"),
    ("eyotd-from-eyotd", "mirror that skips", "restored"),
    ("hub-from-nats-server", "mirror", "re-created"),
    ("leaf-from-nats-server", "source", "restored"),
    ("nats-server-from-eyotd", "mirror", "restored"),
]
BASE, LOST, NEW = 100, 100, 400


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OriginAndCopy]:
    hub, leaf, origin_end = PEERS[request.param]
    with origin_and_copy(hub, leaf, origin_end, tmp_path) as found:
        yield found


def _reset(play: OriginAndCopy, how: str) -> None:
    """The origin is re-created or restored while the link is down, and then holds other messages than were copied."""
    origin, image = play.origin, play.origin.workdir / "image"
    if how == "restored":
        origin.stop()
        shutil.copytree(origin.workdir / "store", image)
        origin.start()
    play.publish("lost", LOST)
    until(lambda: play.held() == BASE + LOST, "all is copied")
    play.link.cut()
    if how == "restored":
        origin.kill()
        shutil.rmtree(origin.workdir / "store")
        shutil.copytree(image, origin.workdir / "store")
        origin.start()
    else:
        play.ask(origin, "STREAM.DELETE.R")
        play.make_origin()
    play.publish("new", NEW)


def _is_decided(play: OriginAndCopy, skipped: int) -> bool:
    """Whether the origin says that all is confirmed, but for so many messages at least."""
    report = play.report()
    return bool(report["synced"]) if not skipped else report["backlog"] >= skipped and not report["synced"]


def _steps(play: OriginAndCopy, begins: int) -> list[bytes]:
    """The last ones are messages: the link is lost behind the first that is copied, and further on."""
    asked = STEPS if play.at_eyotd else STEPS + STEPS_OF_NATS_SERVER
    return [*asked, *(b"new-%d" % number for number in (begins, begins + 40, begins + 90) if number < NEW)]


@pytest.mark.parametrize(("play", "kind", "how"), CASES, indirect=["play"])
def test_a_reset_goes_on_where_cuts_have_left_it(play: OriginAndCopy, kind: str, how: str) -> None:
    by_eyot = isinstance(play.copy, Eyotd)
    play.make_origin()
    play.make_copy(kind)
    play.publish("base", BASE)
    until(lambda: play.held() == BASE and play.report()["synced"] is not False, "the first are copied")
    _reset(play, how)
    # A nats-server goes on by sequence, too.
    skipped = LOST + (BASE if how == "re-created" else 0)
    begins = 0 if by_eyot and kind == "source" else NEW if by_eyot and kind == "mirror" else skipped
    wanted = [f"base-{number}" for number in range(BASE)] + [f"lost-{number}" for number in range(LOST)]
    wanted += [f"new-{number}" for number in range(begins, NEW)]
    with Claims(play, lambda: None if begins else len(wanted)) as claims:
        for step in _steps(play, begins):
            play.link.cut_after(step)
            play.link.restore()
            play.link.was_cut.wait(3)
            play.link.cut()
        play.link.restore()
        until(lambda: play.held() == len(wanted), "the copy is complete")
        if play.at_eyotd:
            until(lambda: _is_decided(play, skipped if begins else 0), "the origin knows")
        assert play.texts() == wanted
    assert not claims.lies
