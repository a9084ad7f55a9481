"""Restores on a server whose clock and commits the test moves: limits, and what is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.backup.restored_parts import RestoredParts
from eyot_store.errors import StoreError
from eyot_wire.archive.seqset import SeqSet
from eyot_wire.archive.values import ArchivedMessage, GonePart, MessagesPart, StreamPart
from support.backup_fixture import (
    ask,
    begin,
    filled,
    nothing_is_left,
    random_payloads,
    remove,
    restarted,
    restore,
    send,
    take,
)
from support.destinations import Recorder
from support.js_consumers import ConsumerWorld
from support.schemas import check_answer


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    return filled(tmp_path)


def test_a_client_that_goes_away_leaves_nothing(world: ConsumerWorld) -> None:
    answer, data = take(world)
    remove(world)
    begun = begin(world, answer)
    assert ask(world, begun["deliver_subject"], data[: len(data) - 100]) == b""
    world.advance(4.9)
    assert world.jsa.restores
    assert (
        world.request("STREAM.CREATE.S", {"name": "S"})["error"]["description"]
        == "a stream of this name is being restored"
    )
    world.advance(0.2)
    nothing_is_left(world)
    assert "error" not in restore(world, answer, data)


@pytest.mark.parametrize("sent", [0.3, 0.95])
def test_a_crash_in_the_midst_leaves_nothing(world: ConsumerWorld, sent: float) -> None:
    random_payloads(world)
    answer, data = take(world)
    remove(world)
    begun = begin(world, answer)
    assert ask(world, begun["deliver_subject"], data[: int(len(data) * sent)]) == b""
    world = restarted(world, crash=True)
    nothing_is_left(world)
    world = restarted(world)
    nothing_is_left(world)
    assert "error" not in restore(world, answer, data)


def test_it_takes_room_while_it_comes(tmp_path: Path) -> None:
    source = ConsumerWorld(tmp_path / "source")
    source.create()
    source.fill(100, size=1000)
    answer, data = take(source)
    limits = AccountJetStreamOptions(file_max=60_000)
    world = ConsumerWorld(tmp_path / "target", limits=limits)
    refused = restore(world, answer, data)
    assert refused["error"]["err_code"] == 10047
    nothing_is_left(world)
    # What fits is taken, and counted while it is on its way.
    roomy = ConsumerWorld(tmp_path / "roomy", limits=AccountJetStreamOptions(file_max=150_000))
    begun = begin(roomy, answer)
    assert ask(roomy, begun["deliver_subject"], data) == b""
    for _ in range(10):
        roomy.advance(0)
    assert roomy.request("INFO")["storage"] == answer["state"]["bytes"]
    assert "error" not in msgspec.json.decode(ask(roomy, begun["deliver_subject"], b"") or b"")


def test_limits_of_the_account_are_looked_at_first(tmp_path: Path) -> None:
    source = ConsumerWorld(tmp_path / "source")
    source.create()
    answer, _ = take(source)
    world = ConsumerWorld(tmp_path / "target", limits=AccountJetStreamOptions(streams_max=1, file_max=10_000))
    assert begin(world, answer, "T", name="T", subjects=["t"], max_bytes=20_000)["error"]["err_code"] == 10047
    assert "error" not in begin(world, answer)
    assert begin(world, answer)["error"]["err_code"] == 10130
    assert begin(world, answer, "T", name="T", subjects=["t"])["error"]["err_code"] == 10027


def test_the_name_can_be_taken_meanwhile_only_by_its_subjects(world: ConsumerWorld) -> None:
    """Another stream may have taken the subjects when the restore is complete."""
    answer, data = take(world)
    remove(world)
    begun = begin(world, answer)
    world.create("OTHER", subjects=["s.>"])
    assert send(world, begun["deliver_subject"], data)["error"]["err_code"] == 10065
    nothing_is_left(world)


def test_a_consumer_that_may_not_be_refuses_the_whole(world: ConsumerWorld) -> None:
    world.add("C", ack_policy="explicit", filter_subject="s.x")
    answer, data = take(world)
    remove(world)
    refused = restore(world, answer, data, max_consumers=0, consumer_limits={"max_ack_pending": 5})
    assert refused["error"]["err_code"] == 10062
    assert refused["error"]["description"].startswith('restore failed: error restoring consumer ["C"]: ')
    nothing_is_left(world)


def test_a_client_that_runs_ahead_is_given_up(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.backup.restore.WAITING_MAX", 10_000)
    answer, _ = take(world)
    remove(world)
    begun = begin(world, answer)
    for _ in range(3):
        reply = world.publish(begun["deliver_subject"].encode(), bytes(5000))
    world.commit()
    said = [msgspec.json.decode(got.payload) for got in world.inbox.got if b"faster" in got.payload]
    assert said[0]["error"]["description"] == "restore failed: chunks came faster than they were answered"
    assert reply
    nothing_is_left(world)


def test_an_index_that_says_far_more_is_gone_than_ever_came(world: ConsumerWorld) -> None:
    """Ranges and sets are looked through by what is there, not by what they stand for."""
    parts = RestoredParts(world.jsa, world.stream().config)
    remove(world)
    parts.waiting.append(StreamPart(b"", 1))
    parts.waiting.append(MessagesPart([ArchivedMessage(seq, 1, b"s.x", b"", b"") for seq in (1, 5, 1 << 40, 1 << 61)]))
    many = SeqSet(dict.fromkeys(range(0, 1 << 41, 1 << 30), (1 << 2048) - 1))
    parts.waiting.append(GonePart((7,), [(2, 1 << 39)], [(1, 1 << 60, many)]))
    while parts.waiting:
        parts.store_some()
        world.commit()
    log = parts.restoring.log
    assert [message.seq for message in log.read(1, max_messages=10, max_bytes=1000).messages] == [1 << 61]
    parts.discard()
    world.commit()
    nothing_is_left(world)


def test_a_chunk_is_answered_before_it_is_stored_unless_much_waits(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client need not wait for what its chunk brings about; it may only not run far ahead."""
    monkeypatch.setattr("eyot_daemon.jetstream.backup.restore.ANSWERED_MAX", 3000)
    answer, data = take(world)
    remove(world)
    begun = begin(world, answer)
    [session] = world.jsa.restores.values()
    session._working = True  # the first chunk takes its time
    replies = [world.publish(begun["deliver_subject"].encode(), data[at : at + 1000]) for at in range(0, 5000, 1000)]
    world.commit()
    assert [world.answer(reply) for reply in replies] == [b"", b"", None, None, None]
    session._working = False
    session._advance()
    for _ in range(20):
        world.advance(0)
    assert [world.answer(reply) for reply in replies] == [b""] * 5
    assert "error" not in send(world, begun["deliver_subject"], data[5000:])


