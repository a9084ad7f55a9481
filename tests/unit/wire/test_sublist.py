"""SubList against a model that matches every subscription one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eyot_wire import subject as subjects
from eyot_wire.sublist import EMPTY, Match, SubList


class Sub:
    def __init__(self, subject: bytes, queue: bytes = b"") -> None:
        self.subject = subject
        self.queue = queue

    def __repr__(self) -> str:
        return f"Sub({self.subject!r}, {self.queue!r})"


def names(match: Match[Sub]) -> set[int]:
    return {id(sub) for sub in match.all()}


tokens = st.sampled_from([b"a", b"b", b"_INBOX"])
literals = st.lists(tokens, min_size=1, max_size=3).map(b".".join)
patterns = (
    st.lists(st.one_of(tokens, st.sampled_from([b"*", b">"])), min_size=1, max_size=3)
    .map(b".".join)
    .filter(subjects.is_valid)
)
queues = st.sampled_from([b"", b"", b"q", b"r"])


class SubListMachine(RuleBasedStateMachine):
    """Inserts, removes and lookups in any order; a lookup is asked twice, so that remembered matches are checked."""

    def __init__(self) -> None:
        super().__init__()
        self.sublist: SubList[Sub] = SubList(remembered_subjects_max=4)
        self.subs: list[Sub] = []

    @rule(pattern=patterns, queue=queues)
    def insert(self, pattern: bytes, queue: bytes) -> None:
        sub = Sub(pattern, queue)
        self.sublist.insert(sub)
        self.sublist.insert(sub)
        self.subs.append(sub)

    @precondition(lambda self: self.subs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        sub = self.subs.pop(data.draw(st.integers(0, len(self.subs) - 1)))
        assert self.sublist.remove(sub)
        assert not self.sublist.remove(sub)

    @rule(pattern=patterns)
    def remove_unknown(self, pattern: bytes) -> None:
        assert not self.sublist.remove(Sub(pattern))

    @rule(literal=st.one_of(literals, st.sampled_from([b"a..b", b"a.", b".a", b"", b"*", b"a.*", b">", b"a.>"])))
    def look_up(self, literal: bytes) -> None:
        tokens_ = literal.split(b".")
        expected = set()
        if b"" not in tokens_:
            expected = {
                id(sub) for sub in self.subs if sub.subject == literal or subjects.matches(sub.subject, literal)
            }
            if not subjects.is_literal(literal):
                # A subject that looks like a wildcard is matched as text.
                expected = {id(sub) for sub in self.subs if subjects.token_match(sub.subject.split(b"."), tokens_)}
        for _ in range(2):
            found = self.sublist.match(literal)
            assert names(found) == expected
            assert len(list(found.all())) == len(expected)
            assert bool(found) == (found is not EMPTY) == bool(expected) == self.sublist.has_interest(literal)
            assert all(not sub.queue for sub in found.plain)
            assert len({queue for queue, _ in found.groups}) == len(found.groups)
            for queue, members in found.groups:
                assert members
                assert all(sub.queue == queue for sub in members)

    @rule(pattern=patterns)
    def overlapping(self, pattern: bytes) -> None:
        found = self.sublist.overlapping(pattern)
        assert {id(sub) for sub in found} == {id(sub) for sub in self.subs if subjects.overlaps(sub.subject, pattern)}
        assert len(found) == len({id(sub) for sub in found})

    @invariant()
    def holds_all(self) -> None:
        assert len(self.sublist) == len(self.subs)
        assert {id(sub) for sub in self.sublist} == {id(sub) for sub in self.subs}
        assert self.sublist.remembered <= 8


SubListMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestSubList = SubListMachine.TestCase


@given(st.sampled_from([b"a..b", b"", b"a b", b">.a"]))
def test_invalid_subject_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="invalid subject"):
        SubList[Sub]().insert(Sub(bad))


def test_only_what_matches_is_forgotten() -> None:
    sublist: SubList[Sub] = SubList()
    kept = {}
    for pattern in (b"a.b", b"a.*", b"x.>"):
        sublist.insert(Sub(pattern))
    for literal in (b"a.b", b"a.c", b"x.y.z", b"q"):
        kept[literal] = sublist.match(literal)
    other = Sub(b"a.c")
    for pattern, forgotten in ((b"a.c", {b"a.c"}), (b"a.*", {b"a.b", b"a.c"}), (b"x.*.z", {b"x.y.z"}), (b"q", {b"q"})):
        other = Sub(pattern)
        sublist.insert(other)
        for literal, match in kept.items():
            # The empty match is one shared object, remembered or not.
            assert (sublist.match(literal) is match) == (literal not in forgotten)
        sublist.remove(other)
        kept = {literal: sublist.match(literal) for literal in kept}


def test_memo_lives_as_long_as_the_match() -> None:
    sublist: SubList[Sub] = SubList()
    sublist.insert(Sub(b"a.>"))
    sublist.match(b"a.b").memo = "route"
    assert sublist.match(b"a.b").memo == "route"
    sublist.insert(Sub(b"c.>"))
    assert sublist.match(b"a.b").memo == "route"
    sublist.insert(Sub(b"a.b"))
    assert sublist.match(b"a.b").memo is None


def test_one_time_subjects_keep_memory_bounded_and_busy_ones_remembered() -> None:
    sublist: SubList[Sub] = SubList(remembered_subjects_max=16)
    sublist.insert(Sub(b"_INBOX.client.*"))
    sublist.insert(Sub(b"busy"))
    for number in range(1000):
        assert sublist.match(b"_INBOX.client.%d" % number)
        sublist.match(b"busy")
    assert sublist.remembered <= 32
    # Once for each subject seen once, and once for the busy one.
    assert sublist.misses == 1001


def test_forgetting_again_and_again_does_not_grow() -> None:
    sublist: SubList[Sub] = SubList(remembered_subjects_max=8)
    for _ in range(1000):
        sub = Sub(b"a.b")
        sublist.insert(sub)
        sublist.match(b"a.b")
        sublist.remove(sub)
        sublist.match(b"a.b")
    assert sum(len(each) for each in sublist._young.by_prefix.values()) <= 8


def test_long_subjects_are_found_but_not_remembered() -> None:
    subs: SubList[Sub] = SubList()
    every = Sub(b">")
    subs.insert(every)
    assert subs.match(b"x" * 5000).plain == (every,)
    assert subs.remembered == 0
    assert subs.match(b"x" * 100).plain == (every,)
    assert subs.remembered == 1


def test_many_wildcard_inserts_drop_the_memory_instead_of_scanning_it() -> None:
    sublist: SubList[Sub] = SubList()
    for number in range(100):
        sublist.match(b"s.%d" % number)
    for number in range(40):
        sublist.insert(Sub(b"other.*.%d" % number))
    assert sublist.remembered == 0
    assert sublist.match(b"other.x.39")
