"""The store of MQTT: streams, records of sessions, packet identifiers, and publishes that are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.mqtt import session_record
from eyot_daemon.mqtt.session_record import NEVER, SessionRecord, StoredWill, SubOptions, session_hash
from eyot_daemon.mqtt.store import MqttStore
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from eyot_wire.frames import Published
from support.jetstream.fixture import Fixture
from support.mqtt.fixture import MqttFixture, QueueClient


@pytest.fixture
def fixture(tmp_path: Path) -> MqttFixture:
    return MqttFixture(tmp_path)


def opened(fixture: Fixture, options: MqttStoreOptions | None = None) -> list[str]:
    results: list[str] = []
    MqttStore(fixture.jsa, fixture.js.consumers, options or MqttStoreOptions()).open(results.append)
    fixture.commit()
    return results


def test_the_streams_have_nats_servers_names_and_subjects(fixture: MqttFixture) -> None:
    assert fixture.results == [""]
    found = {name: (s.config.subjects, s.config.retention) for name, s in fixture.jsa.streams.items()}
    assert found == {
        "$MQTT_sess": (["$MQTT.sess.>"], "limits"),
        "$MQTT_msgs": (["$MQTT.msgs.>"], "interest"),
        "$MQTT_rmsgs": (["$MQTT.rmsgs.>"], "limits"),
    }
    assert fixture.request("STREAM.NAMES")["streams"] == ["$MQTT_msgs", "$MQTT_rmsgs", "$MQTT_sess"]


def test_what_hinders_mqtt_is_told(tmp_path: Path) -> None:
    few = Fixture(tmp_path / "few", limits=AccountJetStreamOptions(streams_max=2))
    assert opened(few) == ["stream $MQTT_rmsgs for MQTT is refused: maximum number of streams reached"]
    taken = Fixture(tmp_path / "taken")
    taken.create("T", subjects=["$MQTT.msgs.x"])
    assert opened(taken) == ["stream $MQTT_msgs for MQTT is refused: subjects overlap with an existing stream"]
    other = Fixture(tmp_path / "other")
    other.request("STREAM.CREATE.$MQTT_msgs", {"name": "$MQTT_msgs", "subjects": ["x"]})
    assert "is not one of MQTT" in opened(other)[0]
    off = Fixture(tmp_path / "off", limits=AccountJetStreamOptions())
    off.jsa.set_limits(None)
    assert opened(off) == ["MQTT needs JetStream, which is not enabled for account A"]


@pytest.mark.parametrize("commits", range(4))
def test_jetstream_goes_off_while_the_streams_are_made(tmp_path: Path, commits: int) -> None:
    fixture = Fixture(tmp_path, limits=AccountJetStreamOptions())
    results: list[str] = []
    MqttStore(fixture.jsa, fixture.js.consumers, MqttStoreOptions()).open(results.append)
    for _ in range(commits):
        fixture.store.commit_now()
    fixture.jsa.set_limits(None)
    fixture.commit()
    refusal = "for MQTT is refused: JetStream not enabled for account"
    assert [result.partition(" ")[2].partition(" ")[2] or result for result in results] == [
        refusal if commits < 2 else ""
    ]


def test_other_bounds_of_retained_messages_take_effect_at_the_next_start(fixture: MqttFixture) -> None:
    fixture = fixture.reopened(crash=False, mqtt=MqttStoreOptions(retained_msgs=2))
    assert fixture.results == [""]
    assert fixture.stream("$MQTT_rmsgs").config.max_msgs == 2


def test_publishes_of_nats_clients_do_not_reach_the_streams(fixture: MqttFixture) -> None:
    for subject in (b"$MQTT.sess.x", b"$MQTT.msgs.x", b"$MQTT.rmsgs.x"):
        reply = fixture.publish(subject, b"forged")
        fixture.commit()
        assert fixture.answer(reply) is None
    fixture = fixture.reopened(crash=False)
    fixture.publish(b"$MQTT.sess.x", b"forged")
    fixture.commit()
    assert [fixture.held(name) for name in fixture.jsa.streams] == [[], [], []]


def test_hashes_are_nats_servers() -> None:
    # Subjects of `$MQTT_sess` that nats-server 2.9.10 made for these client ids.
    assert session_hash("sub") == "ZCesaM56"
    assert session_hash("é/1") == "q8dJyt9F"


@pytest.mark.parametrize("crash", [True, False])
def test_a_record_comes_back_whole(fixture: MqttFixture, crash: bool) -> None:
    record = SessionRecord(
        "é/+#",
        owner="u@A",
        level=5,
        expiry_s=NEVER,
        ended_ns=17,
        subs={"a/#": SubOptions(2, [b"a", b"a.>"], True, True, 1, True, 9, 12), "b": SubOptions()},
        will=StoredWill("t", b"\x00\xff", 2, True, 30, b"\x01\x02"),
        queue="q",
    )
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    fixture = fixture.reopened(crash=crash)
    assert fixture.records() == {"é/+#": record}
    assert fixture.records() == {}


def test_very_many_records_come_back(fixture: MqttFixture) -> None:
    for number in range(1000):
        fixture.mqtt.put_session(SessionRecord(f"c{number}"), fixture.done)
    fixture.run()
    fixture = fixture.reopened(crash=True)
    assert set(fixture.records()) == {f"c{number}" for number in range(1000)}


def test_a_session_whose_hash_is_taken_is_refused(fixture: MqttFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_daemon.mqtt.store.session_hash", lambda client_id: "AAAAAAAA")
    fixture.mqtt.put_session(SessionRecord("one"), fixture.done)
    fixture.run()
    fixture.mqtt.put_session(SessionRecord("two"), fixture.done)
    fixture.run()
    assert fixture.results[-2:] == ["", "the client id collides with another one"]
    fixture.mqtt.delete_session(SessionRecord("two"), fixture.done)
    fixture.run()
    assert [payload for _, payload in fixture.held("$MQTT_sess")] == [
        session_record.encode_record(SessionRecord("one"))
    ]


def test_packet_identifiers_survive_and_are_released(fixture: MqttFixture) -> None:
    record = SessionRecord("c")
    mqtt = fixture.mqtt
    mqtt.put_session(record, fixture.done)
    fixture.create("S")
    message = Published(b"s.a", b"", b"", b"x")
    mqtt.publish([(fixture.stream(), message)], hold=(record, 7, b"digest"), done=fixture.done)
    mqtt.publish([(fixture.stream(), message)], hold=(record, 9, b"other"), done=fixture.done)
    mqtt.put_pubrel(record, 65_535, 12, fixture.done)
    mqtt.put_pubrel(record, 1, 13, fixture.done)
    fixture.run()
    mqtt.release(record, 9, fixture.done)
    mqtt.remove_pubrel(record, 1, 13)
    fixture.run()
    fixture = fixture.reopened(crash=True)
    assert fixture.mqtt.held_ids(record) == {7: b"digest"}
    assert fixture.mqtt.pubrels(record) == {65_535: 12}
    assert fixture.held() == [(1, b"x"), (2, b"x")]


def test_a_refused_publish_holds_no_identifier(fixture: MqttFixture) -> None:
    record = SessionRecord("c")
    fixture.mqtt.put_session(record, fixture.done)
    fixture.create("S", max_msg_size=1)
    message = Published(b"s.a", b"", b"", b"long")
    fixture.mqtt.publish([(fixture.stream(), message)], hold=(record, 7, b"digest"), done=fixture.done)
    fixture.run()
    assert fixture.results[-1] == "message size exceeds maximum allowed"
    assert fixture.mqtt.held_ids(record) == {}
    fixture = fixture.reopened(crash=False)
    assert fixture.mqtt.held_ids(record) == {}


def test_a_publish_is_one_transaction_everywhere(fixture: MqttFixture) -> None:
    record = SessionRecord("c")
    client = QueueClient(fixture, record)
    client.follow(b"s.>")
    fixture.mqtt.put_session(record, fixture.done)
    fixture.create("S")
    fixture.run()
    commits = fixture.store.stats.txns
    fixture.mqtt.publish(
        [(fixture.stream(), Published(b"s.a", b"", b"", b"x"))],
        hold=(record, 7, b"digest"),
        retain=Published(b"$MQTT.rmsgs.s.a", b"", b"", b"x"),
        queue=Published(b"$MQTT.msgs.s.a", b"", b"", b"x"),
        done=fixture.done,
    )
    fixture.broker.flush()
    assert fixture.results == ["", "", ""]  # not this one's yet
    fixture.commit()
    assert fixture.store.stats.txns == commits + 1
    assert fixture.held() == fixture.held("$MQTT_msgs") == fixture.held("$MQTT_rmsgs") == [(1, b"x")]
    assert client.pull() == [b"x"]


def leave_much(fixture: MqttFixture) -> SessionRecord:
    """A session that has everything."""
    record = SessionRecord("c", subs={"a/#": SubOptions(qos=2)})
    client = QueueClient(fixture, record)
    client.follow(b"a.>")
    fixture.mqtt.put_session(record, fixture.done)
    fixture.send(b"a.b", b"OLD", hold=(record, 7, b"OLD"))
    fixture.mqtt.put_pubrel(record, 3, 1, fixture.done)
    fixture.run()
    return record


def everything(fixture: MqttFixture) -> dict[str, Any]:
    return {
        "records": len(fixture.held("$MQTT_sess")),
        "queued": len(fixture.held("$MQTT_msgs")),
        "consumers": len(fixture.stream("$MQTT_msgs").log.consumers()),
        "positions": sum(key.startswith(b"mqtt.") for key in fixture.stream("$MQTT_sess").log.positions()),
    }


NOTHING_LEFT = {"records": 0, "queued": 0, "consumers": 0, "positions": 0}


def test_a_deleted_session_leaves_nothing(fixture: MqttFixture) -> None:
    record = leave_much(fixture)
    assert everything(fixture) == {"records": 1, "queued": 1, "consumers": 1, "positions": 2}
    fixture.mqtt.delete_session(record, fixture.done)
    fixture.run()
    assert everything(fixture) == NOTHING_LEFT
    fixture = fixture.reopened(crash=True)
    assert everything(fixture) == NOTHING_LEFT
    assert fixture.records() == {}


def test_a_session_that_begins_again_at_once_inherits_nothing(fixture: MqttFixture) -> None:
    record = leave_much(fixture)
    fixture.mqtt.delete_session(record, fixture.done)
    again = SessionRecord("c", owner="next")
    client = QueueClient(fixture, again)
    client.follow(b"a.>")
    fixture.mqtt.put_session(again, fixture.done)
    fixture.run()
    assert fixture.mqtt.held_ids(again) == {}
    assert fixture.mqtt.pubrels(again) == {}
    assert client.pull() == []
    fixture = fixture.reopened(crash=True)
    assert everything(fixture) == {"records": 1, "queued": 0, "consumers": 1, "positions": 0}
    assert fixture.records()["c"].owner == "next"


def test_a_deletion_that_failed_is_made_up_for_by_the_next_session(
    fixture: MqttFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = leave_much(fixture)
    options = fixture.store.options
    monkeypatch.setattr(fixture.store, "options", type(options)(inline=True, flush=False, backlog_bytes_hard=-1))
    fixture.mqtt.delete_session(record, fixture.done)
    fixture.run()
    assert fixture.results[-1]
    monkeypatch.undo()
    again = SessionRecord("c", owner="next")
    fixture.mqtt.put_session(again, fixture.done)
    fixture.run()
    assert fixture.results[-1] == ""
    assert everything(fixture) == {"records": 1, "queued": 0, "consumers": 0, "positions": 0}


def test_what_a_crash_left_without_a_session_is_removed_at_the_next_start(fixture: MqttFixture) -> None:
    record = SessionRecord("c")
    client = QueueClient(fixture, record)
    client.follow(b"a.>")
    fixture.mqtt.put_pubrel(record, 3, 1, fixture.done)  # the record itself was never written
    fixture.send(b"a.b", b"x")
    fixture.run()
    fixture = fixture.reopened(crash=True)
    assert everything(fixture) == NOTHING_LEFT


# -- a power cut after every commit ----------------------------------------------------------------------------------

Step = Callable[[MqttFixture, SessionRecord, QueueClient], None]


def steps() -> list[Step]:
    """A client's day: QoS 2 in and out, a clean start in the middle, the same packet identifiers after it."""

    def publish(number: int, packet_id: int) -> Step:
        def step(fixture: MqttFixture, record: SessionRecord, client: QueueClient) -> None:
            payload = b"%d" % number
            fixture.mqtt.publish(
                [(fixture.stream(), Published(b"s.a", b"", b"", payload))],
                hold=(record, packet_id, payload),
                queue=Published(b"$MQTT.msgs.s.a", b"", b"", payload),
                retain=Published(b"$MQTT.rmsgs.s.a", b"", b"", payload),
                done=fixture.done,
            )

        return step

    def release(packet_id: int) -> Step:
        return lambda fixture, record, client: fixture.mqtt.release(record, packet_id, fixture.done)

    return [publish(1, 7), release(7), publish(2, 7), publish(3, 8), release(7), release(8), publish(4, 7)]


