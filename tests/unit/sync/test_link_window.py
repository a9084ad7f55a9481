"""How much may be under way: what a link carries in a round trip and half a second, found out from the PONGs."""

from __future__ import annotations

from collections import deque

import pytest

from eyot_sync.leaf.window import TARGET_S, WINDOW_FIRST, WINDOW_MIN, LinkWindow


class Radio:
    """A link of a rate and a round trip; whatever the window lets go, goes, and with every answer an urgent message of
    `urgent` bytes. `queue_s`: how long what was sent last waits for its turn.
    """

    def __init__(self, rate: float, rtt_s: float, frame: int, urgent: int = 0) -> None:
        self.rate = rate
        self.rtt_s = rtt_s
        self.frame = frame
        self.urgent = urgent
        self.now = 0.0
        self.window = LinkWindow()
        self.queue_s = 0.0
        self.carried = 0
        self._busy_until = 0.0
        self.asked: deque[float] = deque()
        self._ping()

    def run(self, until: float) -> None:
        while self.now < until:
            while room := self.window.room(self.now):
                self._send(max(self.frame, room // self.frame * self.frame))
            if self.now < self.window.room_at < self.asked[0]:
                self.now = self.window.room_at
                continue
            self.now = self.asked.popleft()
            assert self.window.answered(self.now) is not None
            if self.urgent:
                self._send(self.urgent)

    def _send(self, size: int) -> None:
        self._busy_until = max(self.now, self._busy_until) + size / self.rate
        self.carried += size
        self.queue_s = self._busy_until - self.now
        if self.window.sent(size, self.now):
            self._ping()

    def _ping(self) -> None:
        self.window.marked(self.now)
        self.asked.append(max(self.now, self._busy_until) + self.rtt_s)


@pytest.mark.parametrize("urgent", [0, 60])
@pytest.mark.parametrize("frame", [100, 2000, 16_000, 30_000])
@pytest.mark.parametrize(("rate", "rtt_s"), [(6250.0, 0.6), (125_000.0, 0.05), (1e6, 0.6), (1e9, 0.001)])
def test_a_link_is_kept_busy_and_nothing_waits_long(rate: float, rtt_s: float, frame: int, urgent: int) -> None:
    radio = Radio(rate, rtt_s, frame, urgent)
    radio.run(60.0)
    before = radio.carried
    radio.run(120.0)
    assert (radio.carried - before) / 60.0 > 0.9 * rate
    assert radio.queue_s <= 2 * TARGET_S + frame / rate + 2 * rtt_s + 0.1


def test_before_anything_is_known_little_is_under_way() -> None:
    window = LinkWindow()
    assert window.room(0.0) == WINDOW_FIRST // 4
    assert window.answered(1.0) is None
    assert window.sent(WINDOW_FIRST, 0.0)
    assert window.room(0.0) == 0
    assert window.patience_s == 0.0


def test_a_link_that_turns_slow_gets_a_smaller_window() -> None:
    radio = Radio(1e6, 0.1, 1000)
    radio.run(10.0)
    wide = radio.window.window
    radio.rate = 10_000.0
    radio.run(200.0)
    assert radio.window.window < wide / 20
    assert radio.window.window >= WINDOW_MIN


def test_who_has_much_to_take_may_be_silent_for_longer() -> None:
    radio = Radio(6250.0, 0.6, 1000)
    radio.run(20.0)
    assert radio.window.patience_s < 3.0
    assert radio.window.sent(1 << 20, radio.now)
    radio.window.marked(radio.now)
    for at in radio.asked:
        assert radio.window.answered(at) is not None
    assert 300 < radio.window.patience_s < 500


def test_what_is_sent_to_a_silent_peer_excuses_no_silence() -> None:
    """A half-open link: one answer stays away, and whoever asks again and again goes on sending."""
    window = LinkWindow()
    window.sent(600, 0.0)
    window.marked(0.0)
    window.answered(1.0)
    assert window.rate == 600.0
    window.sent(3000, 1.0)
    window.marked(1.0)
    expected = window.patience_s
    assert 0.0 < expected < 10.0
    for second in range(2, 60):
        if window.sent(1000, float(second)):
            window.marked(float(second))
    assert window.patience_s == expected
