"""Waiting pull requests: bounds, turns, expiry, heartbeats, status lines, priority groups."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.jetstream.consumer.pull import (
    IN_TURN_MAX,
    PullQueue,
    RefusedRequest,
    check_limits,
    check_priority,
    read_request,
)
from eyot_wire.jetstream.consumer import NextRequest

S = 1_000_000_000


class Waiting:
    """A PullQueue with a clock and listeners under the test's control."""

    def __init__(self, max_waiting: int = 512, **options: Any) -> None:
        self.gone: set[bytes] = set()
        self.pins = iter(f"pin{i}" for i in range(100))
        self.queue = PullQueue(max_waiting, lambda reply: reply not in self.gone, lambda: next(self.pins), **options)
        self.now = 1000.0

    def ask(self, reply: bytes, available: int = 0, **members: Any) -> None:
        self.queue.add(NextRequest(**members), reply, self.now, available, (7, 9))

    def refused(self, reply: bytes, available: int = 0, **members: Any) -> bytes:
        with pytest.raises(RefusedRequest) as refused:
            self.ask(reply, available, **members)
        return refused.value.header

    def take(self, size: int = 100, num_pending: int = 1, ack_pending: int = 0) -> bytes | None:
        request = self.queue.take(size, self.now, num_pending, ack_pending)
        return request.reply if request else None

    def sweep(self, exhausted: bool = True) -> list[tuple[bytes, bytes]]:
        self.queue.sweep(self.now, exhausted, (7, 9))
        return self.said()

    def said(self) -> list[tuple[bytes, bytes]]:
        out, self.queue.out = self.queue.out, []
        return out


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (b"", 1),
        (b"  ", 1),
        (b"5", 5),
        (b" 17 \n", 17),
        (b"junk", 1),
        (b"1_0", 1),
        (b"+7", 7),
        (b"9" * 19, 1),
        (b"9" * 5000, 1),
        (b'{"batch":3}', 3),
        (b"{}", 0),
    ],
)
def test_bodies(body: bytes, batch: int) -> None:
    assert read_request(body).batch == batch


def test_json_body_with_members_of_the_future() -> None:
    wanted = read_request(json.dumps({"batch": 2, "expires": 5 * S, "no_wait": True, "novelty": {"a": 1}}).encode())
    assert (wanted.batch, wanted.expires, wanted.no_wait) == (2, 5 * S, True)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"batch":"x"}', b"NATS/1.0 400 Bad Request - json: cannot unmarshal"),
        (b'{"batch":1,"idle_heartbeat":1000000000}', b"NATS/1.0 400 Bad Request - heartbeat value too large\r\n\r\n"),
        (
            b'{"batch":1,"idle_heartbeat":1000000000,"expires":1999999999}',
            b"NATS/1.0 400 Bad Request - heartbeat value too large\r\n\r\n",
        ),
    ],
)
def test_bad_bodies(body: bytes, line: bytes) -> None:
    with pytest.raises(RefusedRequest) as refused:
        read_request(body)
    assert refused.value.header.startswith(line)


