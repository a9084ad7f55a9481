"""Backups on a server whose clock and commits the test moves: there and back, windows, patience."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_store import StoreOptions
from eyot_store.records.store_cipher import StoreKeys
from support.clients.destinations import Recorder
from support.jetstream.backup_fixture import (
    DELIVER,
    answer_chunks,
    ask,
    begin,
    filled,
    nothing_is_left,
    random_payloads,
    receiver,
    remove,
    restarted,
    restore,
    take,
)
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.fixture import OPTIONS


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    return filled(tmp_path)


# -- there and back ----------------------------------------------------------------------------------------------------


def test_a_stream_and_its_consumers_come_back_and_stay(fixture: ConsumerFixture) -> None:
    fixture.add("C", ack_policy="explicit", ack_wait=10**12)
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 200})
    box = Recorder()
    fixture.account.subscribe(b"pulled", box)
    fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"pulled", payload=b"5", origin=fixture.client)
    fixture.commit()
    for got in box.got[:2]:
        fixture.account.publish(got.reply, payload=b"+ACK", origin=fixture.client)
    fixture.commit()
    before, info, held = fixture.request("STREAM.INFO.S"), fixture.info(), fixture.held()
    answer, data = take(fixture)
    remove(fixture)
    restored = restore(fixture, answer, data)
    assert restored["created"] == before["created"]
    for _ in range(2):
        after = fixture.request("STREAM.INFO.S")
        assert (after["state"], after["config"]) == (before["state"], before["config"])
        assert fixture.held() == held
        seen = fixture.info()
        for member in ("delivered", "ack_floor", "num_ack_pending", "num_pending", "created"):
            assert strip(seen[member]) == strip(info[member])
        fixture = restarted(fixture)
    assert fixture.put(b"s.next")["seq"] == 201


def strip(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "last_active"} if isinstance(value, dict) else value


def test_a_message_published_to_a_wildcard_comes_back(fixture: ConsumerFixture) -> None:
    for subject in (b"s.>", b"s.*", b"s.*.b"):
        fixture.put(subject)
    held = fixture.held()
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    assert fixture.held() == held
    assert fixture.held() == restarted(fixture).held()


def test_duplicates_are_known_after_a_restore(fixture: ConsumerFixture) -> None:
    fixture.put(b"s.id", b"once", {"Nats-Msg-Id": "1"})
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    assert fixture.put(b"s.id", b"twice", {"Nats-Msg-Id": "1"})["duplicate"]


def test_where_there_are_no_ids_nothing_is_looked_for_at_a_start(fixture: ConsumerFixture) -> None:
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    assert fixture.stream().ids.none_yet


def test_schedules_and_ttls_go_on(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(allow_msg_ttl=True, allow_msg_schedules=True)
    fixture.put(b"s.fades", b"x", {"Nats-TTL": "60s"})
    for subject, pattern in ((b"s.once", "@at 2023-11-14T22:23:20Z"), (b"s.often", "@every 10s")):
        said = fixture.put(
            subject, b"x", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "s.made." + subject.decode()[2:]}
        )
        assert "error" not in said, said
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    fixture = restarted(fixture)
    fixture.advance(11)
    assert fixture.stream().log.subject_count(b"s.made.often") >= 1
    assert fixture.stream().log.subject_count(b"s.fades") == 1
    for _ in range(6):
        fixture.advance(10)
    assert fixture.stream().log.subject_count(b"s.fades") == 0
    assert fixture.stream().log.subject_count(b"s.made.once") == 0
    fixture.advance(700)
    assert fixture.stream().log.subject_count(b"s.made.once") == 1


def test_limits_of_the_request_are_in_force(fixture: ConsumerFixture) -> None:
    answer, data = take(fixture)
    remove(fixture)
    assert restore(fixture, answer, data, max_msgs=10)["config"]["max_msgs"] == 10
    fixture.commit()
    assert [seq for seq, _ in fixture.held()] == list(range(191, 201))


def test_consumers_are_left_out_when_nobody_wants_them(fixture: ConsumerFixture) -> None:
    fixture.add("C", ack_policy="explicit")
    answer, data = take(fixture, no_consumers=True)
    remove(fixture)
    assert restore(fixture, answer, data)["state"]["consumer_count"] == 0


def test_consumers_in_memory_come_back_into_memory(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(storage="memory")
    fixture.fill(3)
    fixture.add("C", ack_policy="explicit", mem_storage=True)
    answer, data = take(fixture)
    remove(fixture)
    assert restore(fixture, answer, data, storage="file")["state"]["consumer_count"] == 1
    fixture.commit()
    assert fixture.stream().log.consumers() == []
    fixture = restarted(fixture)
    assert fixture.request("STREAM.INFO.S")["state"]["messages"] == 3
    assert fixture.request("CONSUMER.INFO.S.C")["error"]["err_code"] == 10014


def test_consumers_of_every_kind_come_back_as_they_were(fixture: ConsumerFixture) -> None:
    fixture.add_ephemeral(name="passing", ack_policy="none", inactive_threshold=10**12)
    fixture.add(
        "pushed", deliver_subject="to.you", ack_policy="all", filter_subjects=["s.x", "s.y"], idle_heartbeat=10**10
    )
    fixture.add("paused", pause_until="2030-01-01T00:00:00Z", ack_policy="explicit")
    fixture.add(
        "last",
        deliver_policy="last_per_subject",
        filter_subject="s.>",
        ack_policy="explicit",
        max_deliver=3,
        backoff=[10**9, 10**10],
    )
    before: dict[str, Any] = {name: fixture.info(name) for name in ("passing", "pushed", "paused", "last")}
    answer, data = take(fixture)
    remove(fixture)
    assert restore(fixture, answer, data)["state"]["consumer_count"] == 4
    for _ in range(2):
        for name, info in before.items():
            after = fixture.info(name)
            # What an idle consumer has passed over is not told; it stands at the same message.
            for member in ("config", "created", "num_pending", "num_ack_pending", "delivered", "push_bound"):
                assert strip(after.get(member)) == strip(info.get(member)), (name, member)
        fixture = restarted(fixture)
    listener = Recorder()
    fixture.account.subscribe(b"to.you", listener)
    fixture.advance(1)
    assert len(listener.got) >= 200


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("policy", ["new", "last", "last_per_subject", "all"])
def test_what_came_since_an_idle_consumer_was_created_is_not_passed_over(
    tmp_path: Path, policy: str, before: int
) -> None:
    """It began at what was the end when the backup was restored: nothing of what waited for it came."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create()

    def publish(count: int) -> None:
        for number in range(count):
            fixture.put(b"s.%d" % (number % 2), b"x")
        fixture.advance(1)

    publish(before)
    fixture.add(deliver_policy=policy, filter_subject="s.>", ack_policy="explicit")
    fixture.advance(1)
    publish(3)
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    # Both subjects have newer messages than the last ones at the consumer's creation, which come nevertheless.
    waiting = {"new": 3, "last": 3 + (before > 0), "last_per_subject": 3 + min(before, 2), "all": 3 + before}[policy]

    def whole(fixture: ConsumerFixture) -> ConsumerFixture:
        """Return it when the consumer's list is whole: on a slow machine it is in a later turn."""
        fixture.info()
        fixture.run_on()
        return fixture

    for _ in range(2):
        assert whole(fixture).info()["num_pending"] == waiting
        fixture = restarted(fixture)
    assert whole(fixture).pull(batch=20, no_wait=True).seqs == list(range(before + 4 - waiting, before + 4))