def test_what_comes_behind_the_end_of_the_archive_is_taken_and_dropped(world: ConsumerWorld) -> None:
    answer, data = take(world)
    remove(world)
    assert "error" not in restore(world, answer, data + bytes(5000))


def test_a_store_that_cannot_take_it_says_so_at_the_next_chunk(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_payloads(world)
    answer, data = take(world)
    remove(world)
    begun = begin(world, answer)
    monkeypatch.setattr(world.store, "submit", refusing(world.store.submit))
    said = send(world, begun["deliver_subject"], data, chunk=20_000)
    monkeypatch.undo()
    assert said["error"]["err_code"] == 10047
    nothing_is_left(world)


def refusing(submit: Any) -> Any:
    """A store that is full for everything but deletions."""

    def full(txn: Any, on_done: Any = None) -> None:
        if any(part.added for part in txn.parts.values()):
            txn.refuse(StoreError("full", "no space left"))
        submit(txn, on_done)

    return full


def test_advisories(world: ConsumerWorld) -> None:
    heard = Recorder()
    world.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.>", heard)
    answer, data = take(world)
    remove(world)
    restore(world, answer, data)
    seen = {
        msgspec.json.decode(got.payload)["type"].rpartition(".")[2]: msgspec.json.decode(got.payload)
        for got in heard.got
    }
    assert list(seen) == ["snapshot_create", "snapshot_complete", "stream_action", "restore_create", "restore_complete"]
    for kind in ("snapshot_complete", "restore_create", "restore_complete"):
        check_answer(seen[kind])
    # The schema of this one asks for members that no nats-server has sent since 2.2; it has the state instead.
    assert seen["snapshot_create"]["state"] == answer["state"]
    assert seen["restore_complete"]["bytes"] == len(data)
