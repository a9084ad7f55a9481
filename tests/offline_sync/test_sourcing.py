"""The simulator's findings about mirrors and sources, each in the smallest fleet that shows it: a hub and one leaf node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from eyot_sync.sourcing import source_consumer
from offline_sync.fleet import quiet
from offline_sync.journal import StreamEpoch
from offline_sync.layout import external
from offline_sync.network import Network
from offline_sync.node import Node
from offline_sync.worker import Worker


class Pair:
    """A leaf that publishes to `ORIGIN` (subjects `in.>`), a hub that copies it."""

    def __init__(self, path: Path, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.network = Network(nursery)
        self.hub = Node("hub", self.network, path / "hub", "1", addresses=("hub",))
        self.leaf = Node("leaf", self.network, path / "leaf", "1", addresses=(), dials=("hub",))

    async def start(self, **origin: Any) -> None:
        for node in (self.hub, self.leaf):
            node.path.mkdir()
            await self.nursery.start(node.run)
        await self.make(self.leaf, "ORIGIN", subjects=["in.>"], **origin)

    async def make(self, node: Node, stream: str, verb: str = "CREATE", **config: Any) -> None:
        answer = await node.request(f"STREAM.{verb}.{stream}", {"name": stream, "storage": "file", **config})
        assert "error" not in answer, answer

    async def publish(self, subject: str, *payloads: str) -> None:
        for payload in payloads:
            self.leaf.client.ask(subject.encode(), payload.encode(), lambda _: None)
        await trio.sleep(0.2)

    def held(self, node: Node, stream: str) -> list[str]:
        found = node.stream(stream)
        assert found is not None
        return [each.payload.decode() for each in found.log.read(1, max_messages=999, max_bytes=1 << 20).messages]

    def said(self) -> dict[str, int]:
        """What the leaf says its copies have, by the stream that copies."""
        origin = self.leaf.stream("ORIGIN")
        assert origin is not None
        return {each.target: each.confirmed_seq for each in origin.downstream.statuses()}

    def doubted(self) -> list[str]:
        """Of which of them it cannot say what they have."""
        origin = self.leaf.stream("ORIGIN")
        assert origin is not None
        return [each.target for each in origin.downstream.statuses() if each.uncertain]


def simulated(tmp_path: Path, play: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(tmp_path, nursery)
            await play(pair)
            for node in (pair.hub, pair.leaf):
                await node.stop()
            nursery.cancel_scope.cancel()

    with quiet():
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


NUMBERS = [str(number) for number in range(10)]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_message_leaves_its_queue_when_the_copy_has_it_on_flash(tmp_path: Path, retention: str) -> None:
    async def play(pair: Pair) -> None:
        await pair.start(retention=retention)
        await pair.make(pair.hub, "WORK", sources=[external("ORIGIN", "leaf")])
        await trio.sleep(3)
        pair.hub.set_disk_full(True)
        await pair.publish("in.a", *NUMBERS)
        await trio.sleep(3)
        assert pair.held(pair.leaf, "ORIGIN") == NUMBERS
        pair.hub.set_disk_full(False)
        await trio.sleep(60)
        assert pair.held(pair.hub, "WORK") == NUMBERS
        assert pair.held(pair.leaf, "ORIGIN") == []

    simulated(tmp_path, play)


@pytest.mark.parametrize("header", [b"", None], ids=["nats-server", "eyot"])
def test_what_a_link_cannot_carry_stays_in_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes | None
) -> None:
    """The flow-control request behind it is answered before the gap is noticed: by nats-server before 2.14 without a position."""
    if header is not None:
        monkeypatch.setattr(source_consumer, "ack_position_header", lambda *_: header)

    async def play(pair: Pair) -> None:
        await pair.start(retention="workqueue")
        await pair.make(pair.hub, "WORK", sources=[external("ORIGIN", "leaf")])
        await trio.sleep(3)
        for link in pair.leaf.broker.links.connections.values():
            link.session.sender.max_payload = 100
        large = "x" * 200
        await pair.publish("in.a", "first", large)
        await trio.sleep(20)
        assert pair.held(pair.hub, "WORK") == ["first"]
        assert pair.held(pair.leaf, "ORIGIN")[-1:] == [large]

    simulated(tmp_path, play)


def test_a_source_whose_filter_is_changed_copies_nothing_twice(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start()
        wide = external("ORIGIN", "leaf")
        narrow = wide | {"filter_subject": "in.a"}
        renamed = wide | {"subject_transforms": [{"src": "in.a", "dest": "out.a"}, {"src": "in.b", "dest": ""}]}
        await pair.make(pair.hub, "ALL", sources=[narrow])
        await pair.publish("in.a", "a1", "a2")
        await pair.publish("in.b", "b1")
        await trio.sleep(2)
        assert pair.held(pair.hub, "ALL") == ["a1", "a2"]
        for sources in ([wide], [renamed], [], [narrow], [wide]):
            await pair.make(pair.hub, "ALL", "UPDATE", sources=sources)
            await pair.publish("in.a", f"a{len(pair.held(pair.leaf, 'ORIGIN'))}")
        await trio.sleep(3)
        held = pair.held(pair.hub, "ALL")
        assert sorted(held) == sorted(pair.held(pair.leaf, "ORIGIN"))
        assert held[:3] == ["a1", "a2", "b1"]

    simulated(tmp_path, play)


def test_a_source_of_a_new_life_is_not_taken_for_copied(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start()
        wide = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "ALL", sources=[wide])
        await pair.publish("in.a", "a1", "a2")
        await trio.sleep(2)
        await pair.leaf.request("STREAM.DELETE.ORIGIN")
        await pair.make(pair.leaf, "ORIGIN", subjects=["in.>"])
        await pair.publish("in.a", "A1")
        await pair.make(pair.hub, "ALL", "UPDATE", sources=[wide | {"filter_subject": "in.a"}])
        await trio.sleep(30)
        assert pair.held(pair.hub, "ALL") == ["a1", "a2", "A1"]

    simulated(tmp_path, play)


@pytest.mark.parametrize("purged", [False, True])
def test_an_origin_that_was_set_back_and_grew_since_is_found_out(tmp_path: Path, purged: bool) -> None:
    """Also where the last message that was copied, or what stands in its place now, is gone there."""

    async def play(pair: Pair) -> None:
        await pair.start()
        source = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "ALL", sources=[source])
        await pair.make(pair.hub, "COPY", mirror=source)
        await pair.publish("in.a", "1", "2")
        await pair.leaf.crash(silent=False)
        pair.leaf.back_up()
        await pair.nursery.start(pair.leaf.run)
        await trio.sleep(1)
        await pair.publish("in.a", "3", "4", "5")
        await trio.sleep(3)
        pair.network.cut("leaf")
        await pair.leaf.crash(silent=False)
        pair.leaf.restore()
        await pair.nursery.start(pair.leaf.run)
        await pair.publish("in.a", "x", "y")
        await pair.publish("in.b", "z")
        await pair.publish("in.a", "6", "7")
        if purged:
            await pair.leaf.request("STREAM.PURGE.ORIGIN", {"filter": "in.b"})
        pair.network.restore("leaf")
        await trio.sleep(5)
        new = ["x", "y", "6", "7"] if purged else ["x", "y", "z", "6", "7"]
        assert pair.held(pair.hub, "ALL") == ["1", "2", "3", "4", "5", *new]
        assert pair.held(pair.hub, "COPY") == ["1", "2", "3", "4", "5"]
        copy, every = sorted(pair.hub.sourcing.tasks(), key=lambda task: not task.mirror)
        assert copy.report.info().error is not None
        assert "it was restored or lost messages" in every.source_consumer.progress.note

    simulated(tmp_path, play)


def test_what_was_copied_before_an_origin_was_set_back_is_not_copied_again(tmp_path: Path) -> None:
    """Although its clock was wrong for a while: what follows what is newer may be older than that."""

    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "SOME", sources=[external("ORIGIN", "leaf") | {"filter_subject": "in.a"}])
        await trio.sleep(2)
        await pair.publish("in.a", "1", "2")
        await pair.publish("in.b", "not copied")
        pair.leaf.clock.offset_s = -57 * 365 * 86400
        await pair.publish("in.a", "3", "4")
        await pair.leaf.crash(silent=False)
        pair.leaf.back_up()
        await pair.nursery.start(pair.leaf.run)
        await trio.sleep(3)
        await pair.publish("in.a", "5", "6")
        await pair.leaf.crash(silent=False)
        pair.leaf.restore()
        pair.leaf.clock.offset_s = 0.0
        await pair.nursery.start(pair.leaf.run)
        await trio.sleep(3)
        await pair.publish("in.a", "7", "8")
        await trio.sleep(3)
        assert pair.held(pair.hub, "SOME") == ["1", "2", "3", "4", "5", "6", "7", "8"]

    simulated(tmp_path, play)


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_two_hubs_copy_from_one_leaf(tmp_path: Path, retention: str) -> None:
    """Each has everything once, whatever happens to the other, and the leaf says of each what it has."""

    async def play(pair: Pair) -> None:
        other = Node("other", pair.network, tmp_path / "other", "1", addresses=("other",))
        other.path.mkdir()
        pair.leaf.other_hub = ("other",)
        await pair.nursery.start(other.run)
        await pair.start(retention=retention)
        hubs = (pair.hub, other)
        for hub in hubs:
            await pair.make(hub, "ALL", sources=[external("ORIGIN", "leaf")])
            await pair.make(hub, "COPY", mirror=external("ORIGIN", "leaf"))
        await trio.sleep(3)
        await other.crash(silent=True)
        await pair.publish("in.a", "1", "2")
        await trio.sleep(20)
        await pair.hub.crash(silent=False)
        await pair.nursery.start(other.run)
        await pair.publish("in.a", "3")
        pair.network.cut("leaf")
        await pair.nursery.start(pair.hub.run)
        await pair.publish("in.a", "4")
        pair.network.restore("leaf")
        await trio.sleep(20)
        for hub in hubs:
            assert pair.held(hub, "ALL") == pair.held(hub, "COPY") == ["1", "2", "3", "4"]
        assert pair.held(pair.leaf, "ORIGIN") == ([] if retention == "interest" else ["1", "2", "3", "4"])
        origin = pair.leaf.stream("ORIGIN")
        assert origin is not None
        told = {(each.peer, each.target): each.confirmed_seq for each in origin.downstream.statuses()}
        assert told == {(hub.name, stream): 4 for hub in hubs for stream in ("ALL", "COPY")}
        await other.stop()

    simulated(tmp_path, play)


def test_a_source_of_a_leaf_whose_domain_is_renamed_copies_nothing_twice(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.publish("in.a", "1", "2")
        await trio.sleep(1)
        await pair.leaf.crash(silent=False)
        pair.leaf.domain = "site"
        await pair.nursery.start(pair.leaf.run)
        await pair.publish("in.a", "3")
        await pair.make(pair.hub, "ALL", "UPDATE", sources=[external("ORIGIN", "site")])
        await trio.sleep(5)
        assert pair.held(pair.hub, "ALL") == ["1", "2", "3"]

    simulated(tmp_path, play)


def test_a_mirror_that_takes_the_place_of_its_origin_goes_on_where_its_messages_say(tmp_path: Path) -> None:
    """Also if it is started again before it has copied anything by itself."""

    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.leaf, "MORE", subjects=["more.>"])
        sources = [external("ORIGIN", "leaf"), external("MORE", "leaf")]
        await pair.make(pair.hub, "ALL", sources=sources)
        await pair.make(pair.hub, "STANDBY", mirror={"name": "ALL"})
        await pair.publish("in.a", "1", "2")
        await pair.publish("more.a", "m")
        await trio.sleep(1)
        await pair.hub.request("STREAM.DELETE.ALL")
        await pair.make(pair.hub, "STANDBY", "UPDATE", sources=sources)
        await pair.publish("in.a", "3")
        await trio.sleep(2)
        await pair.hub.crash(silent=False)
        await pair.nursery.start(pair.hub.run)
        await pair.publish("in.a", "4")
        await trio.sleep(5)
        assert pair.held(pair.hub, "STANDBY") == ["1", "2", "m", "3", "4"]

    simulated(tmp_path, play)


def test_what_a_reader_lost_is_not_said_to_be_there(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.publish("in.a", *NUMBERS)
        await trio.sleep(3)
        assert pair.said() == {"ALL": 10}
        await pair.hub.crash(silent=False)
        pair.hub.restore()  # there is no backup: it is empty
        await pair.nursery.start(pair.hub.run)
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf") | {"opt_start_seq": 4}])
        for _ in range(100):
            await trio.sleep(0.01)
            at_most = 3 + len(pair.held(pair.hub, "ALL"))
            if pair.hub.links_up and pair.said()["ALL"] <= 3:
                break
        assert pair.said()["ALL"] <= at_most
        await trio.sleep(5)
        assert pair.held(pair.hub, "ALL") == NUMBERS[3:]
        assert pair.said() == {"ALL": 10}

    simulated(tmp_path, play)


@pytest.mark.parametrize("full", [False, True])
def test_what_a_reader_lost_is_not_said_to_be_there_after_a_power_cut(tmp_path: Path, full: bool) -> None:
    """On a full disk that cannot be written down; a moment after the reader asked it is not written down yet."""

    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.publish("in.a", *NUMBERS)
        await trio.sleep(3)
        assert pair.said() == {"ALL": 10}
        await pair.hub.crash(silent=False)
        pair.hub.restore()  # there is no backup: it is empty
        await pair.nursery.start(pair.hub.run)
        pair.leaf.set_disk_full(full)
        made = pair.hub.request("STREAM.CREATE.ALL", {"name": "ALL", "sources": [external("ORIGIN", "leaf")]})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: made)
            while pair.said() != {"ALL": 0}:
                await trio.sleep(0.001)
        await trio.sleep(30 if full else 0)
        await pair.leaf.crash(silent=True)
        pair.network.cut("leaf")
        pair.leaf.set_disk_full(False)
        await pair.nursery.start(pair.leaf.run)
        assert pair.said() == {"ALL": 0}
        assert pair.doubted() == ["ALL"]
        await pair.leaf.crash(silent=True)
        await pair.nursery.start(pair.leaf.run)
        assert pair.doubted() == ["ALL"]  # that it was started again says nothing
        pair.network.restore("leaf")
        await trio.sleep(30)
        assert pair.held(pair.hub, "ALL") == NUMBERS
        assert pair.said() == {"ALL": 10}
        assert pair.doubted() == []
        await pair.leaf.crash(silent=True)
        pair.network.cut("leaf")
        await pair.nursery.start(pair.leaf.run)
        assert pair.said() == {"ALL": 10}
        assert pair.doubted() == []

    simulated(tmp_path, play)


def test_each_of_two_copies_is_told_of_for_itself(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.make(pair.hub, "FEW", sources=[external("ORIGIN", "leaf")], max_msgs=4, discard="new")
        await pair.publish("in.a", *NUMBERS)
        await trio.sleep(20)
        assert pair.held(pair.hub, "FEW") == NUMBERS[:4]
        said = pair.said()
        assert said["ALL"] == 10
        assert said["FEW"] <= 4

    simulated(tmp_path, play)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_copy_that_is_taken_out_during_a_cut_is_forgotten(tmp_path: Path, retention: str, restarted: bool) -> None:
    """Also by a server that was started again meanwhile; what was kept for it alone goes."""

    async def play(pair: Pair) -> None:
        await pair.start(retention=retention)
        source = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "ALL", sources=[source])
        await pair.make(pair.hub, "SOME", sources=[source | {"filter_subject": "in.a"}])
        await trio.sleep(2)
        pair.network.cut("leaf")
        await trio.sleep(1)
        await pair.publish("in.a", *NUMBERS)
        await pair.make(pair.hub, "SOME", "UPDATE", subjects=["some"])
        if restarted:
            await pair.hub.crash(silent=False)
            await pair.nursery.start(pair.hub.run)
        pair.network.restore("leaf")
        await trio.sleep(20)
        assert pair.said() == {"ALL": 10}
        assert pair.held(pair.leaf, "ORIGIN") == ([] if retention == "interest" else NUMBERS)
        hub = pair.hub.stream("SOME")
        assert hub is not None
        assert not [key for key in hub.log.positions() if key.startswith(b"eyot.bye.")]

    simulated(tmp_path, play)


@pytest.mark.parametrize("kind", ["mirror", "source"])
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_copy_whose_consumer_somebody_deletes_goes_on(tmp_path: Path, retention: str, kind: str) -> None:
    """Nothing is removed as if nobody needed it any more, also when the link is lost before the copy has asked again."""

    async def play(pair: Pair) -> None:
        await pair.start(retention=retention)
        source = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "COPY", **({"mirror": source} if kind == "mirror" else {"sources": [source]}))
        await trio.sleep(2)
        for number, lost_s in enumerate((None, 0.0, 0.1, 0.4, 0.6)):
            (task,) = pair.hub.sourcing.tasks()
            deleted = await pair.leaf.request(f"CONSUMER.DELETE.ORIGIN.{task.source_consumer.request.consumer}")
            assert deleted["success"]
            await pair.publish("in.a", str(number))
            if lost_s is None:
                await trio.sleep(1.5)  # told, not by its patience
                assert pair.held(pair.hub, "COPY") == ["0"]
            else:
                await trio.sleep(lost_s)
                pair.network.cut("leaf")
                await trio.sleep(1)
                await pair.publish("in.a", f"{number} away")
                pair.network.restore("leaf")
            await trio.sleep(20)
        assert pair.held(pair.hub, "COPY") == ["0", *(text for each in "1234" for text in (each, f"{each} away"))]
        assert pair.said() == {"COPY": 9}

    simulated(tmp_path, play)


@pytest.mark.parametrize("kind", ["mirror", "source"])
def test_a_copy_that_waits_for_room_is_not_forgotten_with_its_consumer(tmp_path: Path, kind: str) -> None:
    """A copy that does not listen at the moment has not deregistered, whoever deletes its consumer."""

    async def play(pair: Pair) -> None:
        await pair.start(retention="interest")
        source = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "COPY", **({"mirror": source} if kind == "mirror" else {"sources": [source]}))
        await trio.sleep(2)
        pair.hub.set_disk_full(True)
        await pair.publish("in.a", "one")
        await trio.sleep(1)
        origin = pair.leaf.stream("ORIGIN")
        assert origin is not None
        for name in list(origin.consumers):
            assert (await pair.leaf.request(f"CONSUMER.DELETE.ORIGIN.{name}"))["success"]
        await pair.publish("in.a", "two")
        await trio.sleep(30)
        assert [status.backlog for status in origin.downstream.statuses()] == [2]
        pair.hub.set_disk_full(False)
        await trio.sleep(60)
        assert pair.held(pair.hub, "COPY") == ["one", "two"]

    simulated(tmp_path, play)


def test_a_copy_that_is_back_before_the_link_is_not_forgotten(tmp_path: Path) -> None:
    async def play(pair: Pair) -> None:
        await pair.start(retention="interest")
        source = external("ORIGIN", "leaf")
        await pair.make(pair.hub, "ALL", sources=[source])
        await trio.sleep(2)
        pair.network.cut("leaf")
        await pair.publish("in.a", *NUMBERS)
        await pair.make(pair.hub, "ALL", "UPDATE", subjects=["some"])
        await pair.make(pair.hub, "ALL", "UPDATE", sources=[source])
        pair.network.restore("leaf")
        await trio.sleep(20)
        assert pair.held(pair.hub, "ALL") == NUMBERS
        assert pair.said() == {"ALL": 10}

    simulated(tmp_path, play)


def test_a_reader_is_forgotten_on_request(tmp_path: Path) -> None:
    """Of a server that is gone for good; not one that reads at the moment."""

    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "ALL", sources=[external("ORIGIN", "leaf")])
        await pair.publish("in.a", *NUMBERS)
        await trio.sleep(2)
        answer = await pair.leaf.request("STREAM.EYOT_FORGET.ORIGIN", {"server": "hub"})
        assert (answer["forgotten"], answer["reading"]) == (0, 1)
        await pair.hub.crash(silent=False)
        await trio.sleep(1)
        answer = await pair.leaf.request("STREAM.EYOT_FORGET.ORIGIN", {"server": "hub", "target": "OTHER"})
        assert (answer["forgotten"], answer["reading"]) == (0, 0)
        answer = await pair.leaf.request("STREAM.EYOT_FORGET.ORIGIN", {"server": "hub"})
        assert (answer["forgotten"], answer["reading"]) == (1, 0)
        assert pair.said() == {}
        await pair.nursery.start(pair.hub.run)
        await trio.sleep(5)
        assert pair.said() == {"ALL": 10}

    simulated(tmp_path, play)


def test_a_client_behind_a_link_gets_all_of_a_large_batch(tmp_path: Path) -> None:
    """More than may wait for the link at a time: the rest comes when there is room."""

    async def play(pair: Pair) -> None:
        await pair.start()
        await pair.make(pair.hub, "COMMANDS", subjects=["commands.>"])
        await trio.sleep(2)
        epoch = StreamEpoch("hub", "COMMANDS", 1)
        for number in range(1, 401):
            pair.hub.client.ask(b"commands.a", epoch.payload(number, 1000), lambda _: None)
        worker = Worker(pair.leaf, pair.hub, "hub", "COMMANDS")
        pair.nursery.start_soon(worker.run)
        await trio.sleep(20)
        assert worker.done.keys() == {(epoch, number) for number in range(1, 401)}

    simulated(tmp_path, play)
