"""A device's record: figures, and state that outlives releases."""

from __future__ import annotations

import statistics

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from eyot_hub.jobs.devices.device_record import CLASSES, DeviceRecord, from_state, take, to_state


class Earlier(msgspec.Struct, kw_only=True):
    """A release that knew less."""

    last_event_us: int | None = None
    readings: int = 0


class Later(DeviceRecord, kw_only=True):
    """A release that knows more."""

    firmware: str = "?"


def test_a_new_device() -> None:
    record = from_state(None)
    assert (record.readings, record.last_event_us, record.delay_s(0.5)) == (0, None, None)


@given(delays_ms=st.lists(st.integers(-5_000, 40 * 86_400_000), min_size=1, max_size=50))
def test_delays(delays_ms: list[int]) -> None:
    record = DeviceRecord()
    take(record, [(1_000_000_000, 1_000_000_000 + delay * 1000, False, None) for delay in delays_ms])
    true = statistics.quantiles([max(0, delay) for delay in delays_ms] * 2, n=2)[0] / 1000
    found = record.delay_s(0.5)
    assert found is not None
    median_low = sorted(max(0, delay) for delay in delays_ms)[(len(delays_ms) - 1) // 2] / 1000
    assert median_low <= found <= max(2 * true, 0.001)
    assert (record.readings, sum(record.delays), len(record.delays)) == (len(delays_ms), len(delays_ms), CLASSES)
    assert record.late == sum(delay > 60_000 for delay in delays_ms)


def test_statuses_out_of_order() -> None:
    record = DeviceRecord()
    take(record, [(20, 100, True, 5), (10, 300, True, 70), (21, 200, True, None), (5, 50, False, None)])
    assert (record.backlog, record.backlog_at_us) == (None, 21)
    assert (record.last_stored_us, record.first_event_us, record.last_event_us) == (300, 5, 5)


def test_records_of_other_releases() -> None:
    """Both ways: an upgrade, and back."""
    earlier = from_state(msgspec.msgpack.encode(Earlier(last_event_us=7, readings=3)))
    assert (earlier.last_event_us, earlier.readings, earlier.late, sum(earlier.delays)) == (7, 3, 0, 0)
    earlier.reading(9, 10)
    later = from_state(msgspec.msgpack.encode(Later(readings=4, firmware="2")))
    assert later.readings == 4
    assert msgspec.msgpack.decode(to_state(earlier), type=Later).readings == 4


def test_readings_of_a_release_that_noted_no_delays_do_not_count_in_them() -> None:
    record = DeviceRecord(readings=150, last_event_us=0, last_stored_us=0)
    assert record.delay_s(0.5) is None
    for _ in range(20):
        record.reading(0, 1_000_000)
    assert record.delay_s(0.5) == record.delay_s(0.95) == 1.024
