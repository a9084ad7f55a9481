"""Push consumers on a real broker and store: interest, heartbeats, flow control, rate, pace, the hidden ones of mirrors."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.jetstream.consumer.delivery import BACKLOG_MAX
from eyot_daemon.jetstream.consumer.push_delivery import FlowControl, PushDelivery, RateLimit
from eyot_daemon.jetstream.consumer.reader import READ_BYTES_MAX
from eyot_daemon.router.room import Room
from eyot_store.errors import StoreError
from eyot_sync.policy.stream_gate import FULL, Hold
from support.clients.destinations import LeafRecorder
from support.jetstream.consumers import Box, ClientBox, ConsumerFixture

S = 1_000_000_000

#: What nats-server 2.10 to 2.12 sends for a mirror, apart from the names.
MIRROR_CONSUMER: dict[str, Any] = {
    "deliver_policy": "all",
    "ack_policy": "none",
    "ack_wait": 79_200 * S,
    "max_deliver": 1,
    "replay_policy": "instant",
    "flow_control": True,
    "deliver_subject": "$JS.M.Tjp6GY26",
    "idle_heartbeat": S,
    "inactive_threshold": 10 * S,
    "num_replicas": 0,
    "direct": True,
}


@pytest.fixture(params=[False, True], ids=["services", "clients"])
def fixture(tmp_path: Path, request: pytest.FixtureRequest) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path, clients=request.param)
    fixture.create(subjects=["s.>", "t.>"])
    return fixture


# -- the window and the bucket, alone ------------------------------------------------------------------------------


def test_window_asks_at_half_stops_when_full_and_doubles_on_answer() -> None:
    flow = FlowControl(limit=1600)
    assert flow.window == 100
    assert not flow.delivered(50)
    assert flow.delivered(10)
    flow.ask(b"fc.1")
    assert not flow.delivered(30)  # one request at a time
    assert not flow.stalled
    flow.delivered(20)
    assert flow.stalled
    assert not flow.answered(b"fc.0")
    assert flow.stalled
    assert flow.answered(b"fc.1")
    assert (flow.window, flow.in_flight, flow.awaited) == (200, 50, b"")
    assert not flow.answered(b"fc.1")
    for _ in range(10):
        flow.ask(b"x")
        flow.answered(b"x")
    assert flow.window == 1600
    flow.reset()
    assert (flow.window, flow.in_flight) == (100, 0)


def test_rate_limit_is_kept_over_time() -> None:
    rate = RateLimit(8000, now=0.0)  # 1000 bytes a second
    now, sent = 0.0, 0
    while now < 20.0:
        wait = rate.wait_s(now)
        if wait:
            now += wait
            continue
        rate.spend(300)
        sent += 300
    assert 19_000 <= sent <= 22_000


# -- delivery ------------------------------------------------------------------------------------------------------


def test_nothing_leaves_before_somebody_listens(fixture: ConsumerFixture) -> None:
    fixture.fill(3)
    created = fixture.add(deliver_subject="d.1")
    assert created["num_pending"] == 3
    assert "push_bound" not in created
    # As in nats-server: somebody has to listen on that very subject, outside of queue groups.
    others = fixture.listen(b"d.*"), fixture.listen(b"d.1", queue=b"q")
    assert [other.got for other in others] == [[], []]
    for other in others:
        fixture.leave(other)
    box = fixture.listen(b"d.1")
    assert box.seqs == [1, 2, 3]
    assert [ack.pending for ack in box.acks] == [2, 1, 0]
    assert [got.subject for got in box.got] == [b"s.x"] * 3
    assert fixture.info()["push_bound"] is True
    fixture.leave(box)
    fixture.fill(2)
    again = fixture.listen(b"d.1")
    assert again.seqs == [4, 5]
    assert [ack.consumer_seq for ack in again.acks] == [4, 5]


def test_a_delivery_at_the_end_of_the_stream_does_not_read_again(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.add(deliver_subject="d.1")
    box = fixture.listen(b"d.1")
    reads, deliver_new = [], PushDelivery._deliver_new

    def counted(self: PushDelivery, budget: int, now: float) -> int:
        reads.append(deliver_new(self, budget, now))
        return reads[-1]

    monkeypatch.setattr(PushDelivery, "_deliver_new", counted)
    for number in range(1, 4):
        fixture.fill(1)
        assert box.seqs == list(range(1, number + 1))
    assert reads == [1, 1, 1]


def test_deliver_group_needs_a_member(fixture: ConsumerFixture) -> None:
    fixture.fill(4)
    fixture.add(deliver_subject="d.1", deliver_group="g", ack_policy="explicit")
    plain = fixture.listen(b"d.1")
    other = fixture.listen(b"d.1", queue=b"h")
    assert plain.got == other.got == []
    fixture.leave(plain)
    fixture.leave(other)
    first, second = fixture.listen(b"d.1", queue=b"g"), fixture.listen(b"d.1", queue=b"g")
    assert sorted(first.seqs + second.seqs) == [1, 2, 3, 4]
    fixture.fill(40)
    assert sorted(first.seqs + second.seqs) == list(range(1, 45))
    assert len(second.seqs) > 5


def test_redelivery_to_a_push_consumer(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    fixture.add(deliver_subject="d.1", ack_policy="explicit", ack_wait=10 * S)
    box = fixture.listen(b"d.1")
    fixture.ack(box.messages[1])
    fixture.answer_to(box.messages[0], b"-NAK")
    fixture.commit()
    fixture.advance(10.2)
    assert [(ack.stream_seq, ack.delivered) for ack in box.acks] == [(1, 1), (2, 1), (1, 2), (1, 3)]


def test_heartbeats_only_when_idle_and_only_to_somebody(fixture: ConsumerFixture) -> None:
    fixture.add(deliver_subject="d.1", idle_heartbeat=S)
    fixture.advance(5.0, step_s=0.5)
    box = fixture.listen(b"d.1")
    fixture.fill(2)
    fixture.advance(0.9)
    assert box.statuses == []
    fixture.advance(0.2)
    assert box.statuses == ["100 Idle Heartbeat"]
    assert box.got[-1].header == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    )
    assert (box.got[-1].reply, box.got[-1].payload) == (b"", b"")
    fixture.advance(3.0, step_s=0.5)
    assert len(box.statuses) == 4
    fixture.leave(box)
    fixture.advance(3.0, step_s=0.5)
    assert len(box.statuses) == 4


def test_flow_control_stalls_and_goes_on(fixture: ConsumerFixture) -> None:
    fixture.fill(60, size=100_000)
    fixture.add(deliver_subject="d.1", flow_control=True, idle_heartbeat=S)
    box = fixture.listen(b"d.1")
    fixture.run_on()
    requests = [got for got in box.got if got.reply.startswith(b"$JS.FC.S.C.")]
    assert len(requests) == 1
    assert requests[0].header == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert box.got.index(requests[0]) == 11  # past half of the first window of 2 MiB
    assert len(box.messages) == 21  # the one that filled it included
    fixture.advance(1.1)
    assert box.statuses[-1] == "100 Idle Heartbeat"
    assert b"Nats-Consumer-Stalled: " + requests[0].reply + b"\r\n" in box.got[-1].header
    fixture.account.publish(requests[0].reply[:-1] + b"?", origin=fixture.client)
    fixture.commit()
    assert len(box.messages) == 21
    fixture.account.publish(requests[0].reply, origin=fixture.client)
    fixture.commit()
    fixture.run_on()
    assert len(box.messages) == 53  # the window has doubled
    while len(box.messages) < 60:
        latest = [got for got in box.got if got.reply.startswith(b"$JS.FC.")][-1]
        fixture.account.publish(latest.reply, origin=fixture.client)
        fixture.commit()
        fixture.run_on()
    assert box.seqs == list(range(1, 61))
    assert [ack.consumer_seq for ack in box.acks] == list(range(1, 61))


def test_rate_limited_delivery(fixture: ConsumerFixture) -> None:
    fixture.fill(30, size=1000)
    fixture.add(deliver_subject="d.1", rate_limit_bps=8 * 5000)
    box = fixture.listen(b"d.1")
    early = len(box.seqs)
    assert 3 <= early <= 7
    fixture.advance(2.0, step_s=0.05)
    assert 10 <= len(box.seqs) <= early + 12
    fixture.advance(5.0, step_s=0.05)
    assert box.seqs == list(range(1, 31))


def test_original_replay_keeps_the_gaps_and_catches_up(fixture: ConsumerFixture) -> None:
    for gap_s in (0.0, 0.5, 2.0):
        fixture.clock.advance(gap_s)
        fixture.fill(1)
    fixture.add(deliver_subject="d.1", replay_policy="original")
    box = fixture.listen(b"d.1")
    assert box.seqs == [1]
    fixture.advance(0.4)
    assert box.seqs == [1]
    fixture.advance(0.2)
    assert box.seqs == [1, 2]
    fixture.advance(1.8)
    assert box.seqs == [1, 2]
    fixture.advance(0.3)
    assert box.seqs == [1, 2, 3]
    fixture.clock.advance(100)
    fixture.fill(2)
    assert box.seqs == [1, 2, 3, 4, 5]


def test_a_subscriber_that_does_not_read_is_waited_for(fixture: ConsumerFixture) -> None:
    fixture.fill(30, size=400_000)
    fixture.add(deliver_subject="d.1")

    class Slow(Box):
        out = bytearray()

        def deliver(self, *args: Any) -> bool:
            self.out += args[4]
            return super().deliver(*args)

    slow = Slow()
    fixture.account.subscribe(b"d.1", slow)
    fixture.commit()
    fixture.advance(1.0, step_s=0.1)
    got = len(slow.got)
    assert BACKLOG_MAX <= got * 400_000 <= BACKLOG_MAX + 2 * READ_BYTES_MAX
    slow.out.clear()
    fixture.advance(1.0, step_s=0.1)
    assert len(slow.got) > got


def test_a_client_that_does_not_read_is_waited_for(tmp_path: Path) -> None:
    class Slow(ClientBox):
        reads = False

        def flush(self) -> None:
            if self.reads:
                super().flush()

    fixture = ConsumerFixture(tmp_path)
    fixture.create(subjects=["s.>"])
    fixture.fill(30, size=400_000)
    fixture.add(deliver_subject="d.1")
    slow = Slow()
    slow.sub = fixture.account.subscribe(b"d.1", slow, sid=b"1")
    fixture.commit()
    fixture.advance(1.0, step_s=0.1)
    assert BACKLOG_MAX < len(slow.out) < BACKLOG_MAX + 2 * READ_BYTES_MAX
    assert slow.sub.delivered == slow.out_msgs == len(slow.out) // 400_000 < 30
    slow.reads = True
    slow.flush()
    fixture.advance(1.0, step_s=0.1)
    assert slow.seqs == list(range(1, 31))
    assert slow.written == slow.sub.delivered == slow.out_msgs == 30
    assert slow.out_bytes == 30 * 400_000


def test_many_messages_take_many_turns(fixture: ConsumerFixture) -> None:
    fixture.fill(3000)
    fixture.add(deliver_subject="d.1", ack_policy="explicit", max_ack_pending=2000)
    box = fixture.listen(b"d.1")
    assert 0 < len(box.got) < 2000
    fixture.run_on()
    assert box.seqs == list(range(1, 2001))
    fixture.ack(*box.take())
    assert box.seqs == list(range(2001, 3001))


def test_ephemeral_push_consumer_dies_without_a_listener(fixture: ConsumerFixture) -> None:
    name = fixture.add_ephemeral(deliver_subject="d.1")["name"]
    assert len(name) == 8
    fixture.advance(4.0, step_s=0.5)
    box = fixture.listen(b"d.1")
    fixture.advance(20.0, step_s=0.5)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == [name]
    fixture.leave(box)
    fixture.advance(4.0, step_s=0.5)
    box = fixture.listen(b"d.1")
    fixture.advance(3.0, step_s=0.5)
    fixture.leave(box)
    fixture.advance(4.5, step_s=0.5)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == [name]
    fixture.advance(1.0, step_s=0.5)
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []


def test_push_consumer_refuses_pull_requests(fixture: ConsumerFixture) -> None:
    fixture.add(deliver_subject="d.1")
    assert fixture.pull(batch=1).statuses == ["409 Consumer is push based"]


# -- mirrors and sources of others ---------------------------------------------------------------------------------


def test_hidden_consumer_of_a_mirror(fixture: ConsumerFixture) -> None:
    fixture.fill(3)
    created = fixture.request(
        "CONSUMER.CREATE.S", {"stream_name": "S", "config": MIRROR_CONSUMER, "action": ""}, header={}
    )
    name = created["name"]
    assert created["delivered"] == {"consumer_seq": 0, "stream_seq": 0}
    assert created["config"]["deliver_subject"] == "$JS.M.Tjp6GY26"
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []
    assert fixture.request("STREAM.INFO.S")["state"]["consumer_count"] == 0
    # the other side listens only after the answer, over a leaf link
    leaf = LeafRecorder()
    fixture.account.subscribe(b"$JS.M.Tjp6GY26", leaf)
    fixture.commit()
    assert [got.subject for got in leaf.got] == [b"$JS.M.Tjp6GY26"] * 3
    reply, _, original = leaf.got[0].reply.partition(b"@")
    assert reply.startswith(b"$JS.ACK.S.%b.1.1.1." % name.encode())
    assert reply.endswith(b".2")
    assert original == b"s.x"
    fixture.advance(1.1)
    beat, asked = leaf.got[-2:]
    assert beat.header.startswith(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n")
    assert beat.reply == b""
    # whoever copies is asked what has arrived, long before its window is half full
    assert asked.header.startswith(b"NATS/1.0 100 FlowControl Request\r\n")
    assert asked.reply.startswith(b"$JS.FC.S.%b." % name.encode())


@pytest.mark.parametrize(
    ("config", "before"),
    [
        ({**MIRROR_CONSUMER, "deliver_policy": "by_start_sequence", "opt_start_seq": 4}, 3),
        ({"deliver_subject": "$JS.M.Tjp6GY26", "mem_storage": True, "deliver_policy": "all"}, 0),
        ({"deliver_subject": "$JS.M.Tjp6GY26", "mem_storage": True, "deliver_policy": "new"}, 3),
        ({"deliver_subject": "$JS.M.Tjp6GY26", "mem_storage": True, "deliver_policy": "last"}, 2),
    ],
)
def test_a_start_among_what_then_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], before: int
) -> None:
    """What is stored, and what limits remove for it, fails after the start was chosen: nothing is passed over."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create(max_msgs=5)
    fixture.fill(3)
    for _ in range(10):
        fixture.publish(b"s.x")
    fixture.broker.flush()
    asked = fixture.publish(
        b"$JS.API.CONSUMER.CREATE.S", msgspec.json.encode({"stream_name": "S", "config": config, "action": ""})
    )
    with monkeypatch.context() as full:
        committer = fixture.store._committer
        full.setattr(committer, "commit", lambda group: [StoreError("io", "as expected")] * len(group))
        fixture.commit()
    created = msgspec.json.decode(fixture.answer(asked) or b"{}")
    assert created["delivered"] == {"consumer_seq": 0, "stream_seq": before}
    box = fixture.listen(b"$JS.M.Tjp6GY26")
    fixture.fill(2)
    assert box.seqs == list(range(before + 1, 6))


