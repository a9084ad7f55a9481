"""The budget of a metered link: by month, never understated after a crash, unmoved by clocks that jump."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from eyot_sync.policy.budget import PACKET_OVERHEAD, Budget, carried
from eyot_sync.policy.policy import MeteredPolicy, StreamPolicy
from eyot_sync.policy.stream_gate import Meter, StreamGate, TokenBucket, spoken_time
from eyot_sync.policy.windows import parse_window

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def budget(limit: int = 1_000_000, reset_day: int = 1, saved: dict[str, int] | None = None) -> Budget:
    return Budget(limit, reset_day=reset_day, saved=saved, tz=BERLIN)


def test_a_month_is_from_its_reset_day_to_the_day_before_it() -> None:
    found = budget(reset_day=15)
    found.spend(600_000, at("2026-11-14T23:59:59"))
    found.spend(500_000, at("2026-11-15T00:00:00"))
    assert found.spent == {"2026-10-15": 600_000, "2026-11-15": 500_000}
    assert found.left_at(at("2026-12-14T23:59")) == 500_000
    assert found.resets_at(at("2026-12-14T23:59")) == at("2026-12-15T00:00")
    assert found.left_at(at("2026-12-15T00:00")) == 1_000_000
    assert found.resets_at(at("2027-02-20T00:00")) == at("2027-03-15T00:00")
    assert found.resets_at(at("2026-11-14T00:00")) == at("2026-11-15T00:00")


def test_clocks_that_jump_give_nothing_back() -> None:
    found = budget()
    now = at("2026-11-21T12:00")
    found.spend(1_000_000, now)
    assert found.left_at(now) == 0
    assert found.left_at(0.0) == 0  # a clock that was never set spends from the latest month there is
    found.left_at(at("2036-01-01T00:00"))
    assert found.left_at(now) == 0
    assert budget(saved=found.to_save()).left_at(now) == 0


@given(spendings=st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 86_400 * 40), st.booleans()), max_size=40))
def test_a_crash_never_gives_back_what_was_spent(spendings: list[tuple[int, int, bool]]) -> None:
    """What must be saved is saved (that is what `must_save` says), then the process is killed at any moment."""
    found = budget()
    spent: dict[str, int] = {}
    saved: dict[str, int] = {}
    now = at("2026-11-01T00:00")
    for size, step, crash in spendings:
        now += step
        found.spend(size, now)
        month = datetime.fromtimestamp(now, BERLIN).date().replace(day=1).isoformat()
        spent[month] = spent.get(month, 0) + size
        if found.must_save:
            saved = found.to_save()
        if crash:
            found = budget(saved=saved)
        assert found.spent_at(now) >= spent[month]
    exact = found.to_save(exact=True)
    assert all(exact[month] <= saved[month] for month in exact if exact[month])


def test_bytes_cost_their_packets() -> None:
    assert carried(6) == 6 + 2 * PACKET_OVERHEAD
    assert carried(14_000) == 14_000 + 10 * PACKET_OVERHEAD + 5 * PACKET_OVERHEAD


@given(
    rate=st.integers(16, 1_000_000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100_000)), min_size=1, max_size=60),
)
def test_no_more_leaves_than_the_rate_a_burst_and_one_message(rate: int, steps: list[tuple[float, int]]) -> None:
    bucket = TokenBucket(rate, 0.0)
    now, sent, largest = 0.0, 0, 0
    for pause, size in steps:
        now += pause
        wait_s = bucket.wait_s(now)
        if wait_s:
            assert bucket.wait_s(now + wait_s) == 0.0
            now += wait_s
        bucket.spend(size)
        sent += size
        largest = max(largest, size)
        assert sent <= rate * (now + 1) + largest + 1


def test_a_budget_holds_streams_back_the_unimportant_first() -> None:
    policy = MeteredPolicy(budget=1_000_000, reserve=100_000)
    meter = Meter(policy, budget(), BERLIN)
    plain, important = StreamGate(StreamPolicy(), 0.0, BERLIN), StreamGate(StreamPolicy(priority=8), 0.0, BERLIN)
    now = at("2026-11-21T12:00")
    meter.budget.spend(900_000, now)
    held = plain.hold(0.0, now, meter)
    assert held is not None
    assert held.reason == "budget used up but for its reserve until 1 December"
    assert held.wait_s == at("2026-12-01T00:00") - now
    assert important.hold(0.0, now, meter) is None
    assert meter.link_hold(now) is None
    meter.budget.spend(100_000, now)
    used_up = important.hold(0.0, now, meter)
    assert used_up is not None
    assert used_up.reason == "budget used up until 1 December"
    assert meter.link_hold(now) is not None
    assert plain.hold(0.0, at("2026-12-01T00:00"), meter) is None


def test_with_hold_the_link_stays() -> None:
    meter = Meter(MeteredPolicy(budget=100_000, used_up="hold"), budget(100_000), BERLIN)
    now = at("2026-11-21T12:00")
    meter.budget.spend(200_000, now)
    assert meter.link_hold(now) is None
    assert meter.hold(9, now) is not None


def test_a_stream_waits_for_its_window_and_then_for_its_rate() -> None:
    gate = StreamGate(StreamPolicy(bandwidth=1000, windows=(parse_window("sat 22:00-23:00"),)), 0.0, BERLIN)
    held = gate.hold(0.0, at("2026-11-20T21:00"))
    assert held is not None
    assert held.reason == "outside its windows until Saturday 22:00"
    inside = at("2026-11-21T22:30")
    assert gate.hold(10.0, inside) is None
    gate.sent(5000)
    limited = gate.hold(10.0, inside)
    assert limited is not None
    assert 3.9 < limited.wait_s < 4.1
    assert gate.hold(14.1, inside) is None


def test_times_are_spoken() -> None:
    now = at("2026-11-21T12:00")
    assert spoken_time(at("2026-11-21T22:00"), now, BERLIN) == "22:00"
    assert spoken_time(at("2026-11-23T06:05"), now, BERLIN) == "Monday 06:05"
    assert spoken_time(float("inf"), now) == "the configuration changes"
