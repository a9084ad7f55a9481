"""Positions: their JSON, and how a limit is shared among streams."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_hub import offsets
from eyot_hub.offsets import Position


def test_json_there_and_back_always_the_same() -> None:
    positions = {"B": Position(2, "t2"), "A": Position(1, "t1")}
    text = json.dumps(offsets.to_json(positions))
    assert text == '{"A": {"created": "t1", "sequence": 1}, "B": {"created": "t2", "sequence": 2}}'
    assert offsets.from_json(json.loads(text)) == positions


def test_something_else_in_the_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="not an offset of format jetstream"):
        offsets.from_json({"A": 5})


streams = st.dictionaries(st.sampled_from("ABC"), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1)


@given(streams, st.integers(1, 500))
def test_a_limit_is_kept_and_nobody_starves(given_streams: dict[str, tuple[int, int]], most: int) -> None:
    start = {name: Position(begin, "t") for name, (begin, _) in given_streams.items()}
    latest = {name: Position(begin + more, "t") for name, (begin, more) in given_streams.items()}
    until = offsets.limited(start, latest, most)
    taken = {name: until[name].sequence - start[name].sequence for name in start}
    backlog = {name: latest[name].sequence - start[name].sequence for name in start}
    assert sum(taken.values()) <= most + len(start)
    for name in start:
        assert 0 <= taken[name] <= backlog[name]
        assert taken[name] > 0 or backlog[name] == 0


def test_a_stream_created_again_starts_over() -> None:
    until = offsets.limited({"A": Position(900, "old")}, {"A": Position(100, "new")}, 10)
    assert until == {"A": Position(10, "new")}
