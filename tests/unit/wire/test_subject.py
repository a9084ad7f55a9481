"""Subjects: validity, matching, subset and overlap, checked against a brute-force model over a small alphabet."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire import subject

TOKENS = (b"a", b"b", b"c")
LITERALS = [b".".join(parts) for length in (1, 2, 3, 4) for parts in product(TOKENS, repeat=length)]

patterns = (
    st.lists(st.sampled_from([b"a", b"b", b"*", b">"]), min_size=1, max_size=3).map(b".".join).filter(subject.is_valid)
)


def model_matches(pattern: bytes, literal: bytes) -> bool:
    wanted, given_ = pattern.split(b"."), literal.split(b".")
    if wanted[-1] == b">":
        if len(given_) < len(wanted):
            return False
        wanted, given_ = wanted[:-1], given_[: len(wanted) - 1]
    return len(wanted) == len(given_) and all(w in (b"*", g) for w, g in zip(wanted, given_, strict=True))


@pytest.mark.parametrize(
    "good", [b"a", b"a.b", b"*", b">", b"a.*", b"a.>", b"*.>", b"a*", b"a>b.c", b"$JS.API.>", b"a\x0bb"]
)
def test_valid(good: bytes) -> None:
    assert subject.is_valid(good)


@pytest.mark.parametrize(
    "bad", [b"", b".", b"a.", b".a", b"a..b", b"a b", b"a\tb", b"a\r", b"a\n", b"a\x0c", b">.a", b"a.>.b", b"*.>.*"]
)
def test_invalid(bad: bytes) -> None:
    assert not subject.is_valid(bad)


def test_literal() -> None:
    assert subject.is_literal(b"a*.b>")
    assert not subject.is_literal(b"a.*")
    assert not subject.is_literal(b">")
    assert subject.is_valid_literal(b"a.b*")
    assert not subject.is_valid_literal(b"a.*")
    assert not subject.is_valid_literal(b"a..b")
    assert subject.tokens(b"a.b") == [b"a", b"b"]


@given(patterns, st.sampled_from(LITERALS))
def test_matches(pattern: bytes, literal: bytes) -> None:
    assert subject.matches(pattern, literal) == model_matches(pattern, literal)


@given(patterns, patterns)
def test_overlaps(a: bytes, b: bytes) -> None:
    expected = any(model_matches(a, each) and model_matches(b, each) for each in LITERALS)
    assert subject.overlaps(a, b) == subject.overlaps(b, a) == expected


@given(patterns, patterns)
def test_subset(inner: bytes, outer: bytes) -> None:
    # "c" is in no pattern and literals are longer than patterns, so no pattern is covered by listing.
    expected = all(model_matches(outer, each) for each in LITERALS if model_matches(inner, each))
    assert subject.is_subset(inner, outer) == expected
