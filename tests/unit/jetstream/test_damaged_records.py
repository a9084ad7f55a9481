"""A record that is damaged on flash is passed over: it stops nothing that concerns other messages."""

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.ingest.schedules import Schedules
from eyot_daemon.jetstream.sourcing.resume_point import look_through, mirror_checkpoints, mirror_position
from eyot_store.errors import StoreError
from support.jetstream.backup_fixture import DELIVER, receiver, remove, restore, take
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.damage import damage

S = 1_000_000_000
YEAR_S = 365 * 86_400


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    return ConsumerFixture(tmp_path)


def fill(fixture: ConsumerFixture, count: int) -> ConsumerFixture:
    """Store messages a second apart, with the payloads `payload 1.` and so on; restart."""
    for number in range(1, count + 1):
        fixture.put(b"s.%d" % number, b"payload %d." % number)
        fixture.advance(1)
    return fixture.restart()


def left(fixture: ConsumerFixture) -> list[int]:
    log = fixture.stream().log
    return list(log.view.live_seqs_from(1))


# -- expiry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [0, 30, -2])
@pytest.mark.parametrize("config", [{}, {"allow_msg_ttl": True}])
def test_a_damaged_message_expires_with_the_next_one(
    fixture: ConsumerFixture, years: int, config: dict[str, Any]
) -> None:
    """Not before it, and the last one by its own time; also where the clock jumped in between."""
    fixture.create(max_age=10 * S, **config)
    fixture = fill(fixture, 3)
    fixture.clock.jump(years * YEAR_S)
    for number in (4, 5):
        fixture.put(b"s.%d" % number, b"payload %d." % number)
        fixture.advance(1)
    fixture = fixture.restart()
    damage(fixture, b"payload 1.", b"payload 3.", b"payload 5.")
    seen = []
    for _ in range(10):
        fixture.run_out()
        seen.append(left(fixture))
        fixture.advance(1)
    assert seen == [[1, 2, 3, 4, 5]] * 6 + [[3, 4, 5]] * 2 + [[5], []]
    assert fixture.store.damaged == ["stream $G/S had 3 damaged messages (sequence 1, 3, 5)"]


@pytest.mark.parametrize("known", [False, True])
def test_a_damaged_message_stops_no_ttl(fixture: ConsumerFixture, known: bool) -> None:
    """One whose TTL was known before the damage leaves when that has passed."""
    fixture.create(allow_msg_ttl=True)
    for number in (1, 2, 3):
        fixture.put(b"s.%d" % number, b"payload %d." % number, {"Nats-TTL": "5"})
    fixture = fixture.restart()
    if known:
        fixture.run_out()
    damage(fixture, b"payload 1.", b"payload 3.")
    fixture.run_out()
    fixture.advance(6)
    assert left(fixture) == ([] if known else [1, 3])


def test_a_search_by_time_passes_over_damaged_messages(fixture: ConsumerFixture) -> None:
    fixture.create()
    fixture = fill(fixture, 5)
    damage(fixture, b"payload 1.", b"payload 3.", b"payload 5.")
    log, begin_ns = fixture.stream().log, 1_700_000_000 * S
    assert [log.seq_at_time(begin_ns + seconds * S) for seconds in range(6)] == [1, 1, 3, 3, 5, 5]
    assert log.state.first_ts_ns == begin_ns + S


# -- storing -----------------------------------------------------------------------------------------------------------


def test_room_is_made_by_a_damaged_message(fixture: ConsumerFixture) -> None:
    """Three messages of a turn take the places of three, of which the first is damaged."""
    fixture.create(max_msgs_per_subject=3)
    for number in (1, 2, 3):
        fixture.put(b"s.a", b"payload %d." % number)
    fixture = fixture.restart()
    assert fixture.stream().log.subject_count(b"s.a") == 3
    damage(fixture, b"payload 1.")
    for _ in range(3):
        fixture.publish(b"s.a")
    fixture.commit()
    assert left(fixture) == [4, 5, 6]