def test_an_encrypted_store_forgets_a_restore_in_the_midst(tmp_path: Path) -> None:
    source = ConsumerFixture(tmp_path / "source")
    source.create()
    source.fill(50)
    answer, data = take(source)
    options = msgspec.structs.replace(OPTIONS, keys=StoreKeys(bytes(range(32))))
    fixture = ConsumerFixture(tmp_path / "sealed", store_options=options)
    begun = begin(fixture, answer)
    assert ask(fixture, begun["deliver_subject"], data) == b""
    fixture.store.crash()
    fixture = ConsumerFixture(tmp_path / "sealed", store_options=options, clock=fixture.clock)
    nothing_is_left(fixture)
    restore(fixture, answer, data)
    assert fixture.held() == source.held()


def test_large_messages(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path, store_options=StoreOptions(inline=True, flush=False, map_size=64 << 20))
    fixture.create()
    for i in range(6):
        fixture.put(b"s.large", bytes([i]) * (3 << 20))
    held = fixture.held()
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    assert fixture.held() == held


# -- the flow of a backup ----------------------------------------------------------------------------------------------


def test_a_window_of_chunks_waits_for_answers(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    to = receiver(fixture)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 4096}
    fixture.request("STREAM.SNAPSHOT.S", asked)
    assert len(to.chunks) == 4
    assert [got.reply.split(b".")[-2:] for got in to.chunks] == [[b"1024", b"%d" % n] for n in (1, 2, 3, 4)]
    fixture.account.publish(to.chunks[0].reply, origin=fixture.client)
    fixture.commit()
    assert len(to.chunks) == 5
    answer_chunks(fixture, to)
    assert to.end == b"NATS/1.0 204\r\n\r\n"
    assert {len(got.payload) for got in to.chunks[:-1]} == {1024}
    assert not to.chunks[-1].reply
    assert not fixture.jsa.snapshots


