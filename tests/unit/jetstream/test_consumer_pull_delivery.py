"""Pull consumers on a real broker and store: delivery, acknowledgements, redelivery, what is on flash when."""

from pathlib import Path

import pytest

from support.jetstream.consumers import ConsumerFixture
from support.store.store import JOURNAL

S = 1_000_000_000


@pytest.fixture(params=[False, True], ids=["services", "clients"])
def fixture(tmp_path: Path, request: pytest.FixtureRequest) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path, clients=request.param)
    fixture.create(subjects=["s.>", "t.>"])
    return fixture


def test_fetch_and_ack(fixture: ConsumerFixture) -> None:
    fixture.fill(3)
    created = fixture.add(ack_policy="explicit")
    assert created["num_pending"] == 3
    box = fixture.pull(batch=2, expires=5 * S)
    assert [got.payload for got in box.messages] == [b"0000", b"0001"]
    assert [got.subject for got in box.messages] == [b"s.x", b"s.x"]
    assert box.messages[0].reply.startswith(b"$JS.ACK.S.C.1.1.1.")
    assert [(ack.delivered, ack.stream_seq, ack.consumer_seq, ack.pending) for ack in box.acks] == [
        (1, 1, 1, 2),
        (1, 2, 2, 1),
    ]
    info = fixture.info()
    assert (info["num_pending"], info["num_ack_pending"], info["num_waiting"]) == (1, 2, 0)
    assert (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]) == (2, 2)
    fixture.ack(*box.take())
    info = fixture.info()
    assert (info["num_pending"], info["num_ack_pending"]) == (1, 0)
    assert (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]) == (2, 2)


