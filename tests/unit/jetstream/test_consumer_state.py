"""A consumer's delivery state: the rules one by one, then against a plain model under random histories."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eyot_daemon.jetstream.consumer.state import AckRules, ConsumerState, GivenUp
from eyot_daemon.jetstream.consumer.stored_state import StateFormatError, decode_state, encode_state

EXPLICIT = AckRules("explicit", ack_wait_s=30.0)


def redeliver_all(state: ConsumerState, now: float) -> list[tuple[int, int]]:
    """Everything in the redelivery queue leaves at `now`: [(sseq, deliveries)]."""
    out = []
    while sseq := state.next_redelivery():
        _, deliveries = state.redeliver(sseq, now)
        out.append((sseq, deliveries))
    return out


def test_explicit_acks_move_the_floor_over_gaps() -> None:
    state = ConsumerState(EXPLICIT, delivered_sseq=9)
    assert state.ack_floor() == (0, 9)
    assert state.deliver([10, 11, 15], now=0) == 1
    assert (state.delivered_cseq, state.delivered_sseq) == (3, 15)
    assert state.ack_floor() == (0, 9)
    assert state.ack(11) == (11,)
    assert state.ack_floor() == (0, 9)
    assert state.ack(10) == (10,)
    assert state.ack_floor() == (2, 14)  # nothing is pending below 15
    assert state.ack(10) == ()
    assert state.ack(15) == (15,)
    assert state.ack_floor() == (3, 15)


class CountedSeq(int):
    """A sequence that counts how often it is compared."""

    compared = 0

    def __gt__(self, other: int) -> bool:
        CountedSeq.compared += 1
        return int(self) > other

    def __ge__(self, other: int) -> bool:
        CountedSeq.compared += 1
        return int(self) >= other

    def __lt__(self, other: int) -> bool:
        CountedSeq.compared += 1
        return int(self) < other


@pytest.mark.parametrize("keeps_given_up", [False, True])
def test_acknowledging_up_to_one_looks_at_no_other_message_that_came_again(keeps_given_up: bool) -> None:
    state = ConsumerState(AckRules("all", ack_wait_s=30.0))
    state.keeps_given_up = keeps_given_up
    state.deliver(range(1, 1001), now=0)
    state.give_back(range(1, 1001))
    assert len(redeliver_all(state, 0)) == 1000
    CountedSeq.compared = 0
    assert state.ack(CountedSeq(1)) == [1]
    assert state.remove_below(CountedSeq(3)) == [2]
    assert CountedSeq.compared <= 10
    assert state.num_redelivered == 998


def test_given_up_messages_do_not_count_as_redelivered() -> None:
    rules = AckRules("explicit", ack_wait_s=30.0, max_deliver=2)
    state = ConsumerState(rules)
    state.keeps_given_up = True
    state.deliver([1, 2, 3], now=0)
    state.give_back([1, 2])
    redeliver_all(state, 0)
    state.nak(1, 0, now=0)
    assert [each.sseq for each in state.take_given_up()] == [1]
    assert (state.given_up(), state.num_redelivered) == ([1], 1)
    again = decode_state(encode_state(state, 0, 0), rules, 0, 0)
    again.keeps_given_up = True
    assert (again.given_up(), again.num_redelivered) == ([1], 1)
    assert again.ack(1) == ()
    assert again.ack_each([1, 2]) == [2]
    assert (again.given_up(), again.num_redelivered, again.redelivered) == ([], 0, {})


def test_floor_uses_the_first_delivery_of_a_redelivered_message() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1, 2], now=0)
    state.nak(1, 0, now=0)
    assert redeliver_all(state, 0) == [(1, 2)]
    state.deliver([3], now=0)
    assert state.delivered_cseq == 4
    state.ack(2)
    assert state.ack_floor() == (0, 0)
    state.ack(1)
    assert state.ack_floor() == (3, 2)


def test_ack_all_takes_everything_up_to_it() -> None:
    state = ConsumerState(AckRules("all"))
    state.deliver([3, 4, 7, 9], now=0)
    assert state.ack(7) == [3, 4, 7]
    assert state.ack(4) == []
    assert list(state.pending) == [9]
    assert state.ack_floor() == (3, 8)


def test_ack_none_is_acknowledged_at_delivery() -> None:
    state = ConsumerState(AckRules("none"))
    state.deliver([1, 2, 5], now=0)
    assert state.num_ack_pending == 0
    assert state.ack_floor() == (3, 5)
    assert state.room() > 1 << 60


def test_unacknowledged_messages_fall_due_and_never_early() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1, 2, 3], now=100.0)
    state.ack(2)
    assert state.next_due >= 130.0
    assert state.expire(129.9) == 0
    assert state.expire(130.2) == 2
    assert redeliver_all(state, 130.2) == [(1, 2), (3, 2)]
    assert state.delivered_cseq == 5
    assert state.redelivered == {1: 2, 3: 2}
    state.ack(1)
    assert state.redelivered == {3: 2}


def test_backoff_by_number_of_deliveries() -> None:
    state = ConsumerState(AckRules("explicit", ack_wait_s=1.0, backoff_s=(1.0, 10.0), max_deliver=4))
    state.deliver([1], now=0)
    at = 0.0
    for wait in (1.0, 10.0, 10.0):
        assert state.expire(at + wait - 0.01) == 0
        at += wait * 1.01
        assert state.expire(at) == 1
        assert state.next_redelivery() == 1
        state.redeliver(1, at)
    assert state.expire(at + 11) == 1
    assert state.take_given_up() == [GivenUp(1, 4)]
    assert state.take_given_up() == []
    assert state.num_ack_pending == 0
    assert state.next_redelivery() == 0
    assert state.ack_floor() == (4, 1)


def test_nak_at_once_with_delay_and_at_the_last_delivery() -> None:
    state = ConsumerState(AckRules("explicit", max_deliver=2))
    state.deliver([1, 2], now=0)
    assert state.nak(2, 0, now=0)
    assert state.nak(2, 0, now=0)  # twice is once
    assert state.queued == 1
    assert state.nak(1, 5.0, now=0)
    assert state.expire(4.9) == 0
    assert state.expire(5.1) == 1
    assert redeliver_all(state, 5.1) == [(2, 2), (1, 2)]
    assert state.nak(2, 0, now=6)
    assert state.take_given_up() == [GivenUp(2, 2)]
    assert not state.nak(99, 0, now=6)


def test_delayed_nak_takes_a_queued_message_back() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1], now=0)
    state.nak(1, 0, now=0)
    state.nak(1, 60.0, now=0)
    assert state.next_redelivery() == 0
    assert state.expire(61) == 1


def test_work_in_progress_starts_the_wait_anew() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1], now=0)
    assert state.progress(1, now=20)
    assert state.expire(31) == 0
    assert state.expire(50.2) == 1
    assert state.progress(1, now=51)  # even out of the queue
    assert state.next_redelivery() == 0
    assert not state.progress(2, now=51)


def test_another_wait_holds_for_what_waits_already() -> None:
    state = ConsumerState(AckRules("explicit", ack_wait_s=3600.0))
    state.deliver([1, 2, 3], now=0)
    state.nak(2, 7200.0, now=0)
    state.nak(3, 0, now=0)
    state.set_rules(AckRules("explicit", ack_wait_s=1.0), now=100)
    assert state.queue_order() == [3]
    assert state.next_due <= 101.1
    assert state.expire(101.1) == 1  # 2 was to wait longer than messages do
    assert state.queue_order() == [3, 1]
    assert state.redeliver(1, 102) == (4, 2)
    state.set_rules(AckRules("explicit", backoff_s=(1.0, 50.0)), now=102)
    assert state.expire(150) == 0
    assert state.expire(153) == 1


def test_what_was_given_up_is_kept_until_it_is_acknowledged_or_gone() -> None:
    state = ConsumerState(AckRules("explicit", ack_wait_s=1.0, max_deliver=1))
    state.keeps_given_up = True
    state.deliver([1, 2, 3, 4, 5], now=0)
    state.expire(2)
    assert state.num_ack_pending == 0
    assert state.ack_floor() == (5, 5)
    assert state.given_up() == [1, 2, 3, 4, 5]
    assert not state.ack(3)
    assert state.ack_each([4]) == []
    state.remove_below(2)
    state.forget_given_up([5])
    assert state.given_up() == [2]
    assert state.redelivered == {2: 1}


def test_max_ack_pending_bounds_new_messages() -> None:
    state = ConsumerState(AckRules("explicit", max_ack_pending=3))
    assert state.room() == 3
    state.deliver([1, 2, 3], now=0)
    assert state.room() == 0
    state.ack(2)
    assert state.room() == 1
    state.set_rules(AckRules("explicit", max_ack_pending=1), now=0.0)
    assert state.room() == 0


def test_messages_that_leave_the_stream() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1, 2, 3, 4], now=0)
    assert state.remove(2)
    assert not state.remove(2)
    assert state.remove_below(4) == [1, 3]
    assert state.ack_floor() == (3, 3)
    assert state.remove_below(10) == [4]
    assert (state.delivered_cseq, state.delivered_sseq) == (4, 9)
    assert state.ack_floor() == (4, 9)


def test_stored_waits_shrink_by_the_time_passed_and_survive_clock_jumps() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver([1, 2, 3], now=0)
    state.nak(2, 0, now=0)
    record = encode_state(state, now=10.0, now_ns=1_000_000_000_000)

    later = decode_state(record, EXPLICIT, now=500.0, now_ns=1_005_000_000_000)
    assert later.next_redelivery() == 2
    assert later.expire(514.9) == 0
    assert later.expire(515.2) == 2

    forward = decode_state(record, EXPLICIT, now=500.0, now_ns=10**18)
    assert forward.expire(500.1) == 2
    backward = decode_state(record, EXPLICIT, now=500.0, now_ns=0)
    assert backward.expire(519.9) == 0
    assert backward.expire(520.2) == 2


def test_a_batch_is_one_run() -> None:
    state = ConsumerState(EXPLICIT)
    state.deliver(range(1, 1001), now=0)
    assert len(encode_state(state, 0.5, 10**18)) < 60
    for sseq in range(1, 1001, 2):
        state.ack(sseq)
    assert len(encode_state(state, 0.5, 10**18)) < 4000


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x97\x02\x00\x00\x00\x90\x90\x90", b"\x97\x01\x00\x00\x00\x91\x01\x90\x90"]
)
def test_unreadable_state_is_refused(data: bytes) -> None:
    with pytest.raises(StateFormatError):
        decode_state(data, EXPLICIT, 0, 0)


class Model(RuleBasedStateMachine):
    """ConsumerState against the plainest thing that could be right: a dict of what each message is waiting for."""

    @initialize(
        policy=st.sampled_from(["explicit", "all"]),
        max_deliver=st.sampled_from([-1, 1, 3]),
        max_ack_pending=st.sampled_from([-1, 4, 50]),
        backoff=st.sampled_from([(), (2.0,), (1.0, 5.0, 20.0)]),
    )
    def start(self, policy: str, max_deliver: int, max_ack_pending: int, backoff: tuple[float, ...]) -> None:
        self.rules = AckRules(policy, 10.0, backoff, max_deliver, max_ack_pending)  # type: ignore[arg-type]
        self.state = ConsumerState(self.rules)
        self.now = 1000.0
        self.cseq = 0
        self.sseq = 0
        self.first: dict[int, int] = {}  # sseq -> cseq of its first delivery, pending ones only
        self.due: dict[int, float] = {}  # not before this
        self.count: dict[int, int] = {}
        self.queue: list[int] = []
        self.given_up = 0

    def forget(self, sseq: int) -> None:
        del self.first[sseq], self.due[sseq], self.count[sseq]
        if sseq in self.queue:
            self.queue.remove(sseq)

    def wait(self, deliveries: int) -> float:
        backoff = self.rules.backoff_s
        return backoff[min(deliveries - 1, len(backoff) - 1)] if backoff else self.rules.ack_wait_s

    @rule(gap=st.integers(0, 3), want=st.integers(1, 6))
    def deliver(self, gap: int, want: int) -> None:
        number = min(want, self.state.room())
        if not number:
            return
        seqs = [self.sseq + gap + i for i in range(1, number + 1)]
        assert self.state.deliver(seqs, self.now) == self.cseq + 1
        for sseq in seqs:
            self.cseq += 1
            self.first[sseq] = self.cseq
            self.due[sseq] = self.now + self.wait(1)
            self.count[sseq] = 1
        self.sseq = seqs[-1]

    @rule(back=st.integers(0, 12))
    def ack(self, back: int) -> None:
        sseq = self.sseq - back
        if self.rules.policy == "all":
            expected = [each for each in sorted(self.first) if each <= sseq]
        else:
            expected = [sseq] if sseq in self.first else []
        assert list(self.state.ack(sseq)) == expected
        for each in expected:
            self.forget(each)

    @precondition(lambda self: self.rules.policy == "explicit")
    @rule(backs=st.lists(st.integers(0, 12), max_size=8))
    def ack_each(self, backs: list[int]) -> None:
        sseqs = [self.sseq - back for back in backs]
        expected = [sseq for sseq in dict.fromkeys(sseqs) if sseq in self.first]
        assert self.state.ack_each(sseqs) == expected
        for each in expected:
            self.forget(each)

    @rule(back=st.integers(0, 12), delay=st.sampled_from([0.0, 0.5, 30.0]))
    def nak(self, back: int, delay: float) -> None:
        sseq = self.sseq - back
        assert self.state.nak(sseq, delay, self.now) == (sseq in self.first)
        if sseq not in self.first:
            return
        if delay:
            self.due[sseq] = self.now + delay
            if sseq in self.queue:
                self.queue.remove(sseq)
        elif sseq not in self.queue:
            self.to_queue(sseq)

    def to_queue(self, sseq: int) -> None:
        if 0 < self.rules.max_deliver <= self.count[sseq]:
            self.given_up += 1
            self.forget(sseq)
        else:
            self.queue.append(sseq)

    @rule(back=st.integers(0, 12))
    def progress(self, back: int) -> None:
        sseq = self.sseq - back
        assert self.state.progress(sseq, self.now) == (sseq in self.first)
        if sseq in self.first:
            self.due[sseq] = self.now + self.wait(self.count[sseq])
            if sseq in self.queue:
                self.queue.remove(sseq)

    @rule(back=st.integers(0, 12))
    def term(self, back: int) -> None:
        sseq = self.sseq - back
        assert self.state.remove(sseq) == (sseq in self.first)
        if sseq in self.first:
            self.forget(sseq)

    @rule(back=st.integers(-2, 12))
    def purge(self, back: int) -> None:
        below = self.sseq - back
        expected = [each for each in sorted(self.first) if each < below]
        assert self.state.remove_below(below) == expected
        for each in expected:
            self.forget(each)
        self.sseq = max(self.sseq, below - 1)

    @rule(seconds=st.sampled_from([0.2, 3.0, 12.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.state.expire(self.now)
        held = {sseq for sseq, (_, due) in self.state.pending.items() if due != math.inf}
        waiting = sorted(each for each in self.first if each not in self.queue)
        for sseq in waiting:
            if sseq in held:  # at most a tick late
                assert self.due[sseq] > self.now - 40.0 / 256 - 0.01
            else:
                assert self.due[sseq] <= self.now
                self.to_queue(sseq)

    @precondition(lambda self: self.queue)
    @rule()
    def redeliver(self) -> None:
        sseq = self.state.next_redelivery()
        assert sseq == self.queue.pop(0)
        self.cseq += 1
        self.count[sseq] += 1
        assert self.state.redeliver(sseq, self.now) == (self.cseq, self.count[sseq])
        self.due[sseq] = self.now + self.wait(self.count[sseq])

    @rule()
    def store_and_read(self) -> None:
        record = encode_state(self.state, self.now, int(self.now * 1e9))
        given_up = self.state.take_given_up()
        self.given_up -= len(given_up)
        self.state = decode_state(record, self.rules, self.now, int(self.now * 1e9))

    @invariant()
    def agree(self) -> None:
        state = self.state
        assert {sseq: cseq for sseq, (cseq, _) in state.pending.items()} == self.first
        assert list(state.pending) == sorted(state.pending)
        assert state.queue_order() == self.queue
        assert (state.delivered_cseq, state.delivered_sseq) == (self.cseq, self.sseq)
        assert state.redelivered == {sseq: count for sseq, count in self.count.items() if count > 1}
        lowest = min(self.first, default=None)
        floor = (self.cseq, self.sseq) if lowest is None else (self.first[lowest] - 1, lowest - 1)
        assert state.ack_floor() == floor
        assert len(state._given_up) == self.given_up
        if self.rules.max_ack_pending > 0:
            assert len(state.pending) <= self.rules.max_ack_pending
        waiting = [due for _, due in state.pending.values() if due != math.inf]
        assert state.next_due == min(waiting, default=math.inf)


Model.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase
