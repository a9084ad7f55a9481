"""How much the next micro-batch reads: messages, bytes, and waiting for more."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eyot_hub.admission import Admission
from eyot_hub.jetstream import Config, State, StreamInfo
from eyot_hub.offsets import Position, Positions
from eyot_hub.options import Limits

START = {"A": Position(0, "t"), "B": Position(0, "t")}


def streams(**sizes: tuple[int, int]) -> dict[str, StreamInfo]:
    """Streams with so many messages of so many bytes each."""
    return {
        name: StreamInfo(Config(name), State(count, count * size, 1, count), "t")
        for name, (count, size) in sizes.items()
    }


def ends(**sequences: int) -> Positions:
    return {name: Position(sequence, "t") for name, sequence in sequences.items()}


def sequences(positions: Positions) -> dict[str, int]:
    return {name: at.sequence for name, at in positions.items()}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), ReadAllAvailable()),
        (Limits(max_messages=5, min_messages=2), ReadMaxRows(5)),
        (Limits(max_bytes=5), ReadMaxBytes(5)),
        (Limits(min_messages=5), ReadMinRows(5)),
    ],
)
def test_what_spark_is_told(limits: Limits, expected: ReadLimit) -> None:
    assert Admission(limits).read_limit() == expected


def test_bytes_are_shared_by_the_mean_size_of_messages() -> None:
    there = streams(A=(100, 10), B=(100, 90))
    until = Admission(Limits(max_bytes=1000)).limited(START, ends(A=100, B=100), there)
    assert sequences(until) == {"A": 10, "B": 10}
    assert sequences(Admission(Limits(max_bytes=10_000)).limited(START, ends(A=100, B=100), there)) == {
        "A": 100,
        "B": 100,
    }


def test_the_tighter_of_two_limits_holds() -> None:
    there = streams(A=(100, 10), B=(100, 10))
    messages_first = Admission(Limits(max_messages=20, max_bytes=1000)).limited(START, ends(A=100, B=100), there)
    assert sequences(messages_first) == {"A": 10, "B": 10}
    bytes_first = Admission(Limits(max_messages=100, max_bytes=200)).limited(START, ends(A=100, B=100), there)
    assert sequences(bytes_first) == {"A": 10, "B": 10}


def test_a_message_larger_than_the_limit_is_read_nevertheless() -> None:
    until = Admission(Limits(max_bytes=10)).limited(START, ends(A=3, B=0), streams(A=(3, 5000), B=(0, 0)))
    assert sequences(until) == {"A": 1, "B": 0}


def test_a_batch_waits_for_enough_messages_but_not_for_ever() -> None:
    now = 100.0
    admission = Admission(Limits(min_messages=10, max_delay_s=60.0), lambda: now)
    few, enough = ends(A=4, B=5), ends(A=5, B=5)
    assert not admission.waits(START, few), "the first batch reads what there is"
    assert admission.waits(START, few)
    assert not admission.waits(START, enough)
    now += 59.0
    assert admission.waits(START, few)
    now += 1.0
    assert not admission.waits(START, few), "the last batch is a minute ago"
    assert admission.waits(START, few)


def test_nothing_waits_without_a_minimum() -> None:
    assert not Admission(Limits(max_messages=5)).waits(START, START)