@pytest.mark.parametrize(("start", "first"), [(1, 3), (4, 4), (6, 6), (99, 6)])
def test_where_a_mirror_resumes(fixture: ConsumerFixture, start: int, first: int) -> None:
    """Sequences 1 and 2 are gone; a start beyond the end is the end."""
    fixture.fill(5)
    fixture.request("STREAM.PURGE.S", {"seq": 3})
    config = {**MIRROR_CONSUMER, "deliver_policy": "by_start_sequence", "opt_start_seq": start}
    created = fixture.request("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    assert created["delivered"]["stream_seq"] == first - 1
    box = fixture.listen(b"$JS.M.*")
    fixture.fill(1)
    assert box.seqs == list(range(first, 7))
    assert [ack.consumer_seq for ack in box.acks] == list(range(1, len(box.acks) + 1))


def test_filtered_source_in_the_newer_form(fixture: ConsumerFixture) -> None:
    fixture.fill(2, subject=b"t.o")
    fixture.fill(2, subject=b"s.o.1")
    config = {**MIRROR_CONSUMER, "name": "src-abcdefgh", "filter_subject": "s.o.1", "deliver_subject": "$JS.S.1"}
    subject = "CONSUMER.CREATE.S.src-abcdefgh.s.o.1"
    created = fixture.request(subject, {"stream_name": "S", "config": config})
    assert created["name"] == "src-abcdefgh"
    del config["name"]  # a filtered mirror of 2.9 to 2.12 names itself in the subject only
    other = fixture.request(subject.replace("src", "mirror"), {"stream_name": "S", "config": config})
    assert other["name"] == "mirror-abcdefgh"
    box = fixture.listen(b"$JS.S.1")
    assert sorted(box.seqs) == [3, 3, 4, 4]


def test_mirrors_of_2_14_get_a_consumer_of_their_own_each_time(fixture: ConsumerFixture) -> None:
    config = {**MIRROR_CONSUMER, "name": "JS_MIRROR_D3XHVvU4", "sourcing": True}
    body = {"stream_name": "S", "config": config, "action": ""}
    names = {fixture.request("CONSUMER.CREATE.S", body)["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch("JS_MIRROR_D3XHVvU4-[0-9A-Za-z]{8}", name) for name in names)


def test_what_this_server_cannot_do_for_a_newer_one_is_refused_by_level(fixture: ConsumerFixture) -> None:
    config = {**MIRROR_CONSUMER, "name": "JS_MIRROR_D3XHVvU4", "sourcing": True}
    body = {"stream_name": "S", "config": config, "action": ""}
    # Makes the newer server ask again in the older form.
    refused = fixture.request("CONSUMER.CREATE.S", body, header={"Nats-Required-Api-Level": "5"})
    assert refused["error"]["err_code"] == 10185
    config = {**MIRROR_CONSUMER, "name": "JS_MIRROR_D3XHVvU4_Abcdefgh"}
    accepted = fixture.request("CONSUMER.CREATE.S", {"stream_name": "S", "config": config, "action": ""})
    assert accepted["name"] == "JS_MIRROR_D3XHVvU4_Abcdefgh"


def test_hidden_consumer_is_gone_after_its_threshold_and_after_a_restart(fixture: ConsumerFixture) -> None:
    fixture.request("CONSUMER.CREATE.S", {"stream_name": "S", "config": MIRROR_CONSUMER})
    box = fixture.listen(b"$JS.M.>")
    fixture.advance(30.0, step_s=0.5)
    assert len(fixture.stream().consumers) == 1
    fixture.leave(box)
    fixture.advance(9.5, step_s=0.5)
    assert len(fixture.stream().consumers) == 1
    fixture.advance(1.0, step_s=0.5)
    assert len(fixture.stream().consumers) == 0
    fixture.request("CONSUMER.CREATE.S", {"stream_name": "S", "config": MIRROR_CONSUMER})
    assert len(fixture.restart().stream().consumers) == 0


def test_a_leaf_link_with_a_full_queue_is_waited_for(fixture: ConsumerFixture) -> None:
    class SlowLink(LeafRecorder):
        backlog = 0

        def hold(self, stream: bytes) -> Hold | None:
            return FULL if self.backlog > 1 << 20 else None

        def deliver_leaf(self, *args: Any) -> bool:
            self.backlog += len(args[3])
            return bool(super().deliver_leaf(*args))

    fixture.fill(2000, size=4000)
    fixture.add(deliver_subject="d.1")
    link = SlowLink()
    fixture.account.subscribe(b"d.1", link)
    fixture.commit()
    fixture.advance(5.0, step_s=0.05)
    assert 200 < len(link.got) < 1000
    for _ in range(20):
        link.backlog = 0
        fixture.advance(0.5, step_s=0.05)
    assert len(link.got) == 2000


@pytest.mark.parametrize("emptied", ["by the end of the turn", "later"])
def test_a_receiver_that_has_room_again_waits_for_no_clock(fixture: ConsumerFixture, emptied: str) -> None:
    class FastLink(LeafRecorder):
        backlog = 0

        def __init__(self) -> None:
            super().__init__()
            self.room = Room()

        def hold(self, stream: bytes) -> Hold | None:
            return FULL if self.backlog > 1 << 18 else None

        def deliver_leaf(self, *args: Any) -> bool:
            self.backlog += len(args[3])
            return bool(super().deliver_leaf(*args))

        def empty(self) -> None:
            self.backlog = 0
            self.room.made()

    fixture.fill(2000, size=4000)
    fixture.add(deliver_subject="d.1")
    link = FastLink()
    fixture.account.subscribe(b"d.1", link)
    fixture.commit()
    for _ in range(20):
        if emptied == "later":
            fixture.run_on()
            assert link.room or len(link.got) == 2000
        link.empty()
        fixture.run_on(1)
    assert len(link.got) == 2000


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_told_of_a_new_consumer_is_where_it_begins(fixture: ConsumerFixture, durable: bool) -> None:
    """Also when a commit is under way meanwhile: who mirrors takes what lies before `delivered` for gone."""
    fixture.fill(200)
    box = fixture.listen(b"$JS.M.Tjp6GY26")
    config = {**MIRROR_CONSUMER, "deliver_policy": "by_start_sequence", "opt_start_seq": 101}
    if durable:
        config = {name: value for name, value in config.items() if name not in ("direct", "inactive_threshold")}
        config["durable_name"] = "C"
    subject = b"$JS.API.CONSUMER.CREATE.S" + (b".C" if durable else b"")
    fixture.account.publish(b"s.x", payload=b"under way", origin=fixture.client)
    fixture.broker.flush()
    reply = fixture.publish(subject, msgspec.json.encode({"stream_name": "S", "config": config}))
    for _ in range(3):
        fixture.broker.flush()
    assert box.got == []  # the answer comes first
    fixture.commit()
    answer = msgspec.json.decode(fixture.answer(reply) or b"")
    assert (answer["delivered"]["consumer_seq"], answer["delivered"]["stream_seq"]) == (0, 100)
    assert answer["num_pending"] == 101
    assert box.seqs == list(range(101, 202))
