"""A second hub that is linked to the first, and replaces it, as the operator's guide describes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from eyot_daemon.jetstream.sourcing.positions import OWN_KEYS
from eyot_daemon.jetstream.sourcing.resume_point import HEADER_INDEX_KEY
from eyot_wire.jetstream.stream_source import read_mark
from offline_sync.layout import external
from offline_sync.node import Node
from offline_sync.test_sourcing import Pair, simulated


async def _second(pair: Pair, path: Path) -> Node:
    """Another hub, whose link leads to the first; the leaf knows both addresses."""
    second = Node("hub2", pair.network, path / "hub2", "1", addresses=("hub2",), dials=("hub",))
    second.path.mkdir()
    pair.leaf.dials, pair.leaf.in_order = ("hub", "hub2"), True
    await pair.nursery.start(second.run)
    return second


def _told(pair: Pair) -> dict[tuple[str, str, str], int]:
    """What the leaf says its copies have, by server, its domain and the stream that copies."""
    origin = pair.leaf.stream("ORIGIN")
    assert origin is not None
    found = origin.downstream.statuses()
    return {(each.peer, each.peer_domain, each.target): each.confirmed_seq for each in found}


def test_the_second_hub_goes_on_where_its_mirror_was(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        second = await _second(pair, tmp_path)
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.make(second, "ALL", mirror=external("ALL", "hub"))
        await pair.publish("in.a", "1", "2")
        await trio.sleep(3)
        await second.crash(silent=False)
        await pair.publish("in.a", "3")
        await trio.sleep(3)
        await pair.hub.crash(silent=True)
        await pair.nursery.start(second.run)
        await pair.publish("in.a", "4")
        await pair.make(second, "ALL", "UPDATE", sources=[external("ORIGIN", "leaf")])
        await trio.sleep(30)
        assert pair.held(second, "ALL") == ["1", "2", "3", "4"], "the mirror had not seen what came last"
        assert _told(pair) == {("hub", "hub", "ALL"): 3, ("hub2", "hub2", "ALL"): 4}
        # The first comes back, and copies through the second, to which the leaf is linked.
        await pair.nursery.start(pair.hub.run)
        await trio.sleep(15)
        await pair.publish("in.a", "5")
        await trio.sleep(5)
        for hub in (pair.hub, second):
            assert pair.held(hub, "ALL") == ["1", "2", "3", "4", "5"]
        assert _told(pair) == {("hub", "hub", "ALL"): 5, ("hub2", "hub2", "ALL"): 5}
        await second.stop()

    simulated(tmp_path, play)


def test_a_reader_behind_another_server_is_called_by_its_domain(tmp_path: Path) -> None:
    """Not by the name of the server that its messages go through, which may have a copy of its own."""

    async def play(pair: Pair) -> None:
        second = await _second(pair, tmp_path)
        pair.leaf.dials = ("hub2",)
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await trio.sleep(5)
        await pair.publish("in.a", "1")
        await trio.sleep(5)
        assert _told(pair) == {("hub", "hub", "ALL"): 1}
        origin = pair.leaf.stream("ORIGIN")
        assert origin is not None
        (status,) = origin.downstream.statuses()
        assert status.linked
        pair.network.cut("hub2")
        await trio.sleep(15)
        await pair.publish("in.a", "2")
        (status,) = origin.downstream.statuses()
        assert (status.backlog, status.error) == (1, "hub2 is linked but ALL at hub does not read ORIGIN at the moment")
        await second.stop()

    simulated(tmp_path, play)


async def _promoted(pair: Pair, second: Node, domain: str = "leaf") -> None:
    """The first hub is lost, and the second gathers by itself from now on."""
    await pair.hub.crash(silent=True)
    await pair.make(second, "ALL", "UPDATE", sources=[external("ORIGIN", domain)])


async def _mirrored(pair: Pair, path: Path, *numbers: str) -> Node:
    """A second hub that mirrors what the first gathers; the leaf publishes."""
    second = await _second(pair, path)
    await pair.start()
    await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
    await pair.make(second, "ALL", mirror=external("ALL", "hub"))
    await pair.publish("in.a", *numbers)
    await trio.sleep(3)
    assert pair.held(second, "ALL") == [*numbers]
    return second


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_an_origin_made_anew_before_its_copy_took_over_is_not_taken_for_itself(tmp_path: Path, restarted: bool) -> None:
    """Also if it has grown past what is held of its former life."""

    async def play(pair: Pair) -> None:
        second = await _mirrored(pair, tmp_path, "1", "2", "3")
        pair.network.cut("leaf")
        await pair.leaf.request("STREAM.DELETE.ORIGIN")
        await pair.make(pair.leaf, "ORIGIN", subjects=["in.>"])
        await pair.publish("in.a", "a", "b", "c", "d", "e")
        await _promoted(pair, second)
        if restarted:
            await second.crash(silent=False)
            await pair.nursery.start(second.run)
        pair.network.restore("leaf")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "a", "b", "c", "d", "e"]
        await second.stop()

    simulated(tmp_path, play)


def test_an_origin_set_back_before_its_copy_took_over_is_not_taken_for_itself(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        second = await _mirrored(pair, tmp_path, "1", "2", "3")
        await pair.leaf.crash(silent=False)
        pair.leaf.back_up()
        await pair.nursery.start(pair.leaf.run)
        await pair.publish("in.a", "4", "5")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "4", "5"]
        await pair.leaf.crash(silent=False)
        pair.leaf.restore()
        pair.network.cut("leaf")
        await pair.nursery.start(pair.leaf.run)
        await pair.publish("in.a", "four", "five", "six")
        await _promoted(pair, second)
        pair.network.restore("leaf")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "4", "5", "four", "five", "six"]
        await second.stop()

    simulated(tmp_path, play)


def test_an_origin_renamed_before_its_copy_took_over_is_not_copied_again(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        second = await _mirrored(pair, tmp_path, "1", "2", "3")
        await pair.leaf.crash(silent=False)
        pair.leaf.domain = "site"
        await pair.nursery.start(pair.leaf.run)
        await pair.publish("in.a", "4")
        await _promoted(pair, second, "site")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "4"]
        await second.stop()

    simulated(tmp_path, play)


def test_what_a_mirror_stored_before_it_noted_marks_is_looked_through(tmp_path: Path) -> None:
    """A store of yesterday: no marks among the positions of what was mirrored then."""

    async def play(pair: Pair) -> None:
        second = await _mirrored(pair, tmp_path, "1", "2", "3")
        stream = second.stream("ALL")
        assert stream is not None
        txn = second.store.begin()
        for key in stream.log.positions():
            if key == HEADER_INDEX_KEY or not key.startswith(OWN_KEYS):
                stream.log.delete_position(txn, key)
        second.store.submit(txn)
        await trio.sleep(1)
        await second.crash(silent=False)
        await pair.nursery.start(second.run)
        await _promoted(pair, second)
        await pair.publish("in.a", "4")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "4"]
        await second.stop()

    simulated(tmp_path, play)


def test_a_life_that_began_while_it_was_mirrored_is_known(tmp_path: Path) -> None:
    """The first message of it says so, and a mirror that stops right behind it has no need to be told."""

    async def play(pair: Pair) -> None:
        second = await _mirrored(pair, tmp_path, "1", "2", "3")
        await pair.leaf.request("STREAM.DELETE.ORIGIN")
        await pair.make(pair.leaf, "ORIGIN", subjects=["in.>"])
        await pair.publish("in.a", "a", "b")
        await trio.sleep(5)
        assert pair.held(second, "ALL") == ["1", "2", "3", "a", "b"]
        found = second.stream("ALL")
        assert found is not None
        marks = [read_mark(each.header) for each in found.log.read(1, max_messages=9, max_bytes=1 << 20).messages]
        assert [mark is not None and bool(mark.identity and mark.stored_ns) for mark in marks] == [
            False,
            False,
            False,
            True,
            False,
        ]
        await _promoted(pair, second)
        await pair.publish("in.a", "c")
        await trio.sleep(20)
        assert pair.held(second, "ALL") == ["1", "2", "3", "a", "b", "c"]
        await second.stop()

    simulated(tmp_path, play)
