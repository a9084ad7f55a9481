"""Work-queue and interest streams with a downstream: a message is removed when it is confirmed, not when it is delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.retention.retention import Retention
from eyot_store.errors import StoreError
from support.jetstream.consumers import Box, ConsumerFixture

COPY: dict[str, Any] = {
    "deliver_subject": "$JS.S.aaaaaaaa",
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


@pytest.fixture(params=["workqueue", "interest"])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> ConsumerFixture:
    made = ConsumerFixture(tmp_path)
    made.create(retention=request.param)
    return made


def sourcing(fixture: ConsumerFixture, deliver: str = "$JS.S.aaaaaaaa", **config: Any) -> Box:
    box = fixture.listen(deliver.encode())
    fixture.add_ephemeral(**{**COPY, "deliver_subject": deliver, **config})
    fixture.commit()
    return box


def confirm(fixture: ConsumerFixture, box: Box) -> None:
    """Answers every flow-control request so far, as a copy does when it has stored what came before."""
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.commit()


def messages(fixture: ConsumerFixture) -> int:
    return int(fixture.request("STREAM.INFO.S")["state"]["messages"])


def test_delivered_messages_stay_until_they_are_confirmed(fixture: ConsumerFixture) -> None:
    box = sourcing(fixture)
    fixture.fill(5)
    assert len(box.messages) == 5
    assert messages(fixture) == 5
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    assert messages(fixture) == 0


def test_a_confirmation_on_a_full_disk_counts_when_there_is_room(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when no message comes after it: the copy confirms nothing again."""
    box = sourcing(fixture)
    fixture.fill(5)
    fixture.advance(1.5, 0.5)
    with monkeypatch.context() as full:
        committer = fixture.store._committer
        full.setattr(committer, "commit", lambda group: [StoreError("full", "as expected")] * len(group))
        confirm(fixture, box)
        fixture.advance(1.5, 0.5)
        fixture.commit()
        assert messages(fixture) == 5
        assert fixture.stream("S").downstream.statuses()[0].confirmed_seq == 0
    fixture.advance(1.5, 0.5)
    fixture.commit()
    assert messages(fixture) == 0
    assert fixture.stream("S").downstream.statuses()[0].confirmed_seq == 5


def test_a_copy_that_was_cut_off_finds_what_it_has_not_confirmed(fixture: ConsumerFixture) -> None:
    box = sourcing(fixture)
    fixture.fill(3)
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    fixture.fill(2)
    fixture.leave(box)
    fixture.advance(30.0, 1.0)
    fixture.fill(2)
    assert messages(fixture) == 4
    again = sourcing(fixture, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=4)
    assert again.seqs == [4, 5, 6, 7]
    fixture.advance(1.5, 0.5)
    confirm(fixture, again)
    assert messages(fixture) == 0


def test_what_a_copy_took_before_it_was_cut_off_goes_when_it_confirms_what_follows(fixture: ConsumerFixture) -> None:
    """The answer to flow control was lost with the link.

    The position in the next request does not stand for it: what comes before may still be on its way to the copy's
    flash.
    """
    box = sourcing(fixture)
    fixture.fill(3)
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    fixture.fill(4)
    fixture.leave(box)
    fixture.advance(30.0, 1.0)
    assert messages(fixture) == 4
    again = sourcing(fixture, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=7)
    assert messages(fixture) == 4
    fixture.advance(1.5, 0.5)
    confirm(fixture, again)
    assert messages(fixture) == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_copy_took_goes_while_its_earlier_consumer_has_not_ended(
    fixture: ConsumerFixture, restarts: bool
) -> None:
    """The earlier consumer had sent it, and kept it: for ever if the daemon ended before that consumer."""
    named = {"metadata": {"_nats.src.stream": "AGGREGATE", "_nats.src.domain": "hub"}}
    box = sourcing(fixture, **named)
    fixture.fill(5)
    fixture.leave(box)
    again = sourcing(fixture, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=5, **named)
    assert again.seqs == [5]
    fixture.advance(1.5, 0.5)
    confirm(fixture, again)
    assert messages(fixture.restart() if restarts else fixture) == 0


def test_what_only_an_ended_consumer_kept_goes_at_the_next_start(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.add("C", ack_policy="explicit", filter_subject="s.0")
    box = sourcing(fixture)
    fixture.put(b"s.0", b"job")
    fixture.fill(3, subject=b"s.1")
    fixture.leave(box)
    again = sourcing(fixture, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=4)
    fixture.advance(1.5, 0.5)
    monkeypatch.setattr(Retention, "confirmed", lambda *_: None)  # as if another consumer needed them
    confirm(fixture, again)
    assert [seq for seq, _ in fixture.held("S")] == [1, 2, 3, 4]
    restarted = fixture.restart()
    restarted.advance(0.1, 0.1)
    restarted.commit()
    assert [seq for seq, _ in restarted.held("S")] == [1], "the worker's, which the copy has"


def test_a_restart_forgets_no_copy(fixture: ConsumerFixture) -> None:
    box = sourcing(fixture)
    fixture.fill(3)
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    fixture.fill(2)
    restarted = fixture.restart()
    restarted.fill(1)
    assert messages(restarted) == 3
    again = sourcing(restarted, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=4)
    assert again.seqs == [4, 5, 6]


def test_a_work_queue_keeps_what_its_consumer_has_not_acknowledged(tmp_path: Path) -> None:
    """The copy has everything; messages that no consumer's filter matches leave the queue, jobs stay for their worker."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="workqueue")
    fixture.add("C", ack_policy="explicit", filter_subject="s.0")
    box = sourcing(fixture)
    for _ in range(2):
        fixture.put(b"s.0", b"job")
        fixture.put(b"s.1", b"nobody's")
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    assert [seq for seq, _ in fixture.held("S")] == [1, 3]
    [first, second] = fixture.pull(batch=2).take()
    fixture.ack(first)
    assert [seq for seq, _ in fixture.held("S")] == [3]
    again = fixture.restart()
    assert [seq for seq, _ in again.held("S")] == [3]
    again.ack(second)
    assert again.held("S") == []


def test_a_message_stays_until_all_its_copies_have_it(fixture: ConsumerFixture) -> None:
    hub, backup = sourcing(fixture), sourcing(fixture, "$JS.S.bbbbbbbb", filter_subject="s.x")
    fixture.fill(2)
    fixture.advance(1.5, 0.5)
    confirm(fixture, hub)
    assert messages(fixture) == 2
    confirm(fixture, backup)
    assert messages(fixture) == 0
    fixture.leave(backup)
    fixture.advance(30.0, 1.0)  # its consumer ends
    fixture.fill(2)
    fixture.advance(1.5, 0.5)
    confirm(fixture, hub)
    assert messages(fixture) == 2


def test_a_copy_that_is_given_up_leaves_a_work_queue_what_no_other_copy_has(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="workqueue")
    hub = sourcing(fixture, filter_subject="s.x")
    backup = sourcing(fixture, "$JS.S.bbbbbbbb", name="BACKUP", filter_subject="s.>")
    fixture.put(b"s.y")
    fixture.fill(3)
    fixture.advance(1.5, 0.5)
    confirm(fixture, hub)
    fixture.fill(1)
    assert messages(fixture) == 5
    fixture.request("CONSUMER.DELETE.S.BACKUP")
    fixture.leave(backup)
    assert [seq for seq, _ in fixture.held("S")] == [1, 5]


def test_other_consumers_of_an_interest_stream_keep_theirs(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="interest")
    fixture.add("C", ack_policy="explicit")
    box = sourcing(fixture)
    fixture.fill(2)
    fixture.advance(1.5, 0.5)
    confirm(fixture, box)
    assert messages(fixture) == 2
    fixture.ack(*fixture.pull(batch=2).take())
    assert messages(fixture) == 0
    fixture.leave(box)
    fixture.advance(30.0, 1.0)
    fixture.fill(1)
    fixture.ack(*fixture.pull(batch=1).take())
    assert messages(fixture) == 1, "the copy that is away has not confirmed it"


def test_a_copy_that_is_given_up_keeps_nothing(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="interest")
    box = sourcing(fixture, name="COPY")
    fixture.fill(2)
    fixture.advance(1.5, 0.5)
    assert messages(fixture) == 2
    fixture.request("CONSUMER.DELETE.S.COPY")
    fixture.leave(box)
    fixture.fill(2)
    assert messages(fixture) == 0


@pytest.mark.parametrize(
    ("retention", "others"),
    [("workqueue", {}), ("interest", {"D": {"filter_subject": "s.1"}}), ("interest", {"D": {}})],
)
def test_an_acknowledgement_removes_nothing_that_is_not_the_consumers_alone(
    tmp_path: Path, retention: str, others: dict[str, dict[str, str]]
) -> None:
    """One for a message that its filter does not match, or that another consumer has not acknowledged."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention=retention)
    wanted = {"filter_subject": "s.0"} if "filter_subject" in others.get("D", {"filter_subject": ""}) else {}
    fixture.add("C", ack_policy="explicit", **wanted)
    for name, config in others.items():
        fixture.add(name, ack_policy="explicit", **config)
    fixture.put(b"s.1", b"another's")
    fixture.put(b"s.0", b"its own")
    fixture.ack(*fixture.pull(batch=2).take())
    fixture.account.publish(b"$JS.ACK.S.C.1.1.1.0.0", origin=fixture.client)
    fixture.commit()
    fixture.advance(1.0, 0.5)
    assert fixture.held("S")[0] == (1, b"another's")


def test_a_rate_is_told_as_long_as_it_is_of_the_present(fixture: ConsumerFixture) -> None:
    box = sourcing(fixture)
    for _ in range(2):
        fixture.fill(5)
        fixture.advance(2.5, 0.5)
        confirm(fixture, box)
    downstream = fixture.stream("S").downstream
    assert (downstream.statuses()[0].linked, downstream.statuses()[0].rate) == (True, 2.0)
    fixture.advance(58.0, 1.0)
    assert downstream.statuses()[0].rate == 2.0
    fixture.advance(2.0, 1.0)
    assert downstream.statuses()[0].rate == 0.0
