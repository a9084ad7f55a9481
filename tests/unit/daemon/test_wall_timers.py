"""What ends by the wall clock, and a wall clock that is set forward over it and back: logins, accounts, activations."""

from __future__ import annotations

import random

import pytest

from eyot_daemon.auth.claims_accounts import account_options
from eyot_daemon.auth.trust import Trust
from eyot_daemon.config.operator import OperatorOptions, ResolverOptions
from eyot_daemon.turn.timers import Timers
from eyot_daemon.turn.wall_timers import LOOK_S, WallTimers
from support.manual_clock import ManualClock
from support.trust.claims import ALPHA, BETA, OPERATOR

HOUR_S = 3600.0


class Site:
    """Wall timers on the timers of a loop that runs whenever the clock moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.wall = WallTimers(self.clock, self.timers)
        self.ran: list[int] = []

    def pending(self, number: int, delay_s: float) -> None:
        self.wall.call_later(delay_s, lambda: self.ran.append(number))

    def advance(self, seconds: float) -> None:
        """Time passes; each timer runs when it is due."""
        end = self.clock.monotonic() + seconds
        while (at := self.timers.next_deadline) is not None and at <= end:
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            self.timers.run_due(self.clock.monotonic())
        self.clock.advance(end - self.clock.monotonic())


def test_they_run_when_they_are_due() -> None:
    site = Site()
    site.pending(2, 100.0)
    site.pending(1, 7.0)
    cancelled = site.wall.call_later(8.0, lambda: site.ran.append(3))
    cancelled.cancel()
    site.advance(6.9)
    assert site.ran == []
    site.advance(0.2)
    assert site.ran == [1]
    site.advance(92.8)
    assert site.ran == [1]
    site.advance(0.2)
    assert site.ran == [1, 2]
    assert len(site.timers) == 0, "nothing is pending: nothing wakes the loop"


def test_a_clock_that_is_set_forward_is_noticed() -> None:
    site = Site()
    site.pending(1, HOUR_S)
    site.clock.jump(2 * HOUR_S)
    site.advance(LOOK_S)
    assert site.ran == [1]


def test_a_clock_that_is_set_back_gives_the_time_back() -> None:
    site = Site()
    site.clock.jump(HOUR_S)
    site.pending(1, 60.0)
    site.clock.jump(-HOUR_S)
    site.advance(HOUR_S + 59.0)
    assert site.ran == []
    site.advance(2.0)
    assert site.ran == [1]


@pytest.mark.parametrize("seed", range(20))
def test_any_course_of_the_clock(seed: int) -> None:
    """Each runs once: not before the clock has shown its time, and at most LOOK_S after."""
    rng, site = random.Random(seed), Site()
    begun_ns = site.clock.now_ns()
    due_s = {number: rng.uniform(1.0, 500.0) for number in range(30)}
    for number, at_s in due_s.items():
        site.pending(number, at_s)
    passed_s = 0.0
    for _ in range(40):
        site.clock.jump(rng.choice((0.0, 0.0, rng.uniform(-100.0, 100.0))))
        site.advance(LOOK_S + 0.001)
        shown_s = (site.clock.now_ns() - begun_ns) / 1e9
        passed_s = max(passed_s, shown_s)
        assert len(set(site.ran)) == len(site.ran)
        assert {number for number, at_s in due_s.items() if at_s <= shown_s - LOOK_S} <= set(site.ran)
        assert all(due_s[number] <= passed_s for number in site.ran)


def test_accounts_and_activations_come_back_with_the_clock() -> None:
    clock = ManualClock()
    now_s = clock.now_ns() // 10**9
    export = {"type": "service", "subject": "s", "token_req": True}
    granted = ALPHA.sign(
        BETA.public, {"type": "activation", "subject": "s", "kind": "service"}, exp=now_s + 100, nbf=now_s + 10
    )
    imported = {"type": "service", "subject": "s", "account": ALPHA.public, "token": granted}
    tokens = {
        ALPHA.public: OPERATOR.account(ALPHA, exports=[export], exp=now_s + 200),
        BETA.public: OPERATOR.account(BETA, imports=[imported]),
    }
    operators = OperatorOptions(
        trusted_keys=(OPERATOR.public,), resolver=ResolverOptions(kind="memory"), preload=tuple(tokens.items())
    )
    trust = Trust(operators, clock.now_ns)

    def course(jump_s: float) -> tuple[list[str], bool, bool]:
        """What changed since the last look, whether ALPHA may be used, and whether BETA has its import."""
        clock.jump(jump_s)
        changed = trust.changed_by_time()
        accounts = {one.name: one for one in account_options(trust.accounts.values(), trust.now_s).accounts}
        return sorted(changed), trust.usable(ALPHA.public) is not None, bool(accounts[BETA.public].imports)

    assert trust.changes_with_time
    assert course(5) == ([], True, False)
    assert course(5) == ([BETA.public], True, True)
    assert course(95) == ([BETA.public], True, False)
    assert course(100) == ([ALPHA.public], False, False)
    assert trust.next_change_s() is None
    assert course(-150) == (sorted((ALPHA.public, BETA.public)), True, True)
    assert trust.next_change_s() == now_s + 100
    assert course(1) == ([], True, True)