def test_a_request_waits_for_messages_that_are_on_flash(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    box = fixture.pull(batch=2, expires=60 * S)
    assert fixture.info()["num_waiting"] == 1
    fixture.account.publish(b"s.x", payload=b"one", origin=fixture.client)
    fixture.broker.flush()
    assert box.got == []  # taken in, not committed
    fixture.commit()
    assert box.seqs == [1]
    fixture.fill(1)
    assert box.seqs == [1, 2]
    assert fixture.info()["num_waiting"] == 0


def test_expired_request(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    box = fixture.pull(batch=2, expires=2 * S)
    fixture.advance(1.9)
    assert box.got == []
    fixture.advance(0.2)
    assert box.statuses == ["408 Request Timeout"]
    assert b"Nats-Pending-Messages: 2\r\n" in box.got[0].header


def test_no_wait_sees_what_was_published_just_before(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    assert fixture.pull(batch=1, no_wait=True).statuses == ["404 No Messages"]
    fixture.account.publish(b"s.x", payload=b"one", origin=fixture.client)
    box = fixture.pull(batch=5, no_wait=True)
    assert box.seqs == [1]
    assert box.statuses == ["404 No Messages"]


def test_no_wait_ends_with_the_first_heartbeat_when_max_ack_pending_holds_the_rest_back(
    fixture: ConsumerFixture,
) -> None:
    fixture.fill(4)
    fixture.add(ack_policy="explicit", max_ack_pending=2)
    box = fixture.pull(batch=4, no_wait=True, expires=10 * S, idle_heartbeat=S)
    assert (box.seqs, box.statuses) == ([1, 2], [])
    fixture.advance(1.0)
    assert (box.seqs, box.statuses) == ([1, 2], ["404 No Messages"])


def test_heartbeats_of_a_waiting_request(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    box = fixture.pull(batch=1, expires=10 * S, idle_heartbeat=3 * S)
    fixture.advance(9.5, step_s=0.5)
    assert box.statuses == ["100 Idle Heartbeat"] * 3
    fixture.advance(1.0, step_s=0.5)
    assert box.statuses[3:] == ["408 Request Timeout"]


def test_redelivery_after_ack_wait_comes_before_new_messages(fixture: ConsumerFixture) -> None:
    fixture.fill(3)
    fixture.add(ack_policy="explicit", ack_wait=10 * S)
    first = fixture.pull(batch=2).take()
    fixture.ack(first[0])
    fixture.advance(10.2)
    assert fixture.info()["num_redelivered"] == 0
    box = fixture.pull(batch=5)
    assert [(ack.stream_seq, ack.delivered, ack.consumer_seq) for ack in box.acks] == [(2, 2, 3), (3, 1, 4)]
    assert fixture.info()["num_redelivered"] == 1
    fixture.ack(*box.take())
    info = fixture.info()
    assert (info["num_redelivered"], info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 0, 3)


def test_nak_with_and_without_delay(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    fixture.add(ack_policy="explicit")
    one, two = fixture.pull(batch=2).take()
    fixture.answer_to(one, b"-NAK")
    fixture.answer_to(two, b'-NAK {"delay": 5000000000}')
    fixture.commit()
    box = fixture.pull(batch=2, expires=60 * S)
    assert [(ack.stream_seq, ack.delivered) for ack in box.acks] == [(1, 2)]
    fixture.advance(4.9)
    assert len(box.acks) == 1
    fixture.advance(0.2)
    assert [(ack.stream_seq, ack.delivered) for ack in box.acks[1:]] == [(2, 2)]


def test_term_progress_and_next(fixture: ConsumerFixture) -> None:
    fixture.fill(4)
    fixture.add(ack_policy="explicit", ack_wait=10 * S)
    one, two = fixture.pull(batch=2).take()
    fixture.answer_to(one, b"+TERM poison")
    fixture.advance(9.0)
    fixture.answer_to(two, b"+WPI")
    fixture.commit()
    fixture.advance(9.0)
    assert fixture.info()["num_ack_pending"] == 1
    box = fixture.listen(b"next.1")
    fixture.answer_to(two, b"+NXT 2", box.sub.subject)
    fixture.commit()
    assert box.seqs == [3, 4]
    info = fixture.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (2, 2)


def test_double_ack_is_answered_only_from_flash(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    fixture.add(ack_policy="explicit")
    one, two = fixture.pull(batch=2).take()
    answers = fixture.listen(b"acked.>")
    fixture.answer_to(one, b"+ACK", b"acked.1")
    fixture.answer_to(one, b"+ACK", b"acked.again")
    fixture.broker.flush()
    assert answers.got == []
    # while that write is under way, a further one gathers
    fixture.answer_to(two, b"", b"acked.2")
    fixture.broker.flush()
    fixture.store.commit_now()
    assert [got.subject for got in answers.got] == [b"acked.1", b"acked.again"]
    fixture.broker.flush()
    fixture.store.commit_now()
    assert [got.subject for got in answers.got][2:] == [b"acked.2"]
    assert all(got.payload == b"" for got in answers.got)


def test_ack_of_something_never_delivered_is_not_answered(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    fixture.add(ack_policy="explicit")
    (one,) = fixture.pull(batch=1).take()
    answers = fixture.listen(b"acked.>")
    fixture.account.publish(one.reply.replace(b".1.1.1.", b".1.2.2."), b"acked.1", origin=fixture.client)
    fixture.account.publish(b"$JS.ACK.S.C.x.y.z.1.1", b"acked.2", origin=fixture.client)
    fixture.commit()
    assert answers.got == []


def test_ack_all(fixture: ConsumerFixture) -> None:
    fixture.fill(5)
    fixture.add(ack_policy="all")
    got = fixture.pull(batch=5).take()
    fixture.ack(got[2])
    info = fixture.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (2, 3)


def test_max_ack_pending_holds_back_new_messages(fixture: ConsumerFixture) -> None:
    fixture.fill(5)
    fixture.add(ack_policy="explicit", max_ack_pending=2)
    box = fixture.pull(batch=5, expires=60 * S)
    assert box.seqs == [1, 2]
    fixture.ack(box.messages[0])
    assert box.seqs == [1, 2, 3]
    # a request that does not want to wait is not ended by that
    other = fixture.pull(batch=1, no_wait=True)
    assert other.got == []


def test_max_deliver_gives_up_and_says_so(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    fixture.fill(1)
    fixture.add(ack_policy="explicit", ack_wait=S, max_deliver=2)
    box = fixture.pull(batch=1)
    fixture.advance(1.1)
    fixture.pull(box=box, batch=1)
    assert [ack.delivered for ack in box.acks] == [1, 2]
    assert heard.got == []
    fixture.advance(1.1)
    assert len(heard.got) == 1
    assert b'"stream_seq":1,"deliveries":2' in heard.got[0].payload
    assert fixture.info()["num_ack_pending"] == 0
    assert fixture.pull(batch=1, no_wait=True).statuses == ["404 No Messages"]


def test_filters_and_exact_pending(fixture: ConsumerFixture) -> None:
    for i in range(6):
        fixture.fill(1, subject=b"s.a" if i % 2 else b"t.b")
    assert fixture.add("one", filter_subject="s.>", ack_policy="explicit")["num_pending"] == 3
    assert fixture.add("two", filter_subjects=["s.a", "t.*"], ack_policy="explicit")["num_pending"] == 6
    box = fixture.pull("one", batch=2)
    assert box.seqs == [2, 4]
    assert [ack.pending for ack in box.acks] == [2, 1]
    fixture.fill(2, subject=b"t.b")
    fixture.fill(1, subject=b"s.c")
    assert fixture.info("one")["num_pending"] == 2
    assert fixture.pull("one", batch=9, no_wait=True).seqs == [6, 9]
    assert fixture.info("one")["delivered"]["stream_seq"] == 9


def test_removed_messages_leave_pending_and_counts(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    fixture.fill(6)
    fixture.add(ack_policy="explicit")
    fixture.pull(batch=2)
    for seq in (1, 4):
        assert fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})["success"]
    info = fixture.info()
    assert (info["num_ack_pending"], info["num_pending"]) == (1, 3)
    assert len(heard.got) == 1
    assert b"Unacknowledged message was deleted" in heard.got[0].payload
    assert fixture.pull(batch=2).seqs == [3, 5]
    fixture.request("STREAM.PURGE.S", {"seq": 6})
    info = fixture.info()
    assert (info["num_ack_pending"], info["num_pending"], info["delivered"]["stream_seq"]) == (0, 1, 5)
    assert info["ack_floor"]["stream_seq"] == 5
    assert fixture.pull(batch=1).seqs == [6]


def test_headers_only(fixture: ConsumerFixture) -> None:
    fixture.put(b"s.x", b"12345", {"A": "b"})
    fixture.fill(1)
    fixture.add(ack_policy="explicit", headers_only=True)
    with_header, without = fixture.pull(batch=2).messages
    assert (with_header.payload, without.payload) == (b"", b"")
    assert with_header.header == b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 5\r\n\r\n"
    assert without.header == b"NATS/1.0\r\nNats-Msg-Size: 4\r\n\r\n"


def test_turns_between_requests_and_byte_limits(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    a = fixture.pull(batch=2, expires=60 * S)
    b = fixture.pull(batch=2, expires=60 * S)
    fixture.fill(4)
    assert (a.seqs, b.seqs) == ([1, 3], [2, 4])
    fixture.fill(3, size=1000)
    box = fixture.pull(batch=10, max_bytes=2500)
    assert box.seqs == [5, 6]
    assert box.statuses == ["409 Message Size Exceeds MaxBytes"]
    box = fixture.pull(batch=1, max_bytes=5000)
    assert box.seqs == [7]
    assert box.statuses == ["409 Batch Completed"]


def test_a_request_whose_inbox_is_gone_gets_nothing(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    gone = fixture.pull(batch=5, expires=60 * S)
    there = fixture.pull(batch=5, expires=60 * S)
    fixture.leave(gone)
    fixture.fill(2)
    assert gone.got == []
    assert there.seqs == [1, 2]


def test_a_large_batch_is_spread_over_turns(fixture: ConsumerFixture) -> None:
    fixture.fill(3000)
    fixture.add(ack_policy="none")
    box = fixture.pull(batch=3000, expires=60 * S)
    assert 0 < len(box.got) < 3000
    fixture.run_on()
    assert box.seqs == list(range(1, 3001))
    assert [ack.pending for ack in box.acks] == list(range(2999, -1, -1))


def test_acks_on_flash_are_never_redelivered(fixture: ConsumerFixture) -> None:
    fixture.fill(5)
    fixture.add(ack_policy="explicit", ack_wait=10 * S)
    got = fixture.pull(batch=4).take()
    fixture.ack(got[0], got[2])
    fixture.clock.advance(4.0)
    fixture = fixture.crash()
    info = fixture.info()
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 1)
    assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]) == (4, 1)
    box = fixture.pull(batch=5, expires=60 * S)
    assert box.seqs == [5]
    fixture.advance(5.9)
    assert box.seqs == [5]
    fixture.advance(0.3)  # the wait went on while the daemon was down
    assert [(ack.stream_seq, ack.delivered) for ack in box.acks[1:]] == [(2, 2), (4, 2)]


def test_deliveries_are_written_soon(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    fixture.add(ack_policy="explicit", ack_wait=10 * S)
    fixture.pull(batch=1)
    crashed = fixture.crash()
    assert crashed.info()["delivered"]["consumer_seq"] == 0
    crashed.pull(batch=1)
    crashed.advance(0.2)
    again = crashed.crash()
    assert again.info()["delivered"]["consumer_seq"] == 1
    assert again.info()["num_ack_pending"] == 1


def test_failed_write_keeps_double_acks_waiting(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture.fill(1)
    fixture.add(ack_policy="explicit")
    (one,) = fixture.pull(batch=1).take()
    answers = fixture.listen(b"acked.>")
    with monkeypatch.context() as patch:
        patch.setattr(fixture.store.options.__class__, "backlog_txns_hard", -1)
        fixture.answer_to(one, b"", b"acked.1")
        fixture.commit()
    assert answers.got == []
    assert fixture.consumer().writer.failures == 1
    fixture.advance(0.3)
    assert len(answers.got) == 1
    assert fixture.crash().info()["num_ack_pending"] == 0


def test_work_queue_drops_what_is_acknowledged_with_the_ack(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="workqueue")
    fixture.add(ack_policy="explicit")
    fixture.fill(3)
    got = fixture.pull(batch=2).take()
    fixture.ack(got[0])
    assert [seq for seq, _ in fixture.held()] == [2, 3]
    fixture.answer_to(got[1], b"+TERM")
    fixture.commit()
    assert [seq for seq, _ in fixture.held()] == [3]
    fixture = fixture.crash()
    assert [seq for seq, _ in fixture.held()] == [3]
    assert fixture.info()["num_ack_pending"] == 0


def test_interest_retention_keeps_what_somebody_needs(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="interest")
    fixture.add("A", ack_policy="explicit")
    fixture.add("B", ack_policy="explicit")
    fixture.fill(2)
    fixture.ack(*fixture.pull("A", batch=2).take())
    assert len(fixture.held()) == 2
    fixture.ack(fixture.pull("B", batch=1).take()[0])
    assert [seq for seq, _ in fixture.held()] == [2]
    assert fixture.request("CONSUMER.DELETE.S.B")["success"]
    assert fixture.held() == []


def test_sampled_acknowledgements(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    fixture.fill(1)
    fixture.add(ack_policy="explicit", sample_freq="100")
    got = fixture.pull(batch=1).take()
    fixture.clock.advance(1.5)
    fixture.ack(*got)
    assert len(heard.got) == 1
    assert b'"stream_seq":1,"ack_time":1500000000,"deliveries":1' in heard.got[0].payload


def test_inactive_pull_consumer_is_removed(fixture: ConsumerFixture) -> None:
    fixture.fill(1)
    fixture.add(ack_policy="explicit", inactive_threshold=10 * S)
    name = fixture.add_ephemeral(ack_policy="explicit")["name"]
    box = fixture.pull(name, batch=5, expires=20 * S)
    fixture.advance(9.0, step_s=1)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == sorted(["C", name])
    fixture.advance(2.0, step_s=1)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == [name]
    assert fixture.info()["error"]["err_code"] == 10014
    fixture.leave(box)
    fixture.advance(6.0, step_s=1)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []
    assert fixture.restart().request("CONSUMER.NAMES.S")["consumers"] == []


def test_waiting_requests_hear_of_the_end(fixture: ConsumerFixture) -> None:
    fixture.add("A", ack_policy="explicit")
    fixture.add("B", ack_policy="explicit")
    a = fixture.pull("A", batch=5, expires=20 * S)
    b = fixture.pull("B", batch=5, expires=20 * S)
    fixture.request("CONSUMER.DELETE.S.A")
    assert a.statuses == ["409 Consumer Deleted"]
    fixture.js.stop()
    assert b.statuses == ["409 Server Shutdown"]
    assert b"Nats-Pending-Messages: 5" in b.got[0].header


def test_pause_and_resume(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
    fixture.fill(1)
    fixture.add(ack_policy="explicit")
    answer = fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "2023-11-14T22:14:00Z"})
    assert answer["paused"] is True
    assert answer["pause_remaining"] == 40 * S
    box = fixture.pull(batch=1, expires=60 * S)
    assert box.got == []
    assert fixture.info()["paused"] is True
    fixture = fixture.restart()
    box = fixture.pull(batch=1, expires=60 * S)
    fixture.advance(39.0, step_s=1)
    assert box.got == []
    fixture.advance(2.0, step_s=1)
    assert box.seqs == [1]
    assert "paused" not in fixture.info()
    assert len(heard.got) == 1
    fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "2033-11-14T22:14:00Z"})
    assert fixture.request("CONSUMER.PAUSE.S.C")["paused"] is False


def test_pinned_client_over_the_wire(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    fixture.fill(3)
    fixture.add(ack_policy="explicit", priority_policy="pinned_client", priority_groups=["A"], priority_timeout=10 * S)
    first = fixture.pull(batch=1, group="A", expires=60 * S)
    pin = first.messages[0].header.split(b"Nats-Pin-Id: ")[1].split(b"\r\n")[0].decode()
    assert fixture.info()["priority_groups"][0]["pinned_client_id"] == pin
    other = fixture.pull(batch=1, group="A", expires=60 * S)
    assert other.got == []
    assert fixture.pull(batch=1, group="A", id=pin).seqs == [2]
    fixture.advance(11.0, step_s=1)
    assert other.seqs == [3]
    kinds = [got.subject.split(b".")[4] for got in heard.got]
    assert kinds == [b"CREATED", b"PINNED", b"UNPINNED", b"PINNED"]
    assert fixture.request("CONSUMER.UNPIN.S.C", {"group": "A"}) == {
        "type": "io.nats.jetstream.api.v1.consumer_unpin_response"
    }
    assert fixture.request("CONSUMER.UNPIN.S.C", {"group": "B"})["error"]["err_code"] == 10160


def test_no_wait_ends_when_what_comes_again_is_for_the_pinned_client(fixture: ConsumerFixture) -> None:
    """Also while `max_ack_pending` holds new messages back, as in nats-server: the client would wait without an end."""
    fixture.fill(3)
    fixture.add(ack_policy="explicit", max_ack_pending=1, priority_policy="pinned_client", priority_groups=["A"])
    (first,) = fixture.pull(batch=1, group="A", no_wait=True).take()
    fixture.answer_to(first, b"-NAK")
    fixture.commit()
    other = fixture.pull(batch=1, group="A", no_wait=True)
    assert (other.seqs, other.statuses) == ([], ["404 No Messages"])


def test_max_bytes_counts_subject_reply_header_and_payload(fixture: ConsumerFixture) -> None:
    fixture.fill(2, size=100)
    fixture.add(ack_policy="explicit")
    first, second = fixture.pull(batch=2).take()
    size = len(first.subject) + len(first.reply) + len(first.payload)
    for got in (first, second):
        fixture.answer_to(got, b"-NAK")
    fixture.commit()
    assert fixture.pull(batch=1, max_bytes=size).seqs == [1]
    assert fixture.pull(batch=1, max_bytes=size - 1).statuses == ["409 Message Size Exceeds MaxBytes"]


def test_a_start_behind_messages_that_never_reach_flash(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.fill(2)
    with monkeypatch.context() as patch:
        patch.setattr(fixture.store.options.__class__, "backlog_txns_hard", -1)
        for _ in range(3):
            fixture.account.publish(b"s.x", payload=b"lost", origin=fixture.client)
        fixture.broker.flush()
        created = fixture.add(mem_storage=True, ack_policy="explicit", deliver_policy="new")
    assert "error" not in created
    assert fixture.stream().log.state.last_seq == 2
    fixture.fill(2)
    assert fixture.pull(batch=5, no_wait=True).seqs == [3, 4]


def test_purges_that_do_not_concern_a_consumer_write_nothing(fixture: ConsumerFixture) -> None:
    fixture.fill(4)
    fixture.add(ack_policy="explicit")
    fixture.ack(*fixture.pull(batch=4).take())
    fixture.advance(1.0)
    before = fixture.store.stats.commits
    fixture.request("STREAM.PURGE.S", {"seq": 3})
    fixture.advance(1.0)
    assert fixture.store.stats.commits == before + 1


def test_an_expired_request_is_not_counted_as_waiting(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    box = fixture.pull(batch=1, expires=2 * S)
    assert fixture.info()["num_waiting"] == 1
    fixture.clock.advance(2.0)  # no timer has run yet
    assert fixture.info()["num_waiting"] == 0
    assert box.statuses == ["408 Request Timeout"]


@pytest.mark.parametrize("retention", ["workqueue", "interest", "limits"])
def test_what_was_purged_is_not_removed_again_by_an_ack_or_a_request(tmp_path: Path, retention: str) -> None:
    """A client holds messages while the stream is purged; their records stay for a while."""
    fixture = ConsumerFixture(tmp_path, store_options=JOURNAL)
    fixture.create(retention=retention)
    fixture.add(ack_policy="explicit")
    fixture.fill(6)
    acks = fixture.pull(batch=3).take()
    assert fixture.request("STREAM.PURGE.S", {"seq": 5})["purged"] == 4
    before = fixture.request("STREAM.INFO.S")["state"]
    fixture.ack(*acks)
    for seq in (1, 4):
        assert fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})["error"]["err_code"] == 10057
    assert fixture.request("STREAM.INFO.S")["state"] == before
    assert before["messages"] == 2
    assert fixture.restart().request("STREAM.INFO.S")["state"] == before