@pytest.mark.parametrize("cut", range(24))
def test_after_a_power_cut_all_places_agree(tmp_path: Path, cut: int) -> None:
    """Transactions one by one, and a cut after any number of them: message, queue, copy and identifier are there together."""
    fixture = MqttFixture(tmp_path)
    fixture.create("S")
    record = SessionRecord("c", subs={"s/#": SubOptions(qos=2)})
    client = QueueClient(fixture, record)
    client.follow(b"s.>")
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    held: dict[int, bytes] = {}
    published, acknowledged, groups = 0, 0, cut
    before = len(fixture.results)
    expected: list[tuple[int, dict[int, bytes]]] = [(0, {})]
    for step in steps():
        step(fixture, record, client)
        fixture.broker.flush()
        published = fixture.stream().log.state.last_seq
        held = fixture.mqtt.held_ids(record)
        expected.append((published, dict(held)))
        if groups % 3:
            fixture.store.commit_now()
        groups //= 2
    acknowledged = len(fixture.results) - before
    fixture = fixture.reopened(crash=True)
    payloads = [payload for _, payload in fixture.held()]
    state = len(payloads), fixture.mqtt.held_ids(record)
    assert state in expected[acknowledged:], "what was acknowledged is there, in a state that was"
    assert payloads == [b"%d" % number for number in range(1, len(payloads) + 1)]
    assert [payload for _, payload in fixture.held("$MQTT_msgs")] == payloads
    assert [payload for _, payload in fixture.held("$MQTT_rmsgs")] == payloads[-1:]
    client = QueueClient(fixture, fixture.records()["c"])
    client.follow(b"s.>")
    assert client.pull() == payloads
