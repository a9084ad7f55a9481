"""Questions about many patterns at once have the answers that comparing them one by one gives, for a cost that grows with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire.pattern_set import PatternSet, TooManySteps, first_overlapping
from eyot_wire.subject import is_subset, is_valid, is_valid_literal, matches, overlaps

TOKENS = st.sampled_from([b"a", b"b", b"c", b"*", b">", b""])
PATTERN = st.lists(TOKENS, min_size=1, max_size=5).map(b".".join)
PATTERNS = st.lists(PATTERN, max_size=12)


@settings(max_examples=2000)
@given(PATTERNS, PATTERN)
def test_answers_are_those_of_one_by_one(patterns: list[bytes], asked: bytes) -> None:
    found = PatternSet(patterns)
    assert found.overlaps(asked) == any(overlaps(asked, each) for each in patterns)
    assert found.covers(asked) == min(2, sum(is_subset(asked, each) for each in patterns))
    if all(map(is_valid, patterns)) and is_valid_literal(asked):
        assert found.matches(asked) == any(matches(each, asked) for each in patterns)


@given(PATTERNS, PATTERNS)
def test_what_was_discarded_is_gone(stays: list[bytes], goes: list[bytes]) -> None:
    found = PatternSet([*stays, *goes])
    for pattern in goes:
        found.discard(pattern)
    assert len(found) == len(stays)
    for pattern in (*stays, *goes):
        assert found.overlaps(pattern) == any(overlaps(pattern, each) for each in stays)


@given(PATTERNS)
def test_the_first_that_overlaps_a_later_one(patterns: list[bytes]) -> None:
    slow = [i for i, one in enumerate(patterns) if any(overlaps(one, other) for other in patterns[i + 1 :])]
    assert first_overlapping(patterns) == (slow[0] if slow else -1)


@pytest.mark.parametrize("shape", [b"dev.%d.temp", b"dev.%d.*", b"*.%d.temp", b"%d.>", b"a.b.c.%d"])
def test_the_cost_grows_with_the_number(shape: bytes) -> None:
    steps = []
    for count in (1000, 2000, 4000):
        found = PatternSet()
        for number in range(count):
            assert not found.overlaps(shape % number)
            found.add(shape % number)
        steps.append(found.steps)
    assert steps[2] < 3 * steps[1] < 9 * steps[0]


def test_a_question_that_forks_without_end_is_bounded() -> None:
    patterns = [b"*.b%d.d%d" % (n, n) for n in range(1000)] + [b"a%d.*.c%d" % (n, n) for n in range(1000)]
    with pytest.raises(TooManySteps):
        first_overlapping(patterns, steps_max=100_000)