def test_limits_of_the_consumer() -> None:
    check_limits(NextRequest(batch=10, expires=S, max_bytes=100), 10, S, 100)
    check_limits(NextRequest(batch=10**9, expires=10**12, max_bytes=10**9), 0, 0, 0)
    for wanted, line in (
        (NextRequest(batch=11), b"NATS/1.0 409 Exceeded MaxRequestBatch of 10\r\n\r\n"),
        (NextRequest(expires=3 * S), b"NATS/1.0 409 Exceeded MaxRequestExpires of 1.5s\r\n\r\n"),
        (NextRequest(max_bytes=101), b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of 100\r\n\r\n"),
    ):
        with pytest.raises(RefusedRequest) as refused:
            check_limits(wanted, 10, 3 * S // 2, 100)
        assert refused.value.header == line


@pytest.mark.parametrize(
    ("members", "policy", "line"),
    [
        ({"min_pending": 5}, "none", b"400 Bad Request - Not a Overflow Priority consumer"),
        ({"min_ack_pending": 5}, "pinned_client", b"400 Bad Request - Not a Overflow Priority consumer"),
        ({"id": "x"}, "overflow", b"400 Bad Request - Not a Pinned Client Priority consumer"),
        ({"priority": 10, "group": "A"}, "prioritized", b"400 Bad Request - Priority must be between 0 and 9"),
        ({}, "overflow", b"400 Bad Request - Priority Group missing"),
        ({"group": "B"}, "overflow", b"400 Bad Request - Invalid Priority Group"),
    ],
)
def test_what_a_request_says_of_priority_must_fit(members: dict[str, Any], policy: str, line: bytes) -> None:
    with pytest.raises(RefusedRequest) as refused:
        check_priority(NextRequest(**members), policy, ["A"])
    assert refused.value.header == b"NATS/1.0 " + line + b"\r\n\r\n"


def test_requests_take_turns() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=2)
    waiting.ask(b"b", batch=3)
    assert waiting.queue.demand() == 5
    assert [waiting.take() for _ in range(6)] == [b"a", b"b", b"a", b"b", b"b", None]
    assert waiting.said() == []


def test_a_batch_of_nought_gets_one() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=0)
    assert [waiting.take(), waiting.take()] == [b"a", None]


def test_a_sole_request_is_served_at_a_stroke() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=5)
    request = waiting.queue.solo(waiting.now)
    assert request is not None
    waiting.queue.served(request, 3, waiting.now)
    assert (request.batch, len(waiting.queue)) == (2, 1)
    waiting.queue.served(request, 2, waiting.now)
    assert len(waiting.queue) == 0
    waiting.ask(b"a", batch=5, max_bytes=100)
    assert waiting.queue.solo(waiting.now) is None


def test_expired_requests_say_what_was_left() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=3, expires=2 * S, max_bytes=1000)
    waiting.ask(b"b", batch=1, expires=60 * S)
    assert waiting.queue.next_deadline == 1002.0
    assert waiting.take(size=300) == b"a"
    waiting.now += 2.0
    assert waiting.sweep() == [
        (b"a", b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 700\r\n\r\n")
    ]
    waiting.now += 58.0
    assert waiting.take() is None
    assert waiting.said() == [
        (b"b", b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n")
    ]
    assert waiting.queue.next_deadline == float("inf")


def test_no_wait_with_nothing_there() -> None:
    waiting = Waiting()
    assert waiting.refused(b"a", batch=1, no_wait=True) == b"NATS/1.0 404 No Messages\r\n\r\n"
    waiting.ask(b"b", batch=1, no_wait=True, expires=S)
    assert waiting.sweep() == []  # waits for its expiry
    waiting.now += 1.0
    assert [reply for reply, header in waiting.sweep() if b"408 Request Timeout" in header] == [b"b"]


def test_no_wait_ends_when_what_was_there_is_delivered() -> None:
    waiting = Waiting()
    waiting.ask(b"a", available=2, batch=5, no_wait=True)
    waiting.ask(b"b", available=9, batch=5, no_wait=True, expires=S)
    assert [waiting.take(), waiting.take()] == [b"a", b"b"]
    assert waiting.sweep(exhausted=False) == []
    assert waiting.sweep() == [(b"a", b"NATS/1.0 404 No Messages\r\n\r\n"), (b"b", b"NATS/1.0 404 No Messages\r\n\r\n")]


def test_no_wait_behind_requests_that_want_all() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=10)
    assert waiting.refused(b"b", available=5, batch=1, no_wait=True) == b"NATS/1.0 408 Requests Pending\r\n\r\n"
    waiting.ask(b"b", available=10, batch=1, no_wait=True)


def test_max_bytes() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=10, max_bytes=250)
    assert [waiting.take(100), waiting.take(100)] == [b"a", b"a"]
    assert waiting.take(100) is None
    assert waiting.said() == [
        (
            b"a",
            b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 8\r\nNats-Pending-Bytes: 50\r\n\r\n",
        )
    ]
    waiting.ask(b"b", batch=10, max_bytes=100)
    request = waiting.queue.take(100, waiting.now, 1, 0)
    assert request is not None
    assert PullQueue.batch_completed(request) == b""  # all bytes used: the request simply ends
    assert len(waiting.queue) == 0


