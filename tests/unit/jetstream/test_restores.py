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
from support.clients.destinations import Recorder
from support.jetstream.backup_fixture import (
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
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.schemas import check_answer


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    return filled(tmp_path)


def test_a_client_that_goes_away_leaves_nothing(fixture: ConsumerFixture) -> None:
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    assert ask(fixture, begun["deliver_subject"], data[: len(data) - 100]) == b""
    fixture.advance(4.9)
    assert fixture.jsa.restores
    assert (
        fixture.request("STREAM.CREATE.S", {"name": "S"})["error"]["description"]
        == "a stream of this name is being restored"
    )
    fixture.advance(0.2)
    nothing_is_left(fixture)
    assert "error" not in restore(fixture, answer, data)


@pytest.mark.parametrize("sent", [0.3, 0.95])
def test_a_crash_in_the_midst_leaves_nothing(fixture: ConsumerFixture, sent: float) -> None:
    random_payloads(fixture)
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    assert ask(fixture, begun["deliver_subject"], data[: int(len(data) * sent)]) == b""
    fixture = restarted(fixture, crash=True)
    nothing_is_left(fixture)
    fixture = restarted(fixture)
    nothing_is_left(fixture)
    assert "error" not in restore(fixture, answer, data)


def test_it_takes_room_while_it_comes(tmp_path: Path) -> None:
    source = ConsumerFixture(tmp_path / "source")
    source.create()
    source.fill(100, size=1000)
    answer, data = take(source)
    limits = AccountJetStreamOptions(file_max=60_000)
    fixture = ConsumerFixture(tmp_path / "target", limits=limits)
    refused = restore(fixture, answer, data)
    assert refused["error"]["err_code"] == 10047
    nothing_is_left(fixture)
    # What fits is taken, and counted while it is on its way.
    roomy = ConsumerFixture(tmp_path / "roomy", limits=AccountJetStreamOptions(file_max=150_000))
    begun = begin(roomy, answer)
    assert ask(roomy, begun["deliver_subject"], data) == b""
    for _ in range(10):
        roomy.advance(0)
    assert roomy.request("INFO")["storage"] == answer["state"]["bytes"]
    assert "error" not in msgspec.json.decode(ask(roomy, begun["deliver_subject"], b"") or b"")


def test_limits_of_the_account_are_looked_at_first(tmp_path: Path) -> None:
    source = ConsumerFixture(tmp_path / "source")
    source.create()
    answer, _ = take(source)
    fixture = ConsumerFixture(tmp_path / "target", limits=AccountJetStreamOptions(streams_max=1, file_max=10_000))
    assert begin(fixture, answer, "T", name="T", subjects=["t"], max_bytes=20_000)["error"]["err_code"] == 10047
    assert "error" not in begin(fixture, answer)
    assert begin(fixture, answer)["error"]["err_code"] == 10130
    assert begin(fixture, answer, "T", name="T", subjects=["t"])["error"]["err_code"] == 10027


def test_the_name_can_be_taken_meanwhile_only_by_its_subjects(fixture: ConsumerFixture) -> None:
    """Another stream may have taken the subjects when the restore is complete."""
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    fixture.create("OTHER", subjects=["s.>"])
    assert send(fixture, begun["deliver_subject"], data)["error"]["err_code"] == 10065
    nothing_is_left(fixture)


def test_a_consumer_that_may_not_be_refuses_the_whole(fixture: ConsumerFixture) -> None:
    fixture.add("C", ack_policy="explicit", filter_subject="s.x")
    answer, data = take(fixture)
    remove(fixture)
    refused = restore(fixture, answer, data, max_consumers=0, consumer_limits={"max_ack_pending": 5})
    assert refused["error"]["err_code"] == 10062
    assert refused["error"]["description"].startswith('restore failed: error restoring consumer ["C"]: ')
    nothing_is_left(fixture)


def test_a_client_that_runs_ahead_is_given_up(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.backup.restore.WAITING_MAX", 10_000)
    answer, _ = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    for _ in range(3):
        reply = fixture.publish(begun["deliver_subject"].encode(), bytes(5000))
    fixture.commit()
    said = [msgspec.json.decode(got.payload) for got in fixture.inbox.got if b"faster" in got.payload]
    assert said[0]["error"]["description"] == "restore failed: chunks came faster than they were answered"
    assert reply
    nothing_is_left(fixture)


def test_an_index_that_says_far_more_is_gone_than_ever_came(fixture: ConsumerFixture) -> None:
    """Ranges and sets are looked through by what is there, not by what they stand for."""
    parts = RestoredParts(fixture.jsa, fixture.stream().config)
    remove(fixture)
    parts.waiting.append(StreamPart(b"", 1))
    parts.waiting.append(MessagesPart([ArchivedMessage(seq, 1, b"s.x", b"", b"") for seq in (1, 5, 1 << 40, 1 << 61)]))
    many = SeqSet(dict.fromkeys(range(0, 1 << 41, 1 << 30), (1 << 2048) - 1))
    parts.waiting.append(GonePart((7,), [(2, 1 << 39)], [(1, 1 << 60, many)]))
    while parts.waiting:
        parts.store_some()
        fixture.commit()
    log = parts.restoring.log
    assert [message.seq for message in log.read(1, max_messages=10, max_bytes=1000).messages] == [1 << 61]
    parts.discard()
    fixture.commit()
    nothing_is_left(fixture)


def test_a_chunk_is_answered_before_it_is_stored_unless_much_waits(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client need not wait for what its chunk brings about; it may only not run far ahead."""
    monkeypatch.setattr("eyot_daemon.jetstream.backup.restore.ANSWERED_MAX", 3000)
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    [session] = fixture.jsa.restores.values()
    session._working = True  # the first chunk takes its time
    replies = [fixture.publish(begun["deliver_subject"].encode(), data[at : at + 1000]) for at in range(0, 5000, 1000)]
    fixture.commit()
    assert [fixture.answer(reply) for reply in replies] == [b"", b"", None, None, None]
    session._working = False
    session._advance()
    for _ in range(20):
        fixture.advance(0)
    assert [fixture.answer(reply) for reply in replies] == [b""] * 5
    assert "error" not in send(fixture, begun["deliver_subject"], data[5000:])


def test_what_comes_behind_the_end_of_the_archive_is_taken_and_dropped(fixture: ConsumerFixture) -> None:
    answer, data = take(fixture)
    remove(fixture)
    assert "error" not in restore(fixture, answer, data + bytes(5000))


def test_a_store_that_cannot_take_it_says_so_at_the_next_chunk(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_payloads(fixture)
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    monkeypatch.setattr(fixture.store, "submit", refusing(fixture.store.submit))
    said = send(fixture, begun["deliver_subject"], data, chunk=20_000)
    monkeypatch.undo()
    assert said["error"]["err_code"] == 10047
    nothing_is_left(fixture)


def refusing(submit: Any) -> Any:
    """A store that is full for everything but deletions."""

    def full(txn: Any, on_done: Any = None) -> None:
        if any(part.added for part in txn.parts.values()):
            txn.refuse(StoreError("full", "no space left"))
        submit(txn, on_done)

    return full


def test_advisories(fixture: ConsumerFixture) -> None:
    heard = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.>", heard)
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
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


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"allow_msg_counter": True},
        {"retention": "interest"},
        {"retention": "workqueue"},
        {"max_msgs_per_subject": 5, "discard": "new", "discard_new_per_subject": True},
        {"allow_msg_ttl": True, "subject_delete_marker_ttl": int(60e9)},
        {"allow_msg_schedules": True, "allow_atomic": True},
        {"allow_rollup_hdrs": True, "allow_direct": True, "republish": {"src": "s.x", "dest": "r.x"}},
    ],
    ids=str,
)
def test_a_sealed_stream_is_restored_whatever_it_is(tmp_path: Path, config: dict[str, Any]) -> None:
    fixture = ConsumerFixture(tmp_path)
    made = fixture.create(**config)
    assert "error" not in made, made
    fixture.add(ack_policy="explicit")
    header = {"Nats-Incr": "2"} if config.get("allow_msg_counter") else b""
    for _ in range(3):
        assert "error" not in fixture.put(b"s.x", b"", header)
    held = fixture.held()
    sealed = fixture.request("STREAM.UPDATE.S", {**made["config"], "sealed": True})
    assert "error" not in sealed, sealed
    answer, data = take(fixture)
    assert fixture.request("STREAM.DELETE.S")["success"]
    assert "error" not in restore(fixture, answer, data)
    assert fixture.held() == held
    assert fixture.request("STREAM.INFO.S")["config"]["sealed"] is True


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_interest_retention_without_consumers_keeps_what_was_there(tmp_path: Path, storage: str) -> None:
    """Whatever walks through the stream later: another limit, a restore."""
    fixture = ConsumerFixture(tmp_path)
    config = fixture.create(storage=storage)["config"]
    for subject in (b"s.x", b"s.x", b"s.y"):
        fixture.put(subject, b"kept")
    changed = fixture.request("STREAM.UPDATE.S", {**config, "retention": "interest"})
    assert "error" not in changed
    answer, data = take(fixture)
    changed = fixture.request("STREAM.UPDATE.S", {**changed["config"], "max_msgs_per_subject": 1})
    assert "error" not in changed
    assert [seq for seq, _ in fixture.held()] == [2, 3]
    assert fixture.request("STREAM.DELETE.S")["success"]
    assert "error" not in restore(fixture, answer, data)
    assert [seq for seq, _ in fixture.held()] == [1, 2, 3]


def test_a_clock_that_was_set_right_unseen_ages_nothing(tmp_path: Path) -> None:
    """It is two weeks ahead while a second stream lives, and is set right just before the restore."""
    fixture = ConsumerFixture(tmp_path)
    for name in "ST":
        fixture.create(name, max_age=60_000_000_000)
    fixture.fill(5)
    answer, data = take(fixture)
    remove(fixture)
    fixture.clock.jump(14 * 86400.0)
    fixture.put(b"t.x")  # whoever stores something looks at the clock
    fixture.clock.jump(-14 * 86400.0)
    assert "error" not in restore(fixture, answer, data)
    fixture.put(b"t.x")
    fixture.advance(5.0, 1.0)
    assert len(fixture.held()) == 5
