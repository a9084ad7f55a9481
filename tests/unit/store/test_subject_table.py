"""The table of subjects: both twins give the same, correct results after any additions, removals and folds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_store import _subject_table, native, subject_table
from eyot_store.errors import StoreError
from eyot_store.subjects.index import base_of, encode_index
from eyot_wire.subject import matches

TWINS: tuple[Any, Any] = (subject_table.SubjectTable, _subject_table.SubjectTable)
PATTERNS = [
    b"",
    b">",
    b"*",
    b"a.*",
    b"a.>",
    b"*.b",
    b"a.*.c",
    b"a",
    b"a.b",
    b"*.*.*",
    b"a.b.>",
    b"b.*.>",
    b"a..",
    b"*.",
]


def everything(table: Any, pattern: bytes = b"", limit: int = 3) -> list[tuple[bytes, int, int, int]]:
    found, at = table.scan(pattern, 0, limit)
    while at:
        more, at = table.scan(pattern, at, limit)
        found += more
    return sorted(found)


def subject(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return b".".join(rng.choice([b"a", b"b", b"c"]) for _ in range(rng.randrange(1, 4)))
    return b"s.%d" % rng.randrange(rng.choice([3, 300])) + b"x" * rng.choice([0, 0, 1, 7, 300])


def entry(rng: Random, seq: int) -> tuple[bytes | None, int, int, int, int, int]:
    name = None if rng.random() < 0.1 else subject(rng)
    came, went = rng.randrange(4), rng.choice([0, 0, 0, 1, 2])
    low = rng.randrange(1, seq + 2)
    first = rng.choice([seq, -rng.randrange(seq + 1)])
    return (
        name,
        came - went,
        first if came else 0,
        (seq + came) if came else 0,
        low if went else 0,
        low + 1 if went else 0,
    )


def record(rng: Random, seq: int) -> bytes:
    numbers = [rng.choice([0, 5, 200, 70000, 1 << 33]) for _ in range(4)]
    data = encode_index((*numbers, [entry(rng, seq) for _ in range(rng.choice([0, 1, 20]))]))
    if rng.random() < 0.2:
        return data[: rng.randrange(len(data) + 1)]
    if rng.random() < 0.2:
        at = rng.randrange(len(data))
        return data[:at] + bytes([rng.randrange(128)]) + data[at + 1 :]
    return data + (b"x" if rng.random() < 0.05 else b"")


def played(twin: int, seed: int) -> list[Any]:
    rng = Random(seed)
    table = TWINS[twin]()
    seen: list[Any] = []
    for step in range(rng.choice([10, 100, 600])):
        name, seq = subject(rng), 10 * step + 1
        kind = rng.randrange(13)
        try:
            if kind < 4:
                seen.append(table.came(name, rng.randrange(1, 4), seq, seq + 3))
            elif kind == 4:
                before = {name: 7}
                table.came_run([(subject(rng), b"", b"", b"x") for _ in range(rng.randrange(9))], seq, before)
                seen.append(before)
            elif kind == 5:
                known = table.get(name)
                table.went(name, rng.choice(known[1:]) if known and rng.random() < 0.8 else rng.randrange(seq + 1))
            elif kind == 6:
                table.back(name, rng.randrange(1, seq + 1))
            elif kind == 7:
                table.remove(name)
            elif kind == 8:
                table.set_ends(name, rng.randrange(-seq, seq), rng.randrange(seq))
            elif kind == 11:
                table.went_run([(rng.randrange(1, seq + 1), subject(rng), 0) for _ in range(rng.randrange(9))])
            elif kind == 12:
                names = [subject(rng) for _ in range(rng.randrange(9))]
                seen.append(table.oldest_of(names, rng.randrange(3), rng.randrange(seq + 1)))
            elif kind == 9:
                table.fold([entry(rng, seq)])
            else:
                seen.append(table.fold_record(record(rng, seq)))
        except (StoreError, KeyError, OverflowError) as error:
            seen.append(type(error))
            if isinstance(error, StoreError) and not str(error).endswith("below zero"):
                seen.append(error.reason)
        seen += [len(table), table.messages, table.get(name), table.count(name)]
    for pattern in PATTERNS:
        seen.append(everything(table, pattern))
        matched = table.matched(pattern)
        seen += [len(matched), matched.page(0, 1000), matched.page(rng.randrange(9), rng.randrange(5))]
        seq, most = rng.choice([0, rng.randrange(1, 6000)]), rng.choice([0, 3, 1000])
        total, astride = table.total_from((pattern, b"a.b"), seq, most)
        seen += [total, astride and sorted(astride)]
        for found, doubtful in (table.lasts((pattern,), seq // 2, seq), table.newest(pattern, seq)):
            seen += [found, sorted(doubtful)]
    return seen


def test_the_compiled_twin_is_chosen() -> None:
    assert native.SubjectTable is _subject_table.SubjectTable


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**48))
def test_both_say_the_same(seed: int) -> None:
    assert played(1, seed) == played(0, seed)


@pytest.mark.parametrize("twin", [0, 1])
def test_very_many_come_and_go(twin: int) -> None:
    """Growing, chains of places, reuse of slots, a new arena: what is there is found, what is gone is not."""
    rng = Random(5)
    table, truth = TWINS[twin](), {}
    for seq in range(1, 60_000):
        name = b"plant.line.%d" % rng.randrange(20_000)
        if seq % 3 and seq < 40_000:
            assert table.came(name, 1, seq, seq) == (truth[name][2] if name in truth else 0)
            truth[name] = (1, seq, seq) if name not in truth else (truth[name][0] + 1, truth[name][1], seq)
        else:
            table.remove(name)
            truth.pop(name, None)
    assert {name: tuple(numbers) for name, *numbers in everything(table, limit=999)} == truth
    assert table.messages == sum(count for count, _, _ in truth.values())
    for number in range(20_000):
        name = b"plant.line.%d" % number
        assert table.get(name) == truth.get(name)


@pytest.mark.parametrize("twin", [0, 1])
def test_a_base_says_it_all(twin: int) -> None:
    table, copy = TWINS[twin](), TWINS[twin]()
    for seq in range(1, 5000):
        table.came(b"s.%d" % (seq % 3001), 1, seq, seq)
        table.went(b"s.%d" % (seq % 17), seq)
    table.fold([(None, 3, 1, 9, 0, 0)])
    for entries in base_of(table):
        copy.fold_record(encode_index((1, 2, 3, 4, entries)))
    assert everything(copy) == everything(table)
    assert copy.get(subject_table.UNREAD) == (3, 1, 9)


#: So many patterns are compared with a subject together.
TOGETHER = 5


@given(
    st.lists(
        st.lists(st.sampled_from([b"a", b"b", b"ab", b"*", b">"]), min_size=1, max_size=4),
        min_size=TOGETHER,
        max_size=40,
    ),
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"ab", b"*"]), min_size=1, max_size=4), max_size=40),
)
def test_many_patterns_match_as_each_of_them(patterns: list[list[bytes]], names: list[list[bytes]]) -> None:
    wanted = tuple(b".".join(pattern) for pattern in patterns if b">" not in pattern[:-1])
    subjects = {b".".join(name) for name in names}
    fitting = sorted(name for name in subjects if any(matches(pattern, name) for pattern in wanted))
    for twin in TWINS:
        table = twin()
        for name in subjects:
            table.came(name, 1, 3, 0)
        assert table.total_from(wanted, 0, 0) == (len(fitting), [])
        found, others = table.lasts(wanted, 0, 9)
        assert (list(found), sorted(others)) == ([], fitting)


def test_patterns_of_very_many_tokens() -> None:
    long = b".".join([b"a"] * 100_000)
    patterns = (long, b"a.*." + long, b"b.>", b"c.*", b"d")
    for twin in TWINS:
        table = twin()
        for name in (long, b"a.x." + long, b"a.a." + long, b"b.1", b"c.1", b"d", b"e", b"a"):
            table.came(name, 1, 1, 1)
        assert table.total_from(patterns, 0, 0) == (6, [])


@given(
    st.lists(st.sampled_from([b"a", b"b", b"*", b">", b""]), max_size=4),
    st.lists(st.sampled_from([b"a", b"b", b""]), max_size=4),
)
def test_patterns_match_as_everywhere(pattern: list[bytes], name: list[bytes]) -> None:
    table = _subject_table.SubjectTable()
    table.came(b".".join(name), 1, 1, 1)
    wanted = b".".join(pattern)
    assert bool(everything(table, wanted)) == (not wanted or matches(wanted, b".".join(name)))


@pytest.mark.parametrize("twin", [0, 1])
@pytest.mark.parametrize("most", [1 << 8, 1 << 20, 1 << 40, 1 << 62])
def test_last_sequences_come_in_ascending_order(twin: int, most: int) -> None:
    """Whatever the order in which the subjects got them."""
    rng = Random(most)
    seqs = [rng.randrange(1, most) for _ in range(3000)]
    for each in (seqs, sorted(seqs), seqs[:1], []):
        table = TWINS[twin]()
        for number, seq in enumerate(each):
            table.came(b"s.%d" % number, 1, seq, seq)
        found, others = table.lasts((b"s.*",), 0, most)
        assert (found.typecode, list(found), others) == ("q", sorted(each), [])
