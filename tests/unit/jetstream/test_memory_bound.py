"""Streams in memory are bounded by the machine where nothing else bounds them."""

import tracemalloc
from pathlib import Path

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.retention.limits import MESSAGE_OVERHEAD, MemoryBound
from support.jetstream.fixture import Fixture

MIB = 1 << 20


def fixture_of(path: Path, bytes_max: int, **options: int) -> Fixture:
    fixture = Fixture(path / "store", options=JetStreamOptions(**options))
    fixture.js.server.memory_bound.bytes_max = bytes_max
    for jsa in fixture.js.accounts.values():
        jsa.set_limits(jsa.limits)
    return fixture


def test_messages_are_refused_before_the_machine_is_full(tmp_path: Path) -> None:
    fixture = fixture_of(tmp_path, 8 * MIB)
    fixture.create("M", storage="memory")
    fixture.create("F")
    stored = 0
    while "error" not in (answer := fixture.put(b"m.a", bytes(100_000))):
        stored += 1
        assert stored < 100
    assert answer["error"]["err_code"] == 10023
    assert stored >= 60
    assert fixture.put(b"f.a", bytes(1000))["seq"] == 1  # what is on disk is not concerned
    fixture.request("STREAM.PURGE.M")
    assert "error" not in fixture.put(b"m.a", bytes(100_000))


def test_small_messages_count_for_what_they_take(tmp_path: Path) -> None:
    fixture = fixture_of(tmp_path, -1)
    fixture.create("M", storage="memory")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            fixture.account.publish(b"m.%d" % number, b"", b"", b"x", origin=fixture.client)
            if number % 1000 == 999:
                fixture.commit()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 20_000 * MESSAGE_OVERHEAD > taken > 20_000 * MESSAGE_OVERHEAD // 3


def test_a_configured_limit_is_the_one_that_holds(tmp_path: Path) -> None:
    fixture = fixture_of(tmp_path, 1000, memory_max=8 * MIB)
    fixture.create("M", storage="memory")
    assert fixture.put(b"m.a", bytes(100_000))["seq"] == 1


def test_what_is_taken_is_not_added_up_for_every_message() -> None:
    looks = 0

    def taken() -> int:
        nonlocal looks
        looks += 1
        return 0

    bound = MemoryBound(1000 * MIB, taken)
    assert all(bound.has_room(1000, 1) for _ in range(10_000))
    assert looks < 3