def test_a_receiver_that_does_not_answer_is_given_up(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    to = receiver(fixture)
    heard = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S", heard)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024}
    fixture.request("STREAM.SNAPSHOT.S", asked)
    fixture.advance(4.9)
    assert to.end is None
    again = fixture.request("STREAM.SNAPSHOT.S", asked)
    assert again["error"] == {"code": 500, "err_code": 10064, "description": "snapshot failed: snapshot in progress"}
    fixture.advance(0.2)
    assert to.end == b"NATS/1.0 408 No Flow Response\r\n\r\n"
    assert msgspec.json.decode(heard.got[0].payload)["error"] == "no flow response"
    assert not fixture.jsa.snapshots


def test_a_receiver_that_goes_away_is_noticed(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    to = receiver(fixture)
    heard = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S", heard)
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    fixture.account.unsubscribe(to.sub)
    fixture.advance(0)
    assert msgspec.json.decode(heard.got[0].payload)["error"] == "no interest"
    assert not fixture.jsa.snapshots


def test_a_receiver_may_come_late(fixture: ConsumerFixture) -> None:
    answer = fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    fixture.advance(1.0)
    to = receiver(fixture)
    fixture.advance(0)
    assert to.data
    remove(fixture)
    assert "error" not in restore(fixture, answer, to.data)


@pytest.mark.parametrize("pattern", [b"backup.*", b">"])
def test_a_wildcard_inbox_is_no_receiver(fixture: ConsumerFixture, pattern: bytes) -> None:
    """Clients subscribe to `_INBOX.x.*` for all their requests: chunks wait for who listens on the subject itself."""
    inbox = Recorder()
    fixture.account.subscribe(pattern, inbox)
    answer = fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    fixture.advance(1.0)
    assert not [got for got in inbox.got if got.subject == DELIVER]
    to = receiver(fixture)
    fixture.advance(0)
    answer_chunks(fixture, to)
    assert to.end in (b"", b"NATS/1.0 204\r\n\r\n")
    remove(fixture)
    assert "error" not in restore(fixture, answer, to.data)


def test_a_backup_ends_when_its_receiver_goes_though_an_inbox_remains(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    inbox = Recorder()
    fixture.account.subscribe(b"backup.*", inbox)
    to = receiver(fixture)
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    fixture.commit()
    fixture.account.unsubscribe(to.sub)
    fixture.advance(0)
    assert inbox.got[-1].header == b"NATS/1.0 408 No Interest\r\n\r\n"
    assert not fixture.jsa.snapshots


def test_nobody_ever_comes(fixture: ConsumerFixture) -> None:
    """nats-server sends all the same after two seconds; what is small enough for the window simply ends."""
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    fixture.advance(1.9)
    assert fixture.jsa.snapshots
    fixture.advance(0.2)
    assert not fixture.jsa.snapshots


def test_a_stream_that_is_deleted_ends_its_backup(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.backup.stream_archive.SLICE_MESSAGES", 10)
    random_payloads(fixture)
    to = receiver(fixture)
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    remove(fixture)
    answer_chunks(fixture, to)
    assert to.end is not None
    if b"500" not in to.end:  # it had been read whole before
        assert to.end == b"NATS/1.0 204\r\n\r\n"
    assert not fixture.jsa.snapshots


def test_a_stream_that_is_made_anew_is_not_held_up_by_the_backup_of_the_old_one(fixture: ConsumerFixture) -> None:
    asked = {"deliver_subject": DELIVER.decode()}
    fixture.request("STREAM.SNAPSHOT.S", asked)
    remove(fixture)
    fixture.create(subjects=["s.>"])
    assert "error" not in fixture.request("STREAM.SNAPSHOT.S", asked)
    assert fixture.request("STREAM.SNAPSHOT.S", asked)["error"]["err_code"] == 10064
    fixture.advance(3)
    assert not fixture.jsa.snapshots


def test_it_holds_what_was_there_when_it_began(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    to = receiver(fixture)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024}
    answer = fixture.request("STREAM.SNAPSHOT.S", asked)
    fixture.fill(50)
    answer_chunks(fixture, to)
    remove(fixture)
    assert restore(fixture, answer, to.data)["state"]["last_seq"] == 260


def test_the_server_stops_in_the_midst(fixture: ConsumerFixture) -> None:
    random_payloads(fixture)
    answer, data = take(fixture)
    to = receiver(fixture)
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    begun = begin(fixture, {**answer, "config": {**answer["config"], "subjects": ["t.>"]}}, "T", name="T")
    fixture.publish(begun["deliver_subject"].encode(), data[:1000])
    fixture.commit()
    fixture.js.stop()
    assert to.end is not None
    assert b"500" in to.end
    fixture.store.close()
    again = ConsumerFixture(fixture.path, options=fixture.js.options, clock=fixture.clock)
    assert again.request("STREAM.NAMES")["streams"] == ["S"]


@pytest.mark.parametrize("steps", range(16))
def test_jetstream_goes_off_in_the_midst_of_the_end(fixture: ConsumerFixture, steps: int) -> None:
    """A stream whose restore was ended while its last commit was under way does not begin to live without its account."""
    random_payloads(fixture)
    answer, data = take(fixture)
    remove(fixture)
    begun = begin(fixture, answer)
    for chunk in (data, b""):
        fixture.publish(begun["deliver_subject"].encode(), chunk)
    for step in range(steps):
        if step % 2:
            fixture.store.commit_now()
        else:
            fixture.broker.flush()
            fixture.broker.timers.run_due(fixture.clock.monotonic())
    completed = "S" in fixture.jsa.streams
    fixture.jsa.stop_transfers()
    fixture.commit()
    fixture.run_on()
    assert ("S" in fixture.jsa.streams) == completed
    assert (fixture.store.stream("$G", "S") is not None) == completed
    assert any(sub.subject == b"s.>" for sub in fixture.account.subscriptions()) == completed


def test_checking_first_finds_nothing_wrong(fixture: ConsumerFixture) -> None:
    to = receiver(fixture)
    reply = fixture.publish(
        b"$JS.API.STREAM.SNAPSHOT.S", msgspec.json.encode({"deliver_subject": DELIVER.decode(), "jsck": True})
    )
    fixture.commit()
    for _ in range(10):
        fixture.advance(0)
    assert b'"error"' not in (fixture.answer(reply) or b'"error"')
    assert to.end is not None


def test_so_many_at_a_time(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.account.TRANSFERS_MAX", 1)
    answer, _ = take(fixture)
    begin(fixture, answer, "T", name="T", subjects=["t"])
    refused = fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": "x"})
    assert refused["error"]["err_code"] == 10023
