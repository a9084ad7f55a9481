"""What is published and not on flash yet: bounded, refused with 10167 beyond, and publishers are asked to wait before that."""

import json
from pathlib import Path
from typing import Any

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.ingest.limiter import MSGS_MAX, TOO_MANY_REQUESTS
from eyot_daemon.jetstream.status import stream_status
from eyot_store import StoreOptions
from eyot_wire.frames import Published
from support.js_fixture import World


def tight(path: Path, msgs: int = 0, size: int = 0, **store: Any) -> World:
    options = JetStreamOptions(buffered_msgs_max=msgs, buffered_bytes_max=size)
    world = World(path, options=options, store_options=StoreOptions(inline=True, flush=False, **store))
    world.create()
    assert world.broker.take_gate() is None
    return world


def outcomes(world: World, replies: list[bytes]) -> list[int]:
    """The sequence of each that was stored, minus the error's code of each that was not."""
    answers = [json.loads(world.answer(reply) or b"{}") for reply in replies]
    return [-answer["error"]["err_code"] if "error" in answer else answer["seq"] for answer in answers]


def test_no_more_messages_than_may_be_buffered(tmp_path: Path) -> None:
    world = tight(tmp_path, msgs=5)
    replies = [world.publish(b"s.a", b"%d" % number) for number in range(3)]
    world.broker.flush()
    replies += [world.publish(b"s.a", b"%d" % number) for number in range(3, 8)]
    world.publish(b"s.a", b"nobody asks")
    world.broker.flush()
    assert outcomes(world, replies[5:]) == [-10167] * 3
    world.commit()
    assert outcomes(world, replies) == [1, 2, 3, 4, 5, -10167, -10167, -10167]
    assert world.held() == [(seq, b"%d" % (seq - 1)) for seq in range(1, 6)]
    refusal = next(got for got in world.inbox.got if got.subject == replies[5])
    assert refusal.header == TOO_MANY_REQUESTS
    assert json.loads(refusal.payload)["stream"] == "S"
    assert world.stream().ingest_limiter.refused == 4
    assert world.put(b"s.a", b"again")["seq"] == 6


def test_no_more_bytes_than_may_be_buffered(tmp_path: Path) -> None:
    world = tight(tmp_path, size=1000)
    replies = [world.publish(b"s.a", bytes(size)) for size in (2000, 400, 400, 400)]
    world.broker.flush()
    late = world.publish(b"s.a", bytes(400))
    world.commit()
    assert outcomes(world, [*replies, late]) == [-10167, 1, 2, -10167, -10167]
    assert world.put(b"s.a", bytes(900))["seq"] == 3


def publish_many(world: World, count: int) -> None:
    """Without an answer, and quicker than by `publish`."""
    world.broker.mark_dirty(world.stream())
    for _ in range(count):
        world.stream().ingest_queue.add(Published(b"s.a", b"", b"", b""))


def test_without_a_bound_nothing_is_refused(tmp_path: Path) -> None:
    world = tight(tmp_path, msgs=-1, size=-1)
    publish_many(world, MSGS_MAX + 1)
    world.publish(b"s.a")
    world.commit()
    assert world.stream().log.state.last_seq == MSGS_MAX + 2


def test_nats_servers_bounds_where_none_are_set(tmp_path: Path) -> None:
    world = tight(tmp_path)
    publish_many(world, MSGS_MAX - 1)
    replies = [world.publish(b"s.a") for _ in range(2)]
    world.commit()
    assert outcomes(world, replies) == [MSGS_MAX, -10167]


def test_failed_and_refused_batches_give_their_room_back(tmp_path: Path) -> None:
    world = tight(tmp_path, msgs=4, map_size=1 << 20, map_size_max=1 << 20, map_reserve=256 << 10)
    too_much = [world.publish(b"s.a", bytes(900_000)) for _ in range(4)]
    world.commit()
    assert outcomes(world, too_much) == [-10077] * 4
    replies = [world.publish(b"s.a", b"small") for _ in range(4)]
    world.commit()
    assert outcomes(world, replies) == [1, 2, 3, 4]


def test_publishers_wait_from_half_of_it_on(tmp_path: Path) -> None:
    world = tight(tmp_path, msgs=8)
    for _ in range(4):
        world.publish(b"s.a")
    world.broker.flush()
    assert world.broker.take_gate() is None
    world.publish(b"s.a")
    world.broker.flush()
    gate = world.broker.take_gate()
    assert gate is world.stream().ingest_limiter.gate
    assert gate.shut
    let_in: list[bool] = []
    gate.wait(lambda: let_in.append(gate.shut), 10.0)
    world.store.commit_now()
    assert let_in == [False]


def test_publishers_wait_while_the_store_is_congested(tmp_path: Path) -> None:
    world = tight(tmp_path, backlog_bytes_soft=10_000)
    world.create("T")
    world.publish(b"s.a", bytes(11_000))
    world.broker.flush()
    gate = world.broker.take_gate()
    assert gate is world.js.store_gate
    let_in: list[bool] = []
    for _ in range(2):
        gate.wait(lambda: let_in.append(world.store.congested), 10.0)
    world.publish(b"t.a")
    world.broker.flush()
    assert world.broker.take_gate() is gate, "another stream of a congested store"
    world.request("STREAM.INFO.S")  # a turn that publishes nothing to a stream
    assert let_in == [False, False]
    gate.wait(lambda: let_in.append(True), 10.0)
    world.store.commit_now()
    assert world.js.store_gate.streams_held == 3


def test_a_turn_that_publishes_nothing_waits_nowhere(tmp_path: Path) -> None:
    world = tight(tmp_path, backlog_bytes_soft=10_000)
    world.publish(b"s.a", bytes(11_000))
    world.broker.flush()
    assert world.broker.take_gate() is not None
    world.publish(b"elsewhere", bytes(11_000))
    world.publish(b"$JS.API.STREAM.INFO.S")
    world.broker.flush()
    assert world.broker.take_gate() is None


def test_what_is_refused_is_counted(tmp_path: Path) -> None:
    world = tight(tmp_path, msgs=2)
    for _ in range(5):
        world.publish(b"s.a")
    world.commit()
    assert stream_status(world.stream()).refused == 3
    world.request("STREAM.DELETE.S")
    assert world.js.store_gate.streams_refused == 3


def test_the_hard_bound_of_the_store_is_counted_as_well(tmp_path: Path) -> None:
    world = tight(tmp_path, backlog_bytes_hard=10_000)
    world.publish(b"s.a", bytes(20_000))
    world.broker.flush()
    reply = world.publish(b"s.a", b"x")
    world.commit()
    assert outcomes(world, [reply]) == [-10167]
    assert next(got for got in world.inbox.got if got.subject == reply).header == TOO_MANY_REQUESTS
    assert world.js.store_gate.streams_refused == world.stream().ingest_limiter.refused == 1


def test_atomic_batches_count_as_they_are_stored(tmp_path: Path) -> None:
    world = World(tmp_path, options=JetStreamOptions(buffered_msgs_max=4))
    world.create(allow_atomic=True)
    for number in (1, 2):
        world.publish(b"s.a", b"x", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)})
        world.broker.flush()
    assert world.broker.take_gate() is None
    commit = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    world.publish(b"s.a", b"x", commit)
    world.broker.flush()
    assert world.broker.take_gate() is world.stream().ingest_limiter.gate
    world.commit()
    assert len(world.held()) == 3
    assert not world.stream().ingest_limiter.gate.shut
