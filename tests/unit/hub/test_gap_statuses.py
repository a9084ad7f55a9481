"""The epochs of an origin, the ranges that are not in the table, and the status of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyot_hub.jobs.bronze.coverage import ORIGIN, STREAM, Coverage, Epoch, Island, Segment, Source, epochs_of
from eyot_hub.jobs.bronze.gaps import Gap, Known, epochs_known, in_epoch, overdue, source_gaps

EDGE = Source(ORIGIN, "edge", "READINGS")


def segment(hub: int, first: int, last: int, *, created: int = 1, stream: str = "HUB") -> Segment:
    return Segment(EDGE, stream, created, hub, first, last, hub * 1000, (hub + last - first) * 1000)


def ranges(epochs: list[Epoch]) -> list[list[tuple[int, int]]]:
    return [[(island.first, island.last) for island in epoch.islands] for epoch in epochs]


def known(epoch: int, created: int, first: int, last: int, **more: object) -> Known:
    return Known(epoch, created, first, last, 0, **more)  # type: ignore[arg-type]


def found(epochs: list[Epoch], words: list[Known]) -> list[tuple[int, int, int, str]]:
    return [(gap.epoch, gap.first, gap.last, gap.status) for gap in source_gaps(EDGE, epochs, words)]


def test_consecutive_segments_are_one_island() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 10), segment(11, 11, 20), segment(21, 25, 30)], set())
    assert ranges(epochs) == [[(1, 20), (25, 30)]]
    assert epochs[0].islands[0].first_us == 1000
    assert epochs[0].islands[0].last_us == 20_000


def test_a_step_back_is_a_new_life() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 80), segment(81, 1, 30)], set())
    assert ranges(epochs) == [[(1, 80)], [(1, 30)]]


def test_a_repeat_is_not_a_new_life() -> None:
    again = segment(1, 1, 90, created=2)
    epochs = epochs_of(EDGE, [segment(1, 1, 80), again], {("HUB", 2, 1)})
    assert ranges(epochs) == [[(1, 90)]]


def test_a_new_hub_stream_that_goes_on_is_the_same_life() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 80), segment(1, 81, 90, created=2)], set())
    assert ranges(epochs) == [[(1, 90)]]


def test_streams_of_the_hub_have_a_life_for_each_creation() -> None:
    own = Source(STREAM, "hub", "HUB")
    parts = [Segment(own, "HUB", 1, 1, 1, 5, 0, 0), Segment(own, "HUB", 2, 1, 1, 3, 0, 0)]
    epochs = epochs_of(own, parts, set())
    assert ranges(epochs) == [[(1, 5)], [(1, 3)]]
    assert [epoch.created_ns for epoch in epochs] == [1, 2]


def test_every_status() -> None:
    epochs = epochs_of(EDGE, [segment(1, 5, 10), segment(7, 13, 14), segment(9, 20, 30)], set())
    words = [known(1, 1, 3, 40, deleted=(12, 16, 17))]
    assert found(epochs, words) == [
        (1, 1, 2, "expired"),
        (1, 3, 4, "missing"),
        (1, 11, 11, "missing"),
        (1, 12, 12, "deleted"),
        (1, 15, 15, "missing"),
        (1, 16, 17, "deleted"),
        (1, 18, 19, "missing"),
        (1, 31, 40, "in_flight"),
    ]
    gap = source_gaps(EDGE, epochs, words)[2]
    assert (gap.after_us, gap.before_us) == (6000, 7000)


def test_expired_at_the_origin_while_offline() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 10)], set())
    assert found(epochs, [known(1, 1, 15, 20)]) == [(1, 11, 14, "expired"), (1, 15, 20, "in_flight")]


def test_a_selective_copy_has_holes_that_mean_nothing() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 10), segment(11, 15, 16)], set())
    assert found(epochs, [known(1, 1, 1, 16, selective=True)]) == [(1, 11, 14, "filtered")]


def test_an_origin_that_cannot_be_asked() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 10), segment(11, 15, 16)], set())
    assert found(epochs, []) == [(1, 11, 14, "unknown")]
    assert found(epochs, [known(1, 1, 1, 20, now=False)]) == [(1, 11, 14, "unknown"), (1, 17, 20, "unknown")]


def test_what_a_device_lost_that_was_created_again() -> None:
    before = epochs_of(EDGE, [segment(1, 1, 80)], set())
    first = epochs_known(before, [], known(0, 1, 1, 100))
    assert found(before, first) == [(1, 81, 100, "in_flight")]
    after = epochs_of(EDGE, [segment(1, 1, 80), segment(81, 1, 30)], set())
    second = epochs_known(after, first, known(0, 2, 1, 30))
    assert found(after, second) == [(1, 81, 100, "lost")]


def test_created_again_and_nothing_arrived_yet() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 80)], set())
    first = epochs_known(epochs, [], known(0, 1, 1, 80))
    second = epochs_known(epochs, first, known(0, 2, 1, 30))
    assert found(epochs, second) == [(2, 1, 30, "in_flight")]
    third = epochs_known(epochs, second, known(0, 2, 1, 40))
    assert found(epochs, third) == [(2, 1, 40, "in_flight")]


def test_created_again_before_anything_was_remembered() -> None:
    epochs = epochs_of(EDGE, [segment(1, 1, 80)], set())
    assert found(epochs, epochs_known(epochs, [], known(0, 2, 1, 30))) == [(2, 1, 30, "in_flight")]


@given(st.sets(st.integers(1, 60)), st.integers(0, 5), st.integers(0, 70), st.sets(st.integers(1, 60)))
def test_gaps_and_islands_share_out_every_sequence(held: set[int], expired: int, last: int, deleted: set[int]) -> None:
    """Each sequence up to the origin's last is in the table or in exactly one gap, with the status that fits."""
    epoch = Epoch(1)
    for number in sorted(held):
        epoch.add(segment(number, number, number))
    last = max([last, *held])
    gone = tuple(sorted(number for number in deleted if expired < number <= last))
    gaps = source_gaps(EDGE, [epoch], [known(1, 1, expired + 1, last, deleted=gone)])
    status = {number: gap.status for gap in gaps for number in range(gap.first, gap.last + 1)}
    assert sum(gap.count for gap in gaps) == len(status)
    assert set(status) | held == set(range(1, last + 1))
    assert not set(status) & held
    for number, word in status.items():
        if number <= expired:
            assert word == "expired"
        elif number in gone:
            assert word == "deleted"
        else:
            assert word == ("missing" if held and number < max(held) else "in_flight")