def test_batch_completed_tells_the_bytes_left() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=1, max_bytes=250)
    request = waiting.queue.take(100, waiting.now, 1, 0)
    assert request is not None
    assert PullQueue.batch_completed(request) == (
        b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 150\r\n\r\n"
    )


def test_requests_whose_inbox_is_gone_are_dropped_without_a_word() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=5)
    waiting.ask(b"b", batch=5)
    waiting.ask(b"c", batch=5)
    waiting.gone = {b"a", b"c"}
    assert waiting.take() == b"b"
    assert [request.reply for request in waiting.queue] == [b"c", b"b"]
    waiting.queue.drop_unheard()
    assert [request.reply for request in waiting.queue] == [b"b"]


def test_a_request_outlives_the_reconnect_of_its_client() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=5, expires=60 * S)
    waiting.gone = {b"a"}
    assert waiting.sweep() == []
    waiting.gone.clear()
    assert waiting.take() == b"a"


def test_a_heartbeat_that_nobody_would_hear_ends_the_request() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=2, expires=30 * S, idle_heartbeat=5 * S)
    waiting.gone = {b"a"}
    waiting.now += 5.0
    assert waiting.sweep() == []
    assert len(waiting.queue) == 0


def test_heartbeats_while_waiting() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=2, expires=30 * S, idle_heartbeat=5 * S)
    assert waiting.queue.next_deadline == 1005.0
    waiting.now += 5.0
    assert waiting.sweep() == [
        (b"a", b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 9\r\n\r\n")
    ]
    waiting.now += 3.0
    assert waiting.take() == b"a"
    assert waiting.queue.next_deadline == 1013.0


def test_bounded_queue() -> None:
    waiting = Waiting(max_waiting=2)
    waiting.ask(b"a", batch=1)
    waiting.ask(b"b", batch=1)
    assert waiting.refused(b"c", batch=1) == b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
    waiting.ask(b"c", batch=1, idle_heartbeat=S, expires=4 * S)  # not told: it will miss its heartbeats
    assert len(waiting.queue) == 2
    waiting.gone = {b"a"}
    assert waiting.refused(b"d", batch=1) == b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
    waiting.now += 1.0  # a full queue is searched for the dead once a second
    waiting.ask(b"d", batch=1)
    assert [request.reply for request in waiting.queue] == [b"b", b"d"]


def test_the_end_of_the_consumer() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=3)
    waiting.ask(b"b", batch=1)
    waiting.queue.end_all(lambda request: request.status("409 Server Shutdown"))
    assert [header.split(b"\r\n")[:2] for _, header in waiting.said()] == [
        [b"NATS/1.0 409 Server Shutdown", b"Nats-Pending-Messages: 3"],
        [b"NATS/1.0 409 Server Shutdown", b"Nats-Pending-Messages: 1"],
    ]
    assert len(waiting.queue) == 0


def test_prioritized_serves_low_numbers_first_in_turns() -> None:
    waiting = Waiting(policy="prioritized")
    waiting.ask(b"late", batch=1, priority=5, group="A")
    waiting.ask(b"x", batch=2, priority=1, group="A")
    waiting.ask(b"y", batch=2, priority=1, group="A")
    assert [waiting.take() for _ in range(5)] == [b"x", b"y", b"x", b"y", b"late"]


