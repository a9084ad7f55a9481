"""Due times that are corrected in slices after the clock was set back: nothing is forgotten, and nothing is due twice."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from eyot_daemon.jetstream.ingest import schedules
from eyot_daemon.jetstream.ingest.due_times import Due, DueTimes, SetBack
from support.jetstream.fixture import Fixture
from support.manual_clock import ManualClock

S = 1_000_000_000
#: 2026-01-01T00:00:00Z
START = 1_767_225_600 * S
SEEDS = 300


class Model:
    """Every schedule by itself: when it is due, and what it has not been corrected by."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self.missed: dict[int, list[SetBack]] = {}
        self.set_backs: list[SetBack] = []

    def push(self, seq: int, due_ns: int, clock: int) -> None:
        self.due[seq], self.missed[seq] = due_ns, self.set_backs[clock:]

    def set_back(self, jump: SetBack) -> None:
        self.set_backs.append(jump)
        for missed in self.missed.values():
            missed.append(jump)

    def correct(self, due: Due, set_backs: Iterable[SetBack]) -> int:
        assert self.due[due.seq] == due.due_ns
        assert list(set_backs) == self.missed[due.seq]
        for jump in self.missed[due.seq]:
            self.due[due.seq] = min(self.due[due.seq], jump.now_ns + due.seq % 7)
        self.missed[due.seq] = []
        return self.due[due.seq]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_if_each_schedule_stood_alone(seed: int) -> None:
    rng = random.Random(seed)
    times, model, now, seq = DueTimes(), Model(), 10_000, 0
    staged: list[tuple[int, int, int]] = []  # sequence, due time, and how often the clock had been set back
    for _ in range(200):
        match rng.randrange(6):
            case 0:
                seq += 1
                staged.append((seq, now + rng.randrange(1000), times.clock))
            case 1 if staged:
                number, due_ns, clock = staged.pop(rng.randrange(len(staged)))
                times.push([(due_ns, number)], clock)
                model.push(number, due_ns, clock)
            case 2:
                now -= rng.randrange(500)
                times.set_back(now, 500)
                model.set_back(SetBack(now, 500))
            case 3:
                times.correct(rng.randrange(4), model.correct)
            case 4:
                now += rng.randrange(200)
            case 5:
                while (due := times.pop(now)) is not None:
                    first = min((due_ns, number) for number, due_ns in model.due.items())
                    assert due == first
                    del model.due[due.seq], model.missed[due.seq]
                assert all(due_ns > now for due_ns in model.due.values())
        assert len(times) == len(model.due)
        assert times.first_ns == min(model.due.values(), default=None)
        assert times.uncorrected == sum(bool(missed) for missed in model.missed.values())
    times.correct(1000, model.correct)
    assert times.uncorrected == 0
    assert sorted(iter(lambda: times.pop(1 << 62), None)) == sorted(
        Due(due, number) for number, due in model.due.items()
    )


def play(folder: Path, seed: int, per_turn: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """Play a random history around clocks that are set back, with a turn between two operations; return what was made, and when."""
    monkeypatch.setattr(schedules, "CORRECTED_PER_TURN", per_turn)
    rng = random.Random(seed)
    fixture = Fixture(folder, clock=ManualClock(START))
    fixture.create(allow_msg_schedules=True)

    def put(number: int) -> None:
        pattern = rng.choice(["@every 7s", "@every 60s", "0 * * * * *", f"@at {'2026-01-01T00:05:00Z'}"])
        fixture.put(b"s.plan.%d" % number, b"", {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"s.made.{number}"})

    for number in range(12):
        put(number)
    for _ in range(4):
        fixture.clock.jump(years := rng.randrange(4, 400) * 86_400)
        fixture.advance(40)
        fixture.run_on()
        fixture.clock.jump(-years)
        fixture.js.server.wall_clock.watch()
        for _ in range(6):
            number = rng.randrange(14)
            match rng.randrange(4):
                case 0:
                    put(number)
                case 1:
                    fixture.request("STREAM.PURGE.S", {"filter": f"s.plan.{number}"})
                case 2:
                    fixture.put(b"s.plan.%d" % number, b"no schedule any more")
                case 3:
                    last = fixture.stream().log.last_for(b"s.plan.%d" % number)
                    if last is not None:
                        fixture.request("STREAM.MSG.DELETE.S", {"seq": last.seq})
            fixture.broker.timers.run_due(fixture.clock.monotonic(), 1)
            fixture.commit()
        fixture.run_on()
        for _ in range(5):
            fixture.advance(13)
            fixture.run_on()
    read = fixture.stream().log.read(1, max_messages=10_000, max_bytes=1 << 30, filters=(b"s.made.>",))
    # The order within a turn may differ.
    made = sorted((message.ts_ns // S, message.subject) for message in read.messages)
    fixture.js.stop()
    fixture.store.close()
    return made


@pytest.mark.parametrize("seed", range(20))
def test_slices_make_what_one_turn_makes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is published, purged or deleted between two slices."""
    at_once = play(tmp_path / "1", seed, 1 << 30, monkeypatch)
    assert at_once
    assert play(tmp_path / "2", seed, 1, monkeypatch) == at_once
