"""Messages that left a stream before a downstream confirmed them: counted by reason and named, also after restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.consumer.removal_wait import WAIT_S_MAX
from eyot_daemon.jetstream.downstream.never_arrived import OPEN_MAX
from eyot_wire.status import SyncStatus
from support.jetstream.consumers import Box, ConsumerFixture
from support.jetstream.damage import damage
from support.jetstream.full_disk import fill_disk

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


def asking(fixture: ConsumerFixture, deliver: str, after: int = 0, **config: Any) -> Box:
    box = fixture.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    fixture.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start, **config})
    fixture.commit()
    return box


def confirm(fixture: ConsumerFixture, box: Box) -> None:
    fixture.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.commit()


def status(fixture: ConsumerFixture) -> SyncStatus:
    (found,) = fixture.stream("S").downstream.statuses()
    return found


def lost(fixture: ConsumerFixture) -> list[tuple[str, int, list[str]]]:
    return [(each.reason, each.messages, each.sequences) for each in status(fixture).lost]


def copied(path: Path, **config: Any) -> ConsumerFixture:
    """A copy has confirmed 3 of 3 messages, and its link is down."""
    fixture = ConsumerFixture(path)
    fixture.create(**config)
    box = asking(fixture, "$JS.S.first")
    for number in range(3):
        fixture.publish(b"s.before%d" % number)
        fixture.commit()
    confirm(fixture, box)
    assert status(fixture).confirmed_seq == 3
    fixture.leave(box)
    fixture.commit()
    return fixture


def fill(fixture: ConsumerFixture, count: int) -> None:
    for number in range(count):
        fixture.publish(b"s.%d" % (number % 2), b"x" * 100)
    fixture.commit()


def _limits(fixture: ConsumerFixture) -> None:
    fill(fixture, 7)


def _update(fixture: ConsumerFixture) -> None:
    fill(fixture, 7)
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 2})


def _age(fixture: ConsumerFixture) -> None:
    fill(fixture, 5)
    fixture.advance(11.0, 1.0)
    fill(fixture, 2)


def _ttl(fixture: ConsumerFixture) -> None:
    for _ in range(5):
        fixture.publish(b"s.x", header={"Nats-TTL": "1s"})
    fill(fixture, 2)
    fixture.advance(3.0, 0.5)


def _purge(fixture: ConsumerFixture) -> None:
    fill(fixture, 7)
    fixture.request("STREAM.PURGE.S", {"seq": 9})


def _purge_all(fixture: ConsumerFixture) -> None:
    fill(fixture, 5)
    fixture.request("STREAM.PURGE.S")
    fill(fixture, 2)


def _purge_subject(fixture: ConsumerFixture) -> None:
    for number in range(7):
        fixture.publish(b"s.z" if number < 5 else b"s.y")
    fixture.commit()
    fixture.request("STREAM.PURGE.S", {"filter": "s.z"})


def _delete(fixture: ConsumerFixture) -> None:
    fill(fixture, 7)
    for seq in range(4, 9):
        fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})


def _rollup(fixture: ConsumerFixture) -> None:
    fill(fixture, 5)
    fixture.publish(b"s.x", header={"Nats-Rollup": "all"})
    fill(fixture, 1)


WAYS: dict[str, tuple[dict[str, Any], Callable[[ConsumerFixture], None], str]] = {
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
    fixture = copied(tmp_path, **config)
    happens(fixture)
    expected = [(reason, 5, ["4-8"])]
    assert lost(fixture) == expected
    assert (status(fixture).never_arrived, status(fixture).backlog) == (5, 2)
    fixture = fixture.restart()  # type: ignore[assignment]
    assert lost(fixture) == expected
    box = asking(fixture, "$JS.S.again", 3)
    assert box.seqs == [9, 10]
    confirm(fixture, box)
    assert (status(fixture).confirmed_seq, status(fixture).backlog, lost(fixture)) == (10, 0, expected)


def test_what_is_not_confirmed_but_was_sent_is_known_when_it_asks_again(tmp_path: Path) -> None:
    fixture = copied(tmp_path, max_msgs=2)
    box = asking(fixture, "$JS.S.second", 3)
    for _ in range(4):
        fill(fixture, 1)
    assert box.seqs == [4, 5, 6, 7]
    fixture.leave(box)
    fill(fixture, 2)  # 4 to 7 are gone: sent, not confirmed
    assert lost(fixture) == []
    assert status(fixture).backlog == 6
    fixture = fixture.restart()  # type: ignore[assignment]
    assert status(fixture).backlog == 6
    box = asking(fixture, "$JS.S.third", 6)  # of those 7 was lost on its way
    assert lost(fixture) == [("max_msgs", 1, ["7"])]
    assert status(fixture).backlog == 5, "4 to 6 may be on their way to flash only"
    confirm(fixture, box)
    assert (lost(fixture), status(fixture).backlog) == ([("max_msgs", 1, ["7"])], 0)


def test_what_was_received_and_lost_before_it_was_on_flash_did_not_arrive(tmp_path: Path) -> None:
    """The copy has 4 to 6 in memory when its link ends; it asks for what follows, and then its power goes."""
    fixture = copied(tmp_path, max_msgs=2)
    box = asking(fixture, "$JS.S.second", 3)
    for _ in range(3):
        fill(fixture, 1)
    fixture.leave(box)
    fill(fixture, 2)
    fixture.leave(asking(fixture, "$JS.S.third", 6))
    asking(fixture, "$JS.S.fourth", 3)
    assert lost(fixture) == [("max_msgs", 3, ["4-6"])]


def test_what_is_confirmed_after_it_has_gone_arrived(tmp_path: Path) -> None:
    fixture = copied(tmp_path, max_msgs_per_subject=1)
    box = asking(fixture, "$JS.S.second", 3)
    for _ in range(5):
        fixture.publish(b"s.same")
        fixture.commit()
    assert len(box.seqs) == 5
    assert status(fixture).backlog > 1
    confirm(fixture, box)
    assert (lost(fixture), status(fixture).backlog, status(fixture).confirmed_seq) == ([], 0, 8)


def test_a_copy_that_was_first_met_on_a_full_disk_is_known_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fill(fixture, 3)
    fill_disk(fixture, monkeypatch)
    assert asking(fixture, "$JS.S.first").seqs == [1, 2, 3]
    fixture = fixture.crash()  # type: ignore[assignment]
    fixture.request("STREAM.PURGE.S", {"seq": 3})
    asking(fixture, "$JS.S.second", 1)
    assert lost(fixture) == [("purge", 1, ["2"])], "it has received the first one only"
    assert fixture.store.spare_positions.of(fixture.stream("S").log.id) == {}, "its record is on flash"


def test_what_a_copy_lacked_when_it_asked_on_a_full_disk_is_known_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = copied(tmp_path)
    box = asking(fixture, "$JS.S.second", 3)
    fill(fixture, 4)
    fixture.leave(box)
    fixture.request("STREAM.PURGE.S")  # 4 to 7 may have arrived
    fill_disk(fixture, monkeypatch)
    asking(fixture, "$JS.S.third", 5)  # 6 and 7 have not
    fixture = fixture.crash()  # type: ignore[assignment]
    box = asking(fixture, "$JS.S.fourth", 7)  # a mirror passes over what is gone, and asks for what follows
    assert lost(fixture) == [("purge", 2, ["6-7"])]
    fixture = fixture.restart()  # type: ignore[assignment]
    assert lost(fixture) == [("purge", 2, ["6-7"])]
    assert fixture.store.spare_positions.of(fixture.stream("S").log.id) == {}


def test_what_a_full_disk_left_of_a_forgotten_copy_or_a_deleted_stream_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = ConsumerFixture(tmp_path)
    for name in "ST":
        fixture.create(name)
        fixture.publish(b"%b.x" % name.lower().encode())
    fixture.commit()
    ids = [fixture.stream(name).log.id for name in "ST"]
    with monkeypatch.context() as during:
        fill_disk(fixture, during)
        for name in "ST":
            deliver = f"$JS.S.of{name}"
            box = fixture.listen(deliver.encode())
            fixture.add_ephemeral(name, **{**COPY, "deliver_subject": deliver})
            fixture.leave(box)
        assert [len(fixture.store.spare_positions.of(each)) for each in ids] == [1, 1]
    fixture.request("STREAM.EYOT_FORGET.S", {"server": "this server"})
    fixture.request("STREAM.DELETE.T")
    assert [fixture.store.spare_positions.of(each) for each in ids] == [{}, {}]


def test_a_copy_that_cannot_be_forgotten_on_a_full_disk_is_still_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = copied(tmp_path)
    with monkeypatch.context() as during:
        fill_disk(fixture, during)
        refused = fixture.request("STREAM.EYOT_FORGET.S", {"server": "this server"})
        assert "no space left" in refused["error"]["description"]
    assert status(fixture).confirmed_seq == 3
    fill(fixture, 1)
    fixture.request("STREAM.PURGE.S")
    assert lost(fixture) == [("purge", 1, ["4"])]
    fixture = fixture.restart()  # type: ignore[assignment]
    assert lost(fixture) == [("purge", 1, ["4"])]


def test_a_removal_that_fails_is_not_counted(tmp_path: Path) -> None:
    fixture = copied(tmp_path)
    fill(fixture, 3)
    fixture.publish(b"$JS.API.STREAM.PURGE.S")
    fixture.broker.flush()
    fixture = fixture.crash()  # type: ignore[assignment]
    assert (lost(fixture), status(fixture).backlog) == ([], 3)


def removing_before_a_copy(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch, way: str) -> Box:
    """A copy was sent 3 of 6 messages, and the removal of what follows is under way on a full disk."""
    fixture.create()
    box = asking(fixture, "$JS.S.first")
    for number in range(6):
        fixture.publish(b"s.%d" % (number % 2), bytes(800_000))  # three are more than the window
    fixture.commit()
    assert box.seqs == [1, 2, 3]
    fill_disk(fixture, monkeypatch)
    body = {"whole": b'{"seq":6}', "some": b'{"seq":6,"filter":"s.0"}'}[way]
    fixture.publish(b"$JS.API.STREAM.PURGE.S", body)
    fixture.broker.flush()
    return box


def answer_flow_control(fixture: ConsumerFixture, box: Box) -> None:
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.broker.flush()


@pytest.mark.parametrize("way", ["whole", "some"])
def test_what_is_being_removed_is_sent_if_that_fails(tmp_path: Path, way: str) -> None:
    with pytest.MonkeyPatch.context() as during:
        fixture = ConsumerFixture(tmp_path)
        box = removing_before_a_copy(fixture, during, way)
        answer_flow_control(fixture, box)
        assert box.seqs == [1, 2, 3], "it waits"
        fixture.commit()
    for _ in range(2):
        confirm(fixture, box)
    assert (box.seqs, lost(fixture), status(fixture).confirmed_seq) == ([1, 2, 3, 4, 5, 6], [], 6)


@pytest.mark.parametrize("after", [3, 4, 6])
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(("way", "passed"), [("whole", (4, 5)), ("some", (5,))])
def test_what_was_passed_over_since_a_disk_did_not_answer_never_arrives(
    tmp_path: Path, way: str, passed: tuple[int, ...], crashes: bool, after: int
) -> None:
    """Unless the copy asks for it again."""
    with pytest.MonkeyPatch.context() as during:
        fixture = ConsumerFixture(tmp_path)
        box = removing_before_a_copy(fixture, during, way)
        answer_flow_control(fixture, box)
        fixture.clock.advance(WAIT_S_MAX)
        fixture.broker.timers.run_due(fixture.clock.monotonic())
        fixture.broker.flush()
        assert box.seqs == [seq for seq in range(1, 7) if seq not in passed]
        fixture.commit()
        confirm(fixture, box)
        assert status(fixture).confirmed_seq < 4, "an answer to this consumer says nothing"
        if crashes:
            fixture = fixture.crash()  # type: ignore[assignment]
        else:
            fixture.leave(box)
    box = asking(fixture, "$JS.S.second", after)
    never = [seq for seq in passed if seq <= after]
    named = [str(never[0]) if len(never) == 1 else f"{never[0]}-{never[-1]}"] if never else []
    assert lost(fixture) == ([("purge", len(never), named)] if never else [])
    assert box.seqs == list(range(after + 1, 7))
    confirm(fixture, box)
    fixture.request("STREAM.PURGE.S")
    assert status(fixture).never_arrived == len(never), "counted once"


def test_what_its_filter_does_not_take_is_not_lost_to_it(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(max_msgs=2)
    box = asking(fixture, "$JS.S.first", filter_subject="s.0")
    fill(fixture, 2)
    confirm(fixture, box)
    fixture.leave(box)
    fill(fixture, 6)  # 3 to 8, every other on s.0
    assert lost(fixture) == [("max_msgs", 2, ["3", "5"])]
    fixture.request("STREAM.PURGE.S")
    assert lost(fixture) == [("max_msgs", 2, ["3", "5"]), ("purge", 1, ["7-8"])]


def test_nor_when_the_copy_turns_out_to_have_all_before_it(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(max_age=10_000_000_000)
    box = asking(fixture, "$JS.S.first", filter_subject="s.0")
    fill(fixture, 2 * OPEN_MAX + 10)  # every other on s.0, the last is not; more than are kept one by one
    fixture.advance(11.0, 1.0)
    assert status(fixture).backlog == OPEN_MAX + 5, "they may have arrived"
    fixture.leave(box)
    box = asking(fixture, "$JS.S.second", 2 * OPEN_MAX + 9, filter_subject="s.0")
    confirm(fixture, box)
    assert (lost(fixture), status(fixture).backlog) == ([], 0)


def test_of_many_scattered_messages_exactly_those_count_that_the_copy_does_not_have(tmp_path: Path) -> None:
    """A purge of one subject, after the messages were sent; the copy has the first 120 of them all."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    box = asking(fixture, "$JS.S.first")
    fill(fixture, 200)  # every other on s.0
    fixture.request("STREAM.PURGE.S", {"filter": "s.0"})
    assert lost(fixture) == [], "they may have arrived"
    fixture.leave(box)
    asking(fixture, "$JS.S.second", 120)
    [(reason, messages, sequences)] = lost(fixture)
    assert (reason, messages, sequences[-1]) == ("purge", 40, "199")


