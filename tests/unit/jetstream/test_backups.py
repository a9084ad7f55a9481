"""Backups and restores on a server whose clock and commits the test moves: windows, patience, limits, and what is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.jetstream.restored_parts import RestoredParts
from eyot_daemon.options_accounts import AccountJetStreamOptions
from eyot_daemon.subscription import Subscription
from eyot_store import StoreOptions
from eyot_store.errors import StoreError
from eyot_store.vault import StoreKeys
from eyot_wire.archive.seqset import SeqSet
from eyot_wire.archive.values import ArchivedMessage, GonePart, MessagesPart, StreamPart
from support.destinations import Got, Recorder
from support.js_consumers import ConsumerWorld
from support.js_world import OPTIONS
from support.schemas import check_answer

DELIVER = b"backup.here"


class Receiver(Recorder):
    """Takes a backup's chunks; `answer` says how many it has taken."""

    sub: Subscription

    @property
    def chunks(self) -> list[Got]:
        return [got for got in self.got if got.payload]

    @property
    def data(self) -> bytes:
        return b"".join(got.payload for got in self.got)

    @property
    def end(self) -> bytes | None:
        """The header of the message at the end."""
        return next((got.header for got in self.got if not got.payload), None)


def receiver(world: ConsumerWorld) -> Receiver:
    made = Receiver()
    made.sub = world.account.subscribe(DELIVER, made)
    return made


def answer_chunks(world: ConsumerWorld, to: Receiver) -> None:
    """Answer everything until nothing more comes."""
    answered = 0
    while answered < len(to.chunks):
        for got in to.chunks[answered:]:
            answered += 1
            if got.reply:
                world.account.publish(got.reply, origin=world.client)
        world.commit()