def test_overflow_serves_from_its_thresholds_on() -> None:
    waiting = Waiting(policy="overflow")
    waiting.ask(b"a", batch=5, min_pending=10, group="A")
    waiting.ask(b"b", batch=5, min_ack_pending=3, group="A")
    assert waiting.take(num_pending=9, ack_pending=2) is None
    assert waiting.take(num_pending=10, ack_pending=2) == b"a"
    assert waiting.take(num_pending=1, ack_pending=3) == b"b"
    waiting.ask(b"c", batch=1, group="A")
    assert waiting.take(num_pending=1, ack_pending=0) == b"c"


def test_pinned_client() -> None:
    waiting = Waiting(policy="pinned_client", pin_ttl_s=10.0)
    waiting.ask(b"a", batch=2, group="A")
    waiting.ask(b"b", batch=2, group="A")
    assert waiting.take() == b"a"
    assert waiting.queue.pinned == ["pin0"]
    assert waiting.take() == b"a"
    assert waiting.take() is None  # b waits in reserve
    waiting.now += 9.0
    waiting.ask(b"a", batch=1, group="A", id="pin0")
    assert waiting.queue.next_deadline == 1019.0
    assert waiting.take() == b"a"
    assert waiting.refused(b"c", batch=1, group="A", id="other") == b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
    waiting.ask(b"a", batch=1, group="A", id="pin0")
    waiting.queue.unpin()
    assert waiting.take() == b"b"
    assert waiting.take() == b"b"
    assert waiting.take() is None
    assert waiting.said() == [
        (b"a", b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n")
    ]


# -- many messages at once -----------------------------------------------------------------------------------------


def left_of(waiting: Waiting) -> list[tuple[object, ...]]:
    return [
        (one.reply, one.batch, one.max_bytes, one.delivered, one.heartbeat_at, one.expires_at) for one in waiting.queue
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0, 0, 1, 300, 5000, 10**6]), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(1, 400), max_size=60),
)
def test_messages_shared_in_turn_are_as_if_taken_one_by_one(
    asked: list[tuple[int, int, bool]], sizes: list[int]
) -> None:
    together, one_by_one = Waiting(), Waiting()
    for waiting in (together, one_by_one):
        for at, (batch, max_bytes, heartbeat) in enumerate(asked):
            heartbeat_ns = S if heartbeat else 0
            waiting.ask(b"r.%d" % at, batch=batch, max_bytes=max_bytes, idle_heartbeat=heartbeat_ns, expires=30 * S)
        waiting.now += 0.5
    assert len(together.queue.in_turn(together.now)) == len(asked)
    count = together.queue.shared(sizes)
    assert 0 <= count <= len(sizes)
    if count:
        together.queue.hand_out(sizes[:count], together.now)
    for size in sizes[:count]:
        assert one_by_one.take(size) is not None
    assert left_of(together) == left_of(one_by_one)
    assert len(together.queue) == len(asked)
    assert together.said() == one_by_one.said() == []
    if sizes and not count:
        # The very first would end a request.
        before = len(one_by_one.queue)
        one_by_one.take(sizes[0])
        for size in sizes[1 : len(asked)]:
            one_by_one.take(size)
        assert len(one_by_one.queue) < before or any(batch <= 1 for batch, _, _ in asked)


def test_in_turn_only_where_each_takes_what_comes() -> None:
    waiting = Waiting()
    waiting.ask(b"a", batch=5, expires=S)
    waiting.ask(b"b", batch=5)
    assert [one.reply for one in waiting.queue.in_turn(waiting.now)] == [b"a", b"b"]
    waiting.gone.add(b"b")
    assert not waiting.queue.in_turn(waiting.now)
    waiting.gone.clear()
    assert not waiting.queue.in_turn(waiting.now + 1)
    for number in range(IN_TURN_MAX):
        waiting.ask(b"c.%d" % number, batch=5)
    assert not waiting.queue.in_turn(waiting.now)
    overflow = Waiting(policy="overflow")
    overflow.ask(b"a", batch=5, group="g")
    assert not overflow.queue.in_turn(overflow.now)