def test_a_damaged_message_gives_its_place_in_a_full_stream(fixture: ConsumerFixture) -> None:
    fixture.create(max_msgs_per_subject=1, discard="new", max_bytes=130)
    fixture = fill(fixture, 3)
    assert fixture.stream().log.subject_count(b"s.3") == 1
    damage(fixture, b"payload 3.")
    assert fixture.put(b"s.3", b"payload 4.")["seq"] == 4
    assert left(fixture) == [1, 2, 4]


def test_a_damaged_last_message_has_no_id(fixture: ConsumerFixture) -> None:
    fixture.create()
    fixture = fill(fixture, 1)
    damage(fixture, b"payload 1.")
    refused = fixture.put(b"s.a", b"", {"Nats-Expected-Last-Msg-Id": "1"})
    assert refused["error"]["err_code"] == 10070


@pytest.mark.parametrize("restarts", [False, True])
def test_a_damaged_schedule_ends_and_others_go_on(fixture: ConsumerFixture, restarts: bool) -> None:
    fixture.create(allow_msg_schedules=True)
    for number in (1, 2, 3):
        schedule = {"Nats-Schedule": "@every 1m", "Nats-Schedule-Target": "s.made"}
        fixture.put(b"s.%d" % number, b"payload %d." % number, schedule)
    fixture = fixture.restart()
    damage(fixture, b"payload 2.")
    if restarts:
        fixture = fixture.restart()
    for _ in range(2):
        fixture.advance(61)
        fixture.run_out()
    assert left(fixture) == [1, 2, 3, 4, 5, 6, 7]
    assert len([key for key in fixture.stream().log.positions() if key.startswith(b"eyot.schedule")]) == 2


def test_a_counter_goes_on_from_the_sum_before_a_damaged_message_that_is_deleted(fixture: ConsumerFixture) -> None:
    fixture.create(allow_msg_counter=True)

    def add(number: int) -> Any:
        return fixture.put(b"s.a", b"", {"Nats-Incr": str(number)})

    for number in (10, 20):
        add(number)
    fixture = fixture.restart()
    assert fixture.stream().log.subject_count(b"s.a") == 2
    damage(fixture, b'{"val":"30"}')
    assert add(1)["error"]["err_code"] == 10077
    assert fixture.request("STREAM.MSG.DELETE.S", {"seq": 2})["success"]
    assert add(1)["val"] == "11"


@pytest.mark.parametrize("below", [3, 9])
def test_a_purge_over_damaged_messages_counts_the_subjects(fixture: ConsumerFixture, below: int) -> None:
    """The one that goes leaves its subject, and the one that stays counts for none where subjects are counted again."""
    fixture.create()
    for number in range(1, 11):
        fixture.put(b"s.%d" % (number % 5), b"payload %d." % number)
    fixture = fixture.restart()
    log = fixture.stream().log
    assert log.subject_count(b"s.1") == 2
    damage(fixture, b"payload 1.", b"payload 9.")
    assert fixture.request("STREAM.PURGE.S", {"seq": below})["purged"] == below - 1
    subjects = range(5) if below == 3 else (0,)
    assert dict(log.subject_totals()) == {b"s.%d" % each: 2 - (each in (1, 2, 4) or below > 3) for each in subjects}
    assert log.state.messages == 11 - below


# -- reading -----------------------------------------------------------------------------------------------------------


def test_last_per_subject_delivers_what_is_listed_before_a_damaged_message(fixture: ConsumerFixture) -> None:
    fixture.create()
    fixture = fill(fixture, 5)
    assert fixture.stream().log.subject_count(b"s.3") == 1
    damage(fixture, b"payload 3.")
    box = fixture.listen(b"d.1")
    fixture.add(deliver_policy="last_per_subject", filter_subject="s.*", deliver_subject="d.1")
    assert box.seqs == [1, 2, 4, 5]
    assert list(fixture.stream().log.damaged) == [3]