def take(world: ConsumerWorld, stream: str = "S", **options: Any) -> tuple[Any, bytes]:
    """A whole backup: the answer and the archive."""
    to = receiver(world)
    answer = check_answer(world.request(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": DELIVER.decode(), **options}))
    assert "error" not in answer, answer
    answer_chunks(world, to)
    world.account.unsubscribe(to.sub)
    assert to.end is not None
    assert to.end in (b"", b"NATS/1.0 204\r\n\r\n")
    return answer, to.data


def begin(world: ConsumerWorld, answer: Any, stream: str = "S", **config: Any) -> Any:
    body = {"config": {**answer["config"], **config}, "state": answer["state"]}
    return check_answer(world.request(f"STREAM.RESTORE.{stream}", body))


def send(world: ConsumerWorld, subject: str, data: bytes, chunk: int = 1000) -> Any:
    """All of it and the end; the first answer that says something."""
    for at in range(0, len(data), chunk):
        said = ask(world, subject, data[at : at + chunk])
        assert said is not None, "a chunk was not answered"
        if said:
            return check_answer(msgspec.json.decode(said))
    said = ask(world, subject, b"")
    assert said
    return check_answer(msgspec.json.decode(said))


def ask(world: ConsumerWorld, subject: str, payload: bytes) -> bytes | None:
    reply = world.publish(subject.encode(), payload)
    for _ in range(1000):
        world.commit()
        if (said := world.answer(reply)) is not None:
            return said
        world.advance(0)
    return None


def restore(world: ConsumerWorld, answer: Any, data: bytes, stream: str = "S", **config: Any) -> Any:
    begun = begin(world, answer, stream, **config)
    return begun if "error" in begun else send(world, begun["deliver_subject"], data)


def nothing_is_left(world: ConsumerWorld, name: str = "S") -> None:
    world.commit()
    assert world.request(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059
    assert world.store.stream(world.account.name, name) is None
    assert not world.jsa.restores
    assert world.request("INFO")["storage"] == 0


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    world = ConsumerWorld(tmp_path)
    world.create()
    world.fill(200, size=300)
    return world


def remove(world: ConsumerWorld) -> None:
    assert world.request("STREAM.DELETE.S")["success"]


# -- there and back ----------------------------------------------------------------------------------------------------


def test_a_stream_and_its_consumers_come_back_and_stay(world: ConsumerWorld) -> None:
    world.add("C", ack_policy="explicit", ack_wait=10**12)
    world.request("STREAM.MSG.DELETE.S", {"seq": 200})
    box = Recorder()
    world.account.subscribe(b"pulled", box)
    world.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"pulled", payload=b"5", origin=world.client)
    world.commit()
    for got in box.got[:2]:
        world.account.publish(got.reply, payload=b"+ACK", origin=world.client)
    world.commit()
    before, info, held = world.request("STREAM.INFO.S"), world.info(), world.held()
    answer, data = take(world)
    remove(world)
    restored = restore(world, answer, data)
    assert restored["created"] == before["created"]
    for _ in range(2):
        after = world.request("STREAM.INFO.S")
        assert (after["state"], after["config"]) == (before["state"], before["config"])
        assert world.held() == held
        seen = world.info()
        for member in ("delivered", "ack_floor", "num_ack_pending", "num_pending", "created"):
            assert strip(seen[member]) == strip(info[member])
        world = restarted(world)
    assert world.put(b"s.next")["seq"] == 201


def strip(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "last_active"} if isinstance(value, dict) else value


def restarted(world: ConsumerWorld, *, crash: bool = False) -> ConsumerWorld:
    if crash:
        world.store.crash()
    else:
        world.js.stop()
        world.store.close()
    return ConsumerWorld(world.path, options=world.js.options, clock=world.clock)


def test_duplicates_are_known_after_a_restore(world: ConsumerWorld) -> None:
    world.put(b"s.id", b"once", {"Nats-Msg-Id": "1"})
    answer, data = take(world)
    remove(world)
    restore(world, answer, data)
    assert world.put(b"s.id", b"twice", {"Nats-Msg-Id": "1"})["duplicate"]


def test_where_there_are_no_ids_nothing_is_looked_for_at_a_start(world: ConsumerWorld) -> None:
    answer, data = take(world)
    remove(world)
    restore(world, answer, data)
    assert world.stream().ids.none_yet


def test_schedules_and_ttls_go_on(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(allow_msg_ttl=True, allow_msg_schedules=True)
    world.put(b"s.fades", b"x", {"Nats-TTL": "60s"})
    for subject, pattern in ((b"s.once", "@at 2023-11-14T22:23:20Z"), (b"s.often", "@every 10s")):
        said = world.put(
            subject, b"x", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "s.made." + subject.decode()[2:]}
        )
        assert "error" not in said, said
    answer, data = take(world)
    remove(world)
    restore(world, answer, data)
    world = restarted(world)
    world.advance(11)
    assert world.stream().log.subject_count(b"s.made.often") >= 1
    assert world.stream().log.subject_count(b"s.fades") == 1
    for _ in range(6):
        world.advance(10)
    assert world.stream().log.subject_count(b"s.fades") == 0
    assert world.stream().log.subject_count(b"s.made.once") == 0
    world.advance(700)
    assert world.stream().log.subject_count(b"s.made.once") == 1


def test_limits_of_the_request_are_in_force(world: ConsumerWorld) -> None:
    answer, data = take(world)
    remove(world)
    assert restore(world, answer, data, max_msgs=10)["config"]["max_msgs"] == 10
    world.commit()
    assert [seq for seq, _ in world.held()] == list(range(191, 201))


def test_consumers_are_left_out_when_nobody_wants_them(world: ConsumerWorld) -> None:
    world.add("C", ack_policy="explicit")
    answer, data = take(world, no_consumers=True)
    remove(world)
    assert restore(world, answer, data)["state"]["consumer_count"] == 0


def test_consumers_in_memory_come_back_into_memory(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(storage="memory")
    world.fill(3)
    world.add("C", ack_policy="explicit", mem_storage=True)
    answer, data = take(world)
    remove(world)
    assert restore(world, answer, data, storage="file")["state"]["consumer_count"] == 1
    world.commit()
    assert world.stream().log.consumers() == []
    world = restarted(world)
    assert world.request("STREAM.INFO.S")["state"]["messages"] == 3
    assert world.request("CONSUMER.INFO.S.C")["error"]["err_code"] == 10014


def test_consumers_of_every_kind_come_back_as_they_were(world: ConsumerWorld) -> None:
    world.add_ephemeral(name="passing", ack_policy="none", inactive_threshold=10**12)
    world.add(
        "pushed", deliver_subject="to.you", ack_policy="all", filter_subjects=["s.x", "s.y"], idle_heartbeat=10**10
    )
    world.add("paused", pause_until="2030-01-01T00:00:00Z", ack_policy="explicit")
    world.add(
        "last",
        deliver_policy="last_per_subject",
        filter_subject="s.>",
        ack_policy="explicit",
        max_deliver=3,
        backoff=[10**9, 10**10],
    )
    before: dict[str, Any] = {name: world.info(name) for name in ("passing", "pushed", "paused", "last")}
    answer, data = take(world)
    remove(world)
    assert restore(world, answer, data)["state"]["consumer_count"] == 4
    for _ in range(2):
        for name, info in before.items():
            after = world.info(name)
            # What an idle consumer has passed over is not told; it stands at the same message.
            for member in ("config", "created", "num_pending", "num_ack_pending", "delivered", "push_bound"):
                assert strip(after.get(member)) == strip(info.get(member)), (name, member)
        world = restarted(world)
    listener = Recorder()
    world.account.subscribe(b"to.you", listener)
    world.advance(1)
    assert len(listener.got) >= 200


def test_an_encrypted_store_forgets_a_restore_in_the_midst(tmp_path: Path) -> None:
    source = ConsumerWorld(tmp_path / "source")
    source.create()
    source.fill(50)
    answer, data = take(source)
    options = msgspec.structs.replace(OPTIONS, keys=StoreKeys(bytes(range(32))))
    world = ConsumerWorld(tmp_path / "sealed", store_options=options)
    begun = begin(world, answer)
    assert ask(world, begun["deliver_subject"], data) == b""
    world.store.crash()
    world = ConsumerWorld(tmp_path / "sealed", store_options=options, clock=world.clock)
    nothing_is_left(world)
    restore(world, answer, data)
    assert world.held() == source.held()


def test_large_messages(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path, store_options=StoreOptions(inline=True, flush=False, map_size=64 << 20))
    world.create()
    for i in range(6):
        world.put(b"s.large", bytes([i]) * (3 << 20))
    held = world.held()
    answer, data = take(world)
    remove(world)
    restore(world, answer, data)
    assert world.held() == held


# -- the flow of a backup ----------------------------------------------------------------------------------------------


def random_payloads(world: ConsumerWorld, count: int = 60) -> None:
    """What does not compress, so that there are many chunks."""
    rng = world.broker.rng
    for _ in range(count):
        world.account.publish(b"s.r", payload=rng.randbytes(900), origin=world.client)
    world.commit()


def test_a_window_of_chunks_waits_for_answers(world: ConsumerWorld) -> None:
    random_payloads(world)
    to = receiver(world)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 4096}
    world.request("STREAM.SNAPSHOT.S", asked)
    assert len(to.chunks) == 4
    assert [got.reply.split(b".")[-2:] for got in to.chunks] == [[b"1024", b"%d" % n] for n in (1, 2, 3, 4)]
    world.account.publish(to.chunks[0].reply, origin=world.client)
    world.commit()
    assert len(to.chunks) == 5
    answer_chunks(world, to)
    assert to.end == b"NATS/1.0 204\r\n\r\n"
    assert {len(got.payload) for got in to.chunks[:-1]} == {1024}
    assert not to.chunks[-1].reply
    assert not world.jsa.snapshots


def test_a_receiver_that_does_not_answer_is_given_up(world: ConsumerWorld) -> None:
    random_payloads(world)
    to = receiver(world)
    heard = Recorder()
    world.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S", heard)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024}
    world.request("STREAM.SNAPSHOT.S", asked)
    world.advance(4.9)
    assert to.end is None
    again = world.request("STREAM.SNAPSHOT.S", asked)
    assert again["error"] == {"code": 500, "err_code": 10064, "description": "snapshot failed: snapshot in progress"}
    world.advance(0.2)
    assert to.end == b"NATS/1.0 408 No Flow Response\r\n\r\n"
    assert msgspec.json.decode(heard.got[0].payload)["error"] == "no flow response"
    assert not world.jsa.snapshots


def test_a_receiver_that_goes_away_is_noticed(world: ConsumerWorld) -> None:
    random_payloads(world)
    to = receiver(world)
    heard = Recorder()
    world.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S", heard)
    world.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    world.account.unsubscribe(to.sub)
    world.advance(0)
    assert msgspec.json.decode(heard.got[0].payload)["error"] == "no interest"
    assert not world.jsa.snapshots


def test_a_receiver_may_come_late(world: ConsumerWorld) -> None:
    answer = world.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    world.advance(1.0)
    to = receiver(world)
    world.advance(0)
    assert to.data
    remove(world)
    assert "error" not in restore(world, answer, to.data)


def test_nobody_ever_comes(world: ConsumerWorld) -> None:
    """nats-server sends all the same after two seconds; what is small enough for the window simply ends."""
    world.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    world.advance(1.9)
    assert world.jsa.snapshots
    world.advance(0.2)
    assert not world.jsa.snapshots


def test_a_stream_that_is_deleted_ends_its_backup(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.snapshot.SLICE_MESSAGES", 10)
    random_payloads(world)
    to = receiver(world)
    world.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    remove(world)
    answer_chunks(world, to)
    assert to.end is not None
    if b"500" not in to.end:  # it had been read whole before
        assert to.end == b"NATS/1.0 204\r\n\r\n"
    assert not world.jsa.snapshots


def test_it_holds_what_was_there_when_it_began(world: ConsumerWorld) -> None:
    random_payloads(world)
    to = receiver(world)
    asked = {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024}
    answer = world.request("STREAM.SNAPSHOT.S", asked)
    world.fill(50)
    answer_chunks(world, to)
    remove(world)
    assert restore(world, answer, to.data)["state"]["last_seq"] == 260


def test_the_server_stops_in_the_midst(world: ConsumerWorld) -> None:
    random_payloads(world)
    answer, data = take(world)
    to = receiver(world)
    world.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode(), "chunk_size": 1024, "window_size": 1024})
    begun = begin(world, {**answer, "config": {**answer["config"], "subjects": ["t.>"]}}, "T", name="T")
    world.publish(begun["deliver_subject"].encode(), data[:1000])
    world.commit()
    world.js.stop()
    assert to.end is not None
    assert b"500" in to.end
    world.store.close()
    again = ConsumerWorld(world.path, options=world.js.options, clock=world.clock)
    assert again.request("STREAM.NAMES")["streams"] == ["S"]


def test_checking_first_finds_nothing_wrong(world: ConsumerWorld) -> None:
    to = receiver(world)
    reply = world.publish(
        b"$JS.API.STREAM.SNAPSHOT.S", msgspec.json.encode({"deliver_subject": DELIVER.decode(), "jsck": True})
    )
    world.commit()
    for _ in range(10):
        world.advance(0)
    assert b'"error"' not in (world.answer(reply) or b'"error"')
    assert to.end is not None


def test_so_many_at_a_time(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.api_archive.TRANSFERS_MAX", 1)
    answer, _ = take(world)
    begin(world, answer, "T", name="T", subjects=["t"])
    refused = world.request("STREAM.SNAPSHOT.S", {"deliver_subject": "x"})
    assert refused["error"]["err_code"] == 10023


# -- the flow of a restore ---------------------------------------------------------------------------------------------


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
    assert begin(world, answer)["error"]["err_code"] == 10027
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
    monkeypatch.setattr("eyot_daemon.jetstream.restore.WAITING_MAX", 10_000)
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
    monkeypatch.setattr("eyot_daemon.jetstream.restore.ANSWERED_MAX", 3000)
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
