"""Delays between attempts, and the size of slices."""

from __future__ import annotations

import random

import pytest

from eyot_sync.link.backoff import Backoff
from eyot_sync.link.pacing import SLICE_BYTES_FIRST, SLICE_BYTES_MAX, SLICE_BYTES_MIN, SliceSizer


def test_ceiling_doubles_up_to_the_cap_and_starts_again() -> None:
    backoff = Backoff(0.5, 3.0, random.Random(1))
    ceilings = []
    for _ in range(5):
        ceilings.append(backoff.ceiling_s)
        assert 0 <= backoff.next_delay_s() <= ceilings[-1]
    assert ceilings == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.ceiling_s == 0.5


def test_jitter_is_full() -> None:
    backoff = Backoff(1.0, 1.0, random.Random(1))
    delays = sorted(backoff.next_delay_s() for _ in range(1000))
    assert delays[100] < 0.2
    assert delays[900] > 0.8


def test_months_offline_do_not_overflow() -> None:
    backoff = Backoff(1.0, 2.0, random.Random(1))
    backoff.failures = 10_000_000
    assert backoff.next_delay_s() <= 2.0


def test_nonsense_is_refused() -> None:
    for base_s, cap_s in ((0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="backoff needs"):
            Backoff(base_s, cap_s, random.Random(1))


def test_slices_shrink_at_once_and_grow_by_doubling() -> None:
    sizer = SliceSizer(target_s=0.5)
    sizer.sent(SLICE_BYTES_FIRST, 0.00001)
    assert sizer.slice_bytes == 2 * SLICE_BYTES_FIRST
    sizer.sent(2 * SLICE_BYTES_FIRST, 5.2)  # 50 kbit/s
    assert sizer.slice_bytes == SLICE_BYTES_MIN
    for _ in range(10):
        sizer.sent(sizer.slice_bytes, sizer.slice_bytes / 100_000)
    assert sizer.slice_bytes == 50_000
    for _ in range(10):
        sizer.sent(sizer.slice_bytes, 0.0)
    assert sizer.slice_bytes == SLICE_BYTES_MAX


def test_small_sends_say_nothing() -> None:
    sizer = SliceSizer()
    for _ in range(10):
        sizer.sent(0, 0.0)
        sizer.sent(100, 0.00001)
        sizer.sent(100, 10.0)
    assert sizer.slice_bytes == SLICE_BYTES_FIRST
