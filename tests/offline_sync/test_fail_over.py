"""A second hub that is linked to the first, and takes its place: what the operator's guide describes."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from eyot_daemon.jetstream.copied_out import copied_out_of
from offline_sync.layout import external
from offline_sync.node import Node
from offline_sync.test_copies import Pair, simulated


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
    found = copied_out_of(origin).statuses()
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
        (status,) = copied_out_of(origin).statuses()
        assert status.linked
        pair.network.cut("hub2")
        await trio.sleep(15)
        await pair.publish("in.a", "2")
        (status,) = copied_out_of(origin).statuses()
        assert (status.backlog, status.error) == (1, "hub2 is linked but hub does not read ORIGIN at the moment")
        await second.stop()

    simulated(tmp_path, play)
