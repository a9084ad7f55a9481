"""What left a stream before a copy had confirmed it is counted by reason and named, and survives restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from eyot_wire.status import SyncStatus
from support.js_consumers import Box, ConsumerWorld

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


def asking(world: ConsumerWorld, deliver: str, after: int = 0, **config: Any) -> Box:
    box = world.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    world.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start, **config})
    world.commit()
    return box


def confirm(world: ConsumerWorld, box: Box) -> None:
    world.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        world.account.publish(got.reply, origin=world.client)
    world.commit()


def status(world: ConsumerWorld) -> SyncStatus:
    (found,) = downstreams_of(world.stream("S")).statuses()
    return found


def lost(world: ConsumerWorld) -> list[tuple[str, int, list[str]]]:
    return [(each.reason, each.messages, each.sequences) for each in status(world).lost]


def copied(path: Path, **config: Any) -> ConsumerWorld:
    """A copy has confirmed 3 of 3 messages, and its link is down."""
    world = ConsumerWorld(path)
    world.create(**config)
    box = asking(world, "$JS.S.first")
    for number in range(3):
        world.publish(b"s.before%d" % number)
        world.commit()
    confirm(world, box)
    assert status(world).confirmed_seq == 3
    world.leave(box)
    world.commit()
    return world


def fill(world: ConsumerWorld, count: int) -> None:
    for number in range(count):
        world.publish(b"s.%d" % (number % 2), b"x" * 100)
    world.commit()


def _limits(world: ConsumerWorld) -> None:
    fill(world, 7)


def _update(world: ConsumerWorld) -> None:
    fill(world, 7)
    world.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 2})


def _age(world: ConsumerWorld) -> None:
    fill(world, 5)
    world.advance(11.0, 1.0)
    fill(world, 2)


def _ttl(world: ConsumerWorld) -> None:
    for _ in range(5):
        world.publish(b"s.x", header={"Nats-TTL": "1s"})
    fill(world, 2)
    world.advance(3.0, 0.5)


def _purge(world: ConsumerWorld) -> None:
    fill(world, 7)
    world.request("STREAM.PURGE.S", {"seq": 9})


def _purge_all(world: ConsumerWorld) -> None:
    fill(world, 5)
    world.request("STREAM.PURGE.S")
    fill(world, 2)


def _purge_subject(world: ConsumerWorld) -> None:
    for number in range(7):
        world.publish(b"s.z" if number < 5 else b"s.y")
    world.commit()
    world.request("STREAM.PURGE.S", {"filter": "s.z"})


def _delete(world: ConsumerWorld) -> None:
    fill(world, 7)
    for seq in range(4, 9):
        world.request("STREAM.MSG.DELETE.S", {"seq": seq})


def _rollup(world: ConsumerWorld) -> None:
    fill(world, 5)
    world.publish(b"s.x", header={"Nats-Rollup": "all"})
    fill(world, 1)


WAYS: dict[str, tuple[dict[str, Any], Callable[[ConsumerWorld], None], str]] = {
    "max_msgs": ({"max_msgs": 2}, _limits, "max_msgs"),
    "max_bytes": ({"max_bytes": 300}, _limits, "max_bytes"),
    "per subject": ({"max_msgs_per_subject": 1}, _limits, "max_msgs_per_subject"),
    "lowered limit": ({}, _update, "max_msgs"),
    "max_age": ({"max_age": 10_000_000_000}, _age, "max_age"),
    "max_age, each by itself": ({"max_age": 10_000_000_000, "allow_msg_ttl": True}, _age, "max_age"),
    "ttl": ({"allow_msg_ttl": True}, _ttl, "ttl"),
    "purge": ({}, _purge, "purge"),
    "purge of all": ({}, _purge_all, "purge"),
    "purge of a subject": ({}, _purge_subject, "purge"),
    "delete": ({}, _delete, "deleted"),
    "rollup": ({"allow_rollup_hdrs": True}, _rollup, "rollup"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_goes_while_the_link_is_down_is_counted_and_named(tmp_path: Path, way: str) -> None:
    config, happens, reason = WAYS[way]
    world = copied(tmp_path, **config)
    happens(world)
    expected = [(reason, 5, ["4-8"])]
    assert lost(world) == expected
    assert (status(world).never_arrived, status(world).backlog) == (5, 2)
    world = world.restart()  # type: ignore[assignment]
    assert lost(world) == expected
    box = asking(world, "$JS.S.again", 3)
    assert box.seqs == [9, 10]
    confirm(world, box)
    assert (status(world).confirmed_seq, status(world).backlog, lost(world)) == (10, 0, expected)


def test_what_is_not_confirmed_but_was_sent_is_known_when_it_asks_again(tmp_path: Path) -> None:
    world = copied(tmp_path, max_msgs=2)
    box = asking(world, "$JS.S.second", 3)
    for _ in range(4):
        fill(world, 1)
    assert box.seqs == [4, 5, 6, 7]
    world.leave(box)
    fill(world, 2)  # 4 to 7 are gone: sent, not confirmed
    assert lost(world) == []
    assert status(world).backlog == 6
    world = world.restart()  # type: ignore[assignment]
    assert status(world).backlog == 6
    asking(world, "$JS.S.third", 6)  # of those 7 was lost on its way
    assert lost(world) == [("max_msgs", 1, ["7"])]
    assert status(world).backlog == 2


def test_what_is_confirmed_after_it_has_gone_arrived(tmp_path: Path) -> None:
    world = copied(tmp_path, max_msgs_per_subject=1)
    box = asking(world, "$JS.S.second", 3)
    for _ in range(5):
        world.publish(b"s.same")
        world.commit()
    assert len(box.seqs) == 5
    assert status(world).backlog > 1
    confirm(world, box)
    assert (lost(world), status(world).backlog, status(world).confirmed_seq) == ([], 0, 8)


def test_a_removal_that_fails_is_not_counted(tmp_path: Path) -> None:
    world = copied(tmp_path)
    fill(world, 3)
    world.publish(b"$JS.API.STREAM.PURGE.S")
    world.broker.flush()
    world = world.crash()  # type: ignore[assignment]
    assert (lost(world), status(world).backlog) == ([], 3)


def test_what_its_filter_does_not_take_is_not_lost_to_it(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(max_msgs=2)
    box = asking(world, "$JS.S.first", filter_subject="s.0")
    fill(world, 2)
    confirm(world, box)
    world.leave(box)
    fill(world, 6)  # 3 to 8, every other on s.0
    assert lost(world) == [("max_msgs", 2, ["3", "5"])]
    world.request("STREAM.PURGE.S")
    assert lost(world) == [("max_msgs", 2, ["3", "5"]), ("purge", 1, ["7-8"])]


def test_what_a_consumer_takes_out_of_a_work_queue_is_not_lost(tmp_path: Path) -> None:
    world = copied(tmp_path, retention="workqueue")
    world.add("W", ack_policy="explicit", deliver_subject="take")
    box = world.listen(b"take")
    fill(world, 2)
    world.advance(0.5, 0.1)
    for got in box.messages:
        world.account.publish(got.reply, payload=b"+ACK", origin=world.client)
    world.commit()
    assert world.request("STREAM.INFO.S")["state"]["messages"] == 0
    assert lost(world) == []


def test_a_copy_of_an_earlier_life_of_the_stream_does_not_get_what_was_stored_below(tmp_path: Path) -> None:
    """The device was set up anew and has stored more than its predecessor had: the hub asks for what comes after 500."""
    world = ConsumerWorld(tmp_path)
    world.create()
    fill(world, 7)
    box = asking(world, "$JS.S.hub", 5)
    assert box.seqs == [6, 7]
    confirm(world, box)
    found = status(world)
    assert (found.confirmed_seq, found.backlog) == (7, 5)
    assert "up to 5 of an earlier S" in (found.error or "")
    world.request("STREAM.PURGE.S", {"seq": 3})
    assert (status(world).backlog, lost(world)) == (3, [("purge", 2, ["1-2"])])


@pytest.mark.parametrize("way", ["cut", "power cut", "two power cuts"])
def test_nor_one_that_was_set_back_and_has_grown_past_it(tmp_path: Path, way: str) -> None:
    """Its record says 3, and the hub asks for what comes after 5, of which it was never sent any."""
    world = copied(tmp_path)
    if way != "cut":
        world.leave(asking(world, "$JS.S.second", 3)) if way == "two power cuts" else asking(world, "$JS.S.second", 3)
        world = world.crash()  # type: ignore[assignment]
        world.commit()
    fill(world, 4)
    if way == "two power cuts":
        world = world.crash()  # type: ignore[assignment]
    box = asking(world, "$JS.S.hub", 5)
    assert box.seqs == [6, 7]
    confirm(world, box)
    found = status(world)
    assert (found.confirmed_seq, found.backlog) == (7, 2)
    assert "the 2 messages" in (found.error or "")


def test_what_was_sent_and_not_confirmed_before_a_power_cut_is_believed(tmp_path: Path) -> None:
    world = copied(tmp_path)
    box = asking(world, "$JS.S.second", 3)
    fill(world, 4)
    assert box.seqs == [4, 5, 6, 7]
    world = world.crash()  # type: ignore[assignment]
    box = asking(world, "$JS.S.third", 6)
    assert status(world).error is None
    confirm(world, box)
    assert (status(world).backlog, status(world).error) == (0, None)


def test_nothing_is_certain_of_a_copy_that_is_linked_and_does_not_read(tmp_path: Path) -> None:
    world = copied(tmp_path)
    assert status(world).linked
    assert status(world).uncertain
    box = asking(world, "$JS.S.second", 3)
    assert not status(world).uncertain
    world.leave(box)
    assert status(world).uncertain


def test_nothing_is_certain_of_a_copy_that_takes_back_what_it_confirmed(tmp_path: Path) -> None:
    """A stream of nats-server before 2.14 that is full and discards new messages confirms, and asks for the same again and again."""
    world = copied(tmp_path)
    fill(world, 4)
    for number in range(3):
        box = asking(world, f"$JS.S.full{number}", 3)
        confirm(world, box)
        assert (status(world).confirmed_seq, status(world).uncertain) == (7, number > 0)
        world.leave(box)
    box = asking(world, "$JS.S.room", 7)
    world.advance(11.0, 1.0)
    assert not status(world).uncertain


def test_a_copy_that_says_that_it_lacks_something_has_not_confirmed_it(tmp_path: Path) -> None:
    """nats-server from 2.14 on answers flow control also for what its full stream did not take, and says where it stands."""
    world = copied(tmp_path)
    box = asking(world, "$JS.S.full", 3)
    fill(world, 4)
    world.advance(1.5, 0.5)
    (asked,) = [got for got in box.got if got.reply.startswith(b"$JS.FC.")]
    world.account.publish(
        asked.reply, header=b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 5\r\n\r\n", origin=world.client
    )
    world.commit()
    assert (status(world).confirmed_seq, status(world).backlog) == (3, 4)


def test_what_it_does_not_take_is_not_awaited_of_a_copy_that_says_how_far_it_is(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create()
    box = asking(world, "$JS.S.some", filter_subject="s.0")
    fill(world, 4)  # 1 and 3 are for it
    world.advance(1.5, 0.5)
    (asked,) = [got for got in box.got if got.reply.startswith(b"$JS.FC.")]
    world.account.publish(
        asked.reply, header=b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n\r\n", origin=world.client
    )
    world.commit()
    assert (status(world).backlog, status(world).unmatched) == (0, 2)


def test_what_somebody_has_seen_to_is_not_told_any_more(tmp_path: Path) -> None:
    """Also of a copy that reads at the moment, and of one that began where its configuration says."""
    world = copied(tmp_path, max_msgs=2)
    fill(world, 5)
    box = asking(world, "$JS.S.again", 3)
    confirm(world, box)
    assert status(world).never_arrived == 3
    answer = world.request("STREAM.EYOT_FORGET.S", {"server": "this server", "lost": True})
    assert (answer["forgotten"], status(world).never_arrived, status(world).confirmed_seq) == (1, 0, 8)
    world = world.restart()  # type: ignore[assignment]
    assert (status(world).never_arrived, status(world).confirmed_seq) == (0, 8)
    fill(world, 4)
    assert status(world).never_arrived == 2


def test_a_copy_that_was_told_to_begin_later_can_be_said_to_be_right(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create()
    fill(world, 7)
    box = asking(world, "$JS.S.hub", 5)
    confirm(world, box)
    assert status(world).backlog == 5
    world.request("STREAM.EYOT_FORGET.S", {"server": "this server", "lost": True})
    assert (status(world).backlog, status(world).error) == (0, None)
    world.leave(box)
    box = asking(world, "$JS.S.again", 7)
    fill(world, 1)
    confirm(world, box)
    assert (status(world).backlog, status(world).error, status(world).confirmed_seq) == (0, None, 8)
    world.request("STREAM.PURGE.S")
    assert status(world).never_arrived == 0
