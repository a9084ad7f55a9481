"""Topics as subjects: nats-server's conversion, and back; filters by the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.mqtt import topics
from eyot_wire.subject import is_valid, is_valid_literal, matches

#: nats-server's own cases (TestMQTTTopicAndSubjectConversion).
CASES = [
    ("foo/bar", b"foo.bar"),
    ("/", b"/./"),
    ("//", b"/././"),
    ("/foo", b"/.foo"),
    ("foo/", b"foo./"),
    ("//foo", b"/./.foo"),
    ("/foo/bar/", b"/.foo.bar./"),
    ("foo//bar", b"foo./.bar"),
    ("foo///bar", b"foo././.bar"),
    (".", b"//"),
    ("foo.bar/baz", b"foo//bar.baz"),
    ("./", b"//./"),
    ("foo../bar/.", b"foo////.bar.//"),
    (".//.", b"//././/"),
    ("é", "é".encode()),
]


@pytest.mark.parametrize(("topic", "subject"), CASES)
def test_conversion(topic: str, subject: bytes) -> None:
    assert topics.to_subject(topic) == subject
    assert topics.to_topic(subject) == topic


#: Topics that nats-server refuses, or takes for wildcards.
ESCAPED = [
    ("living room/lamp", b"living/20room.lamp"),
    (" ", b"/20"),
    ("a\tb", b"a/09b"),
    ("a\rb\nc", b"a/0db/0ac"),
    ("a\fb", b"a/0cb"),
    ("a\x7fb", b"a/7fb"),
    ("a. b/./ ", b"a///20b.//./20"),
    ("a/*/b", b"a./2a.b"),
    (">", b"/3e"),
    ("/>", b"/./3e"),
    ("a*/>b", b"a*.>b"),
]


@pytest.mark.parametrize(("topic", "subject"), ESCAPED)
def test_what_no_subject_may_contain_is_escaped(topic: str, subject: bytes) -> None:
    assert topics.to_subject(topic) == subject
    assert topics.to_topic(subject) == topic
    assert topics.filter_subjects(topic) == (subject,)
    assert topics.filter_subjects(topic + "/#") == (subject, subject + b".>")
    assert is_valid_literal(subject)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "x" * 5000, "/" * 300, " " * 2000])
def test_topics_without_a_subject(topic: str) -> None:
    assert topics.to_subject(topic) is None


@given(st.text(st.sampled_from("ab./é*>+# \t\x7f2"), max_size=12))
def test_every_topic_comes_back(topic: str) -> None:
    subject = topics.to_subject(topic)
    assert (subject is None) == (not topic or "+" in topic or "#" in topic)
    if subject is not None:
        assert is_valid_literal(subject)
        assert topics.to_topic(subject) == topic


@given(st.binary(max_size=12) | st.text(st.sampled_from("a./237ef0\f\x7f"), max_size=12).map(str.encode))
def test_a_subject_has_one_topic_or_none(subject: bytes) -> None:
    topic = topics.to_topic(subject)
    if topic is not None and is_valid_literal(subject):
        assert topics.to_subject(topic) == subject


@pytest.mark.parametrize(
    "subject",
    [b"a/b", b"\xff", b"a.b#c", b"a/.b", b"///", b"a/2a", b"a/2A", b"/2e", b"/2f", b"/00", b"/", b"\x7f", b"a.\x7fb"],
)
def test_subjects_without_a_topic(subject: bytes) -> None:
    assert topics.to_topic(subject) is None


@pytest.mark.parametrize(
    ("topic_filter", "subjects"),
    [
        ("+", (b"*",)),
        ("#", (b">",)),
        ("/+/", (b"/.*./",)),
        ("foo/#", (b"foo", b"foo.>")),
        ("foo//+", (b"foo./.*",)),
        ("/#", (b"/", b"/.>")),
        ("+/#", (b"*", b"*.>")),
        ("a/+/b", (b"a.*.b",)),
        ("a.b/+", (b"a//b.*",)),
    ],
)
def test_filters(topic_filter: str, subjects: tuple[bytes, ...]) -> None:
    assert topics.filter_subjects(topic_filter) == subjects
    assert all(is_valid(subject) for subject in subjects)


@pytest.mark.parametrize("topic_filter", ["", "a#", "a+", "+a", "a/#/b", "#/a", "a/#b", "x" * 5000, "/" * 300])
def test_filters_that_are_none(topic_filter: str) -> None:
    assert topics.filter_subjects(topic_filter) is None


levels = st.lists(st.sampled_from(["a", "b", "", ".", "*", " "]), min_size=1, max_size=4)


@given(levels, st.lists(st.sampled_from(["a", "b", "", ".", "*", " ", "+"]), min_size=1, max_size=4), st.booleans())
def test_filters_match_as_the_specification_says(name: list[str], wanted: list[str], rest: bool) -> None:
    topic = "/".join(name)
    subject = topics.to_subject(topic)
    subjects = topics.filter_subjects("/".join([*wanted, "#"] if rest else wanted))
    if subject is None or subjects is None:
        return
    fits = len(name) >= len(wanted) if rest else len(name) == len(wanted)
    expected = fits and all(want in ("+", have) for want, have in zip(wanted, name, strict=False))
    assert any(matches(pattern, subject) for pattern in subjects) == expected


def test_shared() -> None:
    assert topics.shared("$share/g/a/#") == ("g", "a/#")
    assert topics.shared("$share/g//") == ("g", "/")
    for wrong in ("$share/", "$share//x", "$share/g", "$share/g/", "$share/a+/x", "$share/a#/x", "$share/g/a#", "a/b"):
        assert topics.shared(wrong) is None
    assert topics.filter_ignores_dollar("+/a")
    assert topics.filter_ignores_dollar("#")
    assert not topics.filter_ignores_dollar("$SYS/#")


@pytest.mark.parametrize(
    ("topic_filter", "taken", "others"),
    [
        ("#", ["a", "a/b", "/"], ["$SYS/a"]),
        ("a/#", ["a", "a/b", "a/b/c", "a/"], ["b", "ab", "/a"]),
        ("+", ["a"], ["a/b", "/", "$a"]),
        ("+/b", ["a/b", "/b"], ["a", "a/b/c", "$SYS/b"]),
        ("$SYS/#", ["$SYS", "$SYS/broker/retained messages/count"], ["$SYSTEM", "SYS"]),
        ("$SYS/+/uptime", ["$SYS/broker/uptime"], ["$SYS/broker/x", "$SYS/broker"]),
        ("a b/c", ["a b/c"], ["a b"]),
    ],
)
def test_filters_take_topics(topic_filter: str, taken: list[str], others: list[str]) -> None:
    assert all(topics.filter_matches(topic_filter, each) for each in taken)
    assert not any(topics.filter_matches(topic_filter, each) for each in others)
