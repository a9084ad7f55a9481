"""What is published and not on flash yet: bounded, refused with 10167 beyond, and publishers are asked to wait before that."""

import json
from pathlib import Path
from typing import Any

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.ingest.limiter import MSGS_MAX, TOO_MANY_REQUESTS
from eyot_daemon.jetstream.status import stream_status
from eyot_store import StoreOptions
from eyot_wire.frames import Published
from support.jetstream.fixture import Fixture


def tight(path: Path, msgs: int = 0, size: int = 0, **store: Any) -> Fixture:
    options = JetStreamOptions(buffered_msgs_max=msgs, buffered_bytes_max=size)
    fixture = Fixture(path, options=options, store_options=StoreOptions(inline=True, flush=False, **store))
    fixture.create()
    assert fixture.broker.take_gate() is None
    return fixture


def outcomes(fixture: Fixture, replies: list[bytes]) -> list[int]:
    """The sequence of each that was stored, minus the error's code of each that was not."""
    answers = [json.loads(fixture.answer(reply) or b"{}") for reply in replies]
    return [-answer["error"]["err_code"] if "error" in answer else answer["seq"] for answer in answers]


def test_no_more_messages_than_may_be_buffered(tmp_path: Path) -> None:
    fixture = tight(tmp_path, msgs=5)
    replies = [fixture.publish(b"s.a", b"%d" % number) for number in range(3)]
    fixture.broker.flush()
    replies += [fixture.publish(b"s.a", b"%d" % number) for number in range(3, 8)]
    fixture.publish(b"s.a", b"nobody asks")
    fixture.broker.flush()
    assert outcomes(fixture, replies[5:]) == [-10167] * 3
    fixture.commit()
    assert outcomes(fixture, replies) == [1, 2, 3, 4, 5, -10167, -10167, -10167]
    assert fixture.held() == [(seq, b"%d" % (seq - 1)) for seq in range(1, 6)]
    refusal = next(got for got in fixture.inbox.got if got.subject == replies[5])
    assert refusal.header == TOO_MANY_REQUESTS
    assert json.loads(refusal.payload)["stream"] == "S"
    assert fixture.stream().ingest_limiter.refused == 4
    assert fixture.put(b"s.a", b"again")["seq"] == 6


def test_no_more_bytes_than_may_be_buffered(tmp_path: Path) -> None:
    fixture = tight(tmp_path, size=1000)
    replies = [fixture.publish(b"s.a", bytes(size)) for size in (2000, 400, 400, 400)]
    fixture.broker.flush()
    late = fixture.publish(b"s.a", bytes(400))
    fixture.commit()
    assert outcomes(fixture, [*replies, late]) == [-10167, 1, 2, -10167, -10167]
    assert fixture.put(b"s.a", bytes(900))["seq"] == 3


def publish_many(fixture: Fixture, count: int) -> None:
    """Without an answer, and quicker than by `publish`."""
    fixture.broker.mark_dirty(fixture.stream())
    for _ in range(count):
        fixture.stream().ingest_queue.add(Published(b"s.a", b"", b"", b""))


def test_without_a_bound_nothing_is_refused(tmp_path: Path) -> None:
    fixture = tight(tmp_path, msgs=-1, size=-1)
    publish_many(fixture, MSGS_MAX + 1)
    fixture.publish(b"s.a")
    fixture.commit()
    assert fixture.stream().log.state.last_seq == MSGS_MAX + 2


def test_nats_servers_bounds_where_none_are_set(tmp_path: Path) -> None:
    fixture = tight(tmp_path)
    publish_many(fixture, MSGS_MAX - 1)
    replies = [fixture.publish(b"s.a") for _ in range(2)]
    fixture.commit()
    assert outcomes(fixture, replies) == [MSGS_MAX, -10167]


