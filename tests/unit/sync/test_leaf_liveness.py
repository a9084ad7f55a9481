"""When a link sends a PING, and when it counts as dead. Time is an argument."""

from __future__ import annotations

import random

import pytest

from eyot_sync.leaf.liveness import Liveness, Pulse


def begun(now: float) -> Liveness:
    return Liveness(
        now, ping_interval_s=120.0, ping_max=2, silence_max_s=12.0, always_ping=True, rng=random.Random(int(now))
    )


def told(liveness: Liveness, patience_s: float, until: float) -> list[tuple[float, Pulse]]:
    """What each tick at the time asked for says. Every tick does something, or the next one is later."""
    out = []
    while (now := liveness.next_deadline) <= until:
        pulse = liveness.tick(now, patience_s)
        if pulse is not None:
            out.append((now, pulse))
        if pulse is Pulse.STALE:
            break
        assert liveness.next_deadline > now
    return out


def test_a_silent_peer_is_asked_and_given_up() -> None:
    liveness = begun(0.0)
    liveness.heard(100.0)
    assert told(liveness, 0.0, 200.0)[-3:] == [(104.0, Pulse.PING), (108.0, Pulse.PING), (112.0, Pulse.STALE)]


def test_a_peer_that_has_much_to_take_is_given_time() -> None:
    liveness = begun(0.0)
    liveness.heard(100.0)
    assert told(liveness, 7.0, 200.0)[-1] == (119.0, Pulse.STALE)


@pytest.mark.parametrize(("always_ping", "pings"), [(True, [1, 11]), (False, [11, 21])])
def test_without_a_limit_of_silence_unanswered_pings_end_the_link(always_ping: bool, pings: list[int]) -> None:
    """The schedule of nats-server. A hub asks only a peer that was silent for an interval."""
    liveness = Liveness(
        0.0, ping_interval_s=10.0, ping_max=2, silence_max_s=0.0, always_ping=always_ping, rng=random.Random(1)
    )
    times = [(int(at), pulse) for at, pulse in told(liveness, 0.0, 100.0)]
    liveness.heard(0.0)
    assert liveness.tick(liveness.next_deadline) is Pulse.PING, "earlier ones are answered"
    assert times == [*((at, Pulse.PING) for at in pings), (pings[-1] + 10, Pulse.STALE)]


def test_a_process_that_was_away_asks_before_it_gives_up() -> None:
    liveness = begun(0.0)
    liveness.heard(100.0)
    assert liveness.tick(5000.0) is Pulse.PING
    assert told(liveness, 0.0, 6000.0) == [(5004.0, Pulse.STALE)]


@pytest.mark.parametrize("seed", range(2))
def test_no_tick_is_in_vain(seed: int) -> None:
    """Whatever the sums round to: a tick at the very moment that was asked for is not too early."""
    random_ = random.Random(seed)
    for _ in range(100):
        began = random_.uniform(0, 1e6)
        liveness = begun(began)
        liveness.heard(began + random_.uniform(0, 100))
        assert told(liveness, random_.uniform(0, 10), began + 1000)[-1][1] is Pulse.STALE


def test_sums_that_round_to_a_moment_later() -> None:
    liveness = begun(30.0)
    liveness.heard(51.53032850903957)
    assert told(liveness, 3.0948988336011762, 200.0)[-1] == (66.62522734264074, Pulse.STALE)