def test_what_a_consumer_takes_out_of_a_work_queue_is_not_lost(tmp_path: Path) -> None:
    fixture = copied(tmp_path, retention="workqueue")
    fixture.add("W", ack_policy="explicit", deliver_subject="take")
    box = fixture.listen(b"take")
    fill(fixture, 2)
    fixture.advance(0.5, 0.1)
    for got in box.messages:
        fixture.account.publish(got.reply, payload=b"+ACK", origin=fixture.client)
    fixture.commit()
    assert fixture.request("STREAM.INFO.S")["state"]["messages"] == 0
    assert lost(fixture) == []


def test_a_copy_of_an_earlier_life_of_the_stream_does_not_get_what_was_stored_below(tmp_path: Path) -> None:
    """The device was set up anew and has stored more than its predecessor had: the hub asks for what comes after 500."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fill(fixture, 7)
    box = asking(fixture, "$JS.S.hub", 5)
    assert box.seqs == [6, 7]
    confirm(fixture, box)
    found = status(fixture)
    assert (found.confirmed_seq, found.backlog) == (7, 5)
    assert "up to 5 of an earlier S" in (found.error or "")
    fixture.request("STREAM.PURGE.S", {"seq": 3})
    assert (status(fixture).backlog, lost(fixture)) == (3, [("purge", 2, ["1-2"])])


@pytest.mark.parametrize("way", ["cut", "power cut", "two power cuts"])
def test_nor_one_that_was_set_back_and_has_grown_past_it(tmp_path: Path, way: str) -> None:
    """Its record says 3, and the hub asks for what comes after 5, of which it was never sent any."""
    fixture = copied(tmp_path)
    if way != "cut":
        fixture.leave(asking(fixture, "$JS.S.second", 3)) if way == "two power cuts" else asking(
            fixture, "$JS.S.second", 3
        )
        fixture = fixture.crash()  # type: ignore[assignment]
        fixture.commit()
    fill(fixture, 4)
    if way == "two power cuts":
        fixture = fixture.crash()  # type: ignore[assignment]
    box = asking(fixture, "$JS.S.hub", 5)
    assert box.seqs == [6, 7]
    confirm(fixture, box)
    found = status(fixture)
    assert (found.confirmed_seq, found.backlog) == (7, 2)
    assert (found.error or "").endswith("under these sequences: 2 messages")


def test_what_was_sent_and_not_confirmed_before_a_power_cut_is_believed(tmp_path: Path) -> None:
    fixture = copied(tmp_path)
    box = asking(fixture, "$JS.S.second", 3)
    fill(fixture, 4)
    assert box.seqs == [4, 5, 6, 7]
    fixture = fixture.crash()  # type: ignore[assignment]
    box = asking(fixture, "$JS.S.third", 6)
    assert status(fixture).error is None
    confirm(fixture, box)
    assert (status(fixture).backlog, status(fixture).error) == (0, None)


def test_nothing_is_certain_of_a_copy_that_is_linked_and_does_not_read(tmp_path: Path) -> None:
    fixture = copied(tmp_path)
    assert status(fixture).linked
    assert status(fixture).uncertain
    box = asking(fixture, "$JS.S.second", 3)
    assert not status(fixture).uncertain
    fixture.leave(box)
    assert status(fixture).uncertain


def test_nothing_is_certain_of_a_copy_that_takes_back_what_it_confirmed(tmp_path: Path) -> None:
    """A stream of nats-server before 2.14 that is full and discards new messages confirms, and asks for the same again and again."""
    fixture = copied(tmp_path)
    fill(fixture, 4)
    for number in range(3):
        box = asking(fixture, f"$JS.S.full{number}", 3)
        confirm(fixture, box)
        assert (status(fixture).confirmed_seq, status(fixture).uncertain) == (7, number > 0)
        fixture.leave(box)
    box = asking(fixture, "$JS.S.room", 7)
    fixture.advance(11.0, 1.0)
    assert not status(fixture).uncertain


@pytest.mark.parametrize("is_eyot", [False, True])
def test_a_copy_that_says_that_it_lacks_something_has_not_confirmed_it(tmp_path: Path, is_eyot: bool) -> None:
    """nats-server from 2.14 on answers flow control also for what its full stream did not take, and says where it stands.

    Eyot answers before it notices what a link dropped right before the request; it has what its answer names.
    """
    fixture = copied(tmp_path)
    box = asking(fixture, "$JS.S.full", 3)
    fill(fixture, 4)
    fixture.advance(1.5, 0.5)
    (asked,) = [got for got in box.got if got.reply.startswith(b"$JS.FC.")]
    name = b"Eyot-Consumer: %b\r\n" % asked.reply.split(b".")[-2] if is_eyot else b""
    header = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 5\r\n%b\r\n" % name
    fixture.account.publish(asked.reply, header=header, origin=fixture.client)
    fixture.commit()
    assert (status(fixture).confirmed_seq, status(fixture).backlog) == ((5, 2) if is_eyot else (3, 4))


def test_what_it_does_not_take_is_not_awaited_of_a_copy_that_says_how_far_it_is(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    box = asking(fixture, "$JS.S.some", filter_subject="s.0")
    fill(fixture, 4)  # 1 and 3 are for it
    fixture.advance(1.5, 0.5)
    (asked,) = [got for got in box.got if got.reply.startswith(b"$JS.FC.")]
    fixture.account.publish(
        asked.reply, header=b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n\r\n", origin=fixture.client
    )
    fixture.commit()
    assert (status(fixture).backlog, status(fixture).unmatched) == (0, 2)


def test_what_somebody_has_seen_to_is_not_told_any_more(tmp_path: Path) -> None:
    """Also of a copy that reads at the moment, and of one that began where its configuration says."""
    fixture = copied(tmp_path, max_msgs=2)
    fill(fixture, 5)
    box = asking(fixture, "$JS.S.again", 3)
    confirm(fixture, box)
    assert status(fixture).never_arrived == 3
    answer = fixture.request("STREAM.EYOT_FORGET.S", {"server": "this server", "lost": True})
    assert (answer["forgotten"], status(fixture).never_arrived, status(fixture).confirmed_seq) == (1, 0, 8)
    fixture = fixture.restart()  # type: ignore[assignment]
    assert (status(fixture).never_arrived, status(fixture).confirmed_seq) == (0, 8)
    fill(fixture, 4)
    assert status(fixture).never_arrived == 2


def test_a_copy_that_was_told_to_begin_later_can_be_said_to_be_right(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fill(fixture, 7)
    box = asking(fixture, "$JS.S.hub", 5)
    confirm(fixture, box)
    assert status(fixture).backlog == 5
    fixture.request("STREAM.EYOT_FORGET.S", {"server": "this server", "lost": True})
    assert (status(fixture).backlog, status(fixture).error) == (0, None)
    fixture.leave(box)
    box = asking(fixture, "$JS.S.again", 7)
    fill(fixture, 1)
    confirm(fixture, box)
    assert (status(fixture).backlog, status(fixture).error, status(fixture).confirmed_seq) == (0, None, 8)
    fixture.request("STREAM.PURGE.S")
    assert status(fixture).never_arrived == 0


def test_the_backlog_of_a_copy_begins_with_a_damaged_message(tmp_path: Path) -> None:
    fixture = copied(tmp_path)
    fixture.put(b"s.a", b"a payload that will be damaged")
    fill(fixture, 2)
    fixture = fixture.restart()
    file = tmp_path / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"will be damaged", b"was changed now"))
    assert (status(fixture).backlog, status(fixture).never_arrived) == (3, 0)
    assert status(fixture).backlog_bytes > 0


@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("filters", [{}, {"filter_subject": "s.*"}])
def test_a_damaged_message_never_arrives_downstream(tmp_path: Path, retention: str, filters: dict[str, str]) -> None:
    """Once, however often it is passed over; and if it leaves before it is sent, for that reason."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention=retention)
    fixture.leave(asking(fixture, "$JS.S.first", **filters))
    for number in range(1, 5):
        fixture.put(b"s.%d" % number, b"payload %d." % number)
    fixture = fixture.restart()
    damage(fixture, b"payload 2.", b"payload 4.")
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 4})
    for _ in range(2):
        box = asking(fixture, "$JS.S.first", **filters)
        assert [got.payload for got in box.messages] == [b"payload 1.", b"payload 3."]
        fixture.leave(box)
        fixture = fixture.restart()
    assert lost(fixture) == [("damage", 1, ["2"]), ("deleted", 1, ["4"])]
    confirm(fixture, asking(fixture, "$JS.S.first", **filters))
    assert list(fixture.stream().log.view.live_seqs_from(1)) == ([1, 2, 3] if retention == "limits" else [])