def test_failed_and_refused_batches_give_their_room_back(tmp_path: Path) -> None:
    fixture = tight(tmp_path, msgs=4, map_size=1 << 20, map_size_max=1 << 20, map_reserve=256 << 10)
    too_much = [fixture.publish(b"s.a", bytes(900_000)) for _ in range(4)]
    fixture.commit()
    assert outcomes(fixture, too_much) == [-10077] * 4
    replies = [fixture.publish(b"s.a", b"small") for _ in range(4)]
    fixture.commit()
    assert outcomes(fixture, replies) == [1, 2, 3, 4]


def test_publishers_wait_from_half_of_it_on(tmp_path: Path) -> None:
    fixture = tight(tmp_path, msgs=8)
    for _ in range(4):
        fixture.publish(b"s.a")
    fixture.broker.flush()
    assert fixture.broker.take_gate() is None
    fixture.publish(b"s.a")
    fixture.broker.flush()
    gate = fixture.broker.take_gate()
    assert gate is fixture.stream().ingest_limiter.gate
    assert gate.is_shut
    let_in: list[bool] = []
    gate.wait(lambda: let_in.append(gate.is_shut), 10.0)
    fixture.store.commit_now()
    assert let_in == [False]


def test_publishers_wait_while_the_store_is_congested(tmp_path: Path) -> None:
    fixture = tight(tmp_path, backlog_bytes_soft=10_000)
    fixture.create("T")
    fixture.publish(b"s.a", bytes(11_000))
    fixture.broker.flush()
    gate = fixture.broker.take_gate()
    assert gate is fixture.js.server.store_gate
    let_in: list[bool] = []
    for _ in range(2):
        gate.wait(lambda: let_in.append(fixture.store.congested), 10.0)
    fixture.publish(b"t.a")
    fixture.broker.flush()
    assert fixture.broker.take_gate() is gate, "another stream of a congested store"
    fixture.request("STREAM.INFO.S")  # a turn that publishes nothing to a stream
    assert let_in == [False, False]
    gate.wait(lambda: let_in.append(True), 10.0)
    fixture.store.commit_now()
    assert fixture.js.server.store_gate.streams_held == 3


def test_a_turn_that_publishes_nothing_waits_nowhere(tmp_path: Path) -> None:
    fixture = tight(tmp_path, backlog_bytes_soft=10_000)
    fixture.publish(b"s.a", bytes(11_000))
    fixture.broker.flush()
    assert fixture.broker.take_gate() is not None
    fixture.publish(b"elsewhere", bytes(11_000))
    fixture.publish(b"$JS.API.STREAM.INFO.S")
    fixture.broker.flush()
    assert fixture.broker.take_gate() is None


def test_what_is_refused_is_counted(tmp_path: Path) -> None:
    fixture = tight(tmp_path, msgs=2)
    for _ in range(5):
        fixture.publish(b"s.a")
    fixture.commit()
    assert stream_status(fixture.stream()).refused == 3
    fixture.request("STREAM.DELETE.S")
    assert fixture.js.server.store_gate.streams_refused == 3


def test_the_hard_bound_of_the_store_is_counted_as_well(tmp_path: Path) -> None:
    fixture = tight(tmp_path, backlog_bytes_hard=10_000)
    fixture.publish(b"s.a", bytes(20_000))
    fixture.broker.flush()
    reply = fixture.publish(b"s.a", b"x")
    fixture.commit()
    assert outcomes(fixture, [reply]) == [-10167]
    assert next(got for got in fixture.inbox.got if got.subject == reply).header == TOO_MANY_REQUESTS
    assert fixture.js.server.store_gate.streams_refused == fixture.stream().ingest_limiter.refused == 1


def test_atomic_batches_count_as_they_are_stored(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, options=JetStreamOptions(buffered_msgs_max=4))
    fixture.create(allow_atomic=True)
    for number in (1, 2):
        fixture.publish(b"s.a", b"x", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)})
        fixture.broker.flush()
    assert fixture.broker.take_gate() is None
    commit = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    fixture.publish(b"s.a", b"x", commit)
    fixture.broker.flush()
    assert fixture.broker.take_gate() is fixture.stream().ingest_limiter.gate
    fixture.commit()
    assert len(fixture.held()) == 3
    assert not fixture.stream().ingest_limiter.gate.is_shut