def test_what_is_in_flight_for_too_long_is_missing() -> None:
    """Two ranges seen at different times; each is missing when its time is over, unless something else arrived meanwhile."""
    limit, hour = 24, 1

    def at(now: int, before: list[Gap], last: int, arrived: int = 0) -> list[Gap]:
        epoch = Epoch(1, [Island(1, 10, 0, arrived)])
        return overdue([Gap(EDGE, 1, 11, last, "in_flight", 0, None)], before, Coverage({EDGE: [epoch]}), now, limit)

    def said(gaps: list[Gap]) -> list[tuple[int, int, str, int | None]]:
        return [(gap.first, gap.last, gap.status, gap.since_us) for gap in gaps]

    first = at(100, [], 20)
    assert said(first) == [(11, 20, "in_flight", 100)]
    second = at(110, first, 30)
    assert said(second) == [(11, 20, "in_flight", 100), (21, 30, "in_flight", 110)]
    third = at(100 + limit + hour, second, 30)
    assert said(third) == [(11, 20, "missing", 100), (21, 30, "in_flight", 110)]
    assert [gap.status for gap in at(110 + limit + hour, third, 30)] == ["missing", "missing"]
    assert [gap.status for gap in at(110 + limit + hour, third, 30, arrived=115)] == ["in_flight", "in_flight"]
    # The clock was years ahead when a gap was first seen, or when the origin's last message was stored.
    years = 5 * 365 * 24 * hour
    ahead = at(years, [], 20)
    assert said(at(200, ahead, 20)) == [(11, 20, "in_flight", 200)]
    assert said(at(100 + limit + hour, first, 20, arrived=years)) == [(11, 20, "missing", 100)]
    # And years behind: what was noted then is old.
    assert said(at(-years, first, 20)) == [(11, 20, "in_flight", -years)]
    lost = Gap(EDGE, 1, 5, 6, "lost", 0, None)
    assert overdue([lost], second, Coverage({}), 1000, limit) == [lost]


class Asked:
    """An origin's stream: when each of its messages was stored."""

    def __init__(self, *stored: int) -> None:
        self.stored = stored

    def stored_ns(self, _name: str, sequence: int) -> int | None:
        return self.stored[sequence - 1] if sequence <= len(self.stored) else None

    def sequence_at(self, _name: str, _time: str) -> int:
        return next((n for n, at in enumerate(self.stored, 1) if at > self.after), len(self.stored) + 1)

    after = 0


def test_an_origin_whose_end_moved_back_is_in_a_new_epoch() -> None:
    origin = Asked(10, 20, 30, 90, 100)
    before = known(1, 5000, 1, 5, last_ns=50, now=False)
    origin.after = 50
    said = known(0, 5000, 1, 5, last_ns=100)
    moved = in_epoch(origin, "S", said, [before])  # type: ignore[arg-type]
    assert (moved.created_ns, moved.begins) == (5001, 4)
    # It arrives from there on; the one before has lost what had not been copied.
    epochs = epochs_of(EDGE, [segment(1, 1, 4), segment(5, 4, 4)], set())
    words = epochs_known(epochs, [before], moved)
    assert [(known_epoch.epoch, known_epoch.begins) for known_epoch in words] == [(1, 1), (2, 4)]
    assert found(epochs, words) == [(1, 5, 5, "lost"), (2, 5, 5, "in_flight")]
    # The next time it is where it was, and so it is when it only grew.
    for stored in ((10, 20, 30, 90, 100), (10, 20, 30, 90, 100, 110)):
        again = in_epoch(Asked(*stored), "S", known(0, 5000, 1, len(stored), last_ns=stored[-1]), words)  # type: ignore[arg-type]
        assert (again.created_ns, again.begins) == (5001, 4)
    # Cut off and nothing stored since.
    short = in_epoch(origin, "S", known(0, 5000, 1, 2, last_ns=20), [known(1, 5000, 1, 5, last_ns=None)])  # type: ignore[arg-type]
    assert (short.created_ns, short.begins) == (5001, 3)