def test_a_backup_needs_a_damaged_message_to_be_deleted(fixture: ConsumerFixture) -> None:
    fixture.create()
    fixture = fill(fixture, 3)
    damage(fixture, b"payload 2.")
    refused = receiver(fixture)
    fixture.request("STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER.decode()})
    assert refused.end == b"NATS/1.0 500 stream $G/S sequence 2: checksum does not match\r\n\r\n"
    fixture.account.unsubscribe(refused.sub)
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 2})
    answer, data = take(fixture)
    remove(fixture)
    restore(fixture, answer, data)
    assert left(fixture) == [1, 3]


def test_direct_gets_pass_over_damaged_messages(fixture: ConsumerFixture) -> None:
    fixture.create(allow_direct=True)
    fixture = fill(fixture, 5)
    assert fixture.stream().log.subject_count(b"s.3") == 1
    damage(fixture, b"payload 3.", b"payload 5.")
    for asked in ({"batch": 9, "seq": 1}, {"multi_last": ["s.>"]}):
        *answers, (end, _) = fixture.messages("DIRECT.GET.S", asked)
        assert [payload for _, payload in answers] == [b"payload 1.", b"payload 2.", b"payload 4."]
        assert end.startswith(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 4\r\n")
    assert [payload for _, payload in fixture.messages("DIRECT.GET.S", {"seq": 3, "next_by_subj": ">"})] == [
        b"payload 4."
    ]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("delivered", [True, False])
def test_a_damaged_message_leaves_behind_all_consumers(
    fixture: ConsumerFixture, retention: str, delivered: bool
) -> None:
    """Whose it is cannot be read: it stays for the consumer that has not come so far."""
    fixture.create(retention=retention)
    for name, filters in (("C", ["s.1", "s.3"]), ("D", ["s.2"])):
        fixture.add(name, ack_policy="explicit", filter_subjects=filters)
    fixture = fill(fixture, 3)
    if delivered:
        box = fixture.pull("D", batch=1)
    damage(fixture, b"payload 2.")
    fixture.ack(*fixture.pull("C", batch=2).got)
    assert left(fixture) == [2]
    if not delivered:
        fixture.put(b"s.2", b"payload 4.")
        box = fixture.pull("D", batch=1)
    fixture.ack(*box.got)
    assert left(fixture) == []
    assert fixture.restart().info("D")["ack_floor"]["stream_seq"] == (3 if delivered else 4)


def test_a_damaged_message_leaves_with_the_last_consumer_that_may_want_it(fixture: ConsumerFixture) -> None:
    fixture.create(retention="interest")
    for name in "CD":
        fixture.add(name, ack_policy="explicit")
    fixture = fill(fixture, 3)
    damage(fixture, b"payload 2.")
    fixture.ack(*fixture.pull("C", batch=2).got)
    assert left(fixture) == [1, 2, 3]
    fixture.request("CONSUMER.DELETE.S.D")
    assert left(fixture) == []


def test_mirrors_and_sources_resume_with_damaged_messages(fixture: ConsumerFixture) -> None:
    fixture.create()
    fixture = fill(fixture, 3)
    damage(fixture, b"payload 1.", b"payload 3.")
    stream = fixture.stream()
    assert mirror_position(stream) == (3, 0, 0)
    assert [seq for seq, _ in mirror_checkpoints(stream)] == [2]
    assert look_through(stream) == {}


def test_a_stream_that_cannot_start_is_offline_and_others_are_served(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of it turns out to be damaged then, for example."""
    fixture.create()
    fixture.create("T")
    started = Schedules.start

    def start(schedules: Schedules) -> None:
        if schedules._log.name == "S":
            raise StoreError("corrupt", "stream $G/S: page 7 of its messages is damaged", stream="$G/S")
        started(schedules)

    monkeypatch.setattr(Schedules, "start", start)
    for name in "ST":
        config = {"name": name, "subjects": [f"{name.lower()}.>"], "allow_msg_schedules": True}
        fixture.request(f"STREAM.UPDATE.{name}", config)
    fixture = fixture.restart()
    assert fixture.js.server.offline == {("$G", "S"): "page 7 of its messages is damaged"}
    assert fixture.put(b"t.a")["seq"] == 1
