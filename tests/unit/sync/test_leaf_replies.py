"""Replies that a leaf node may send by `allow_responses`: how many, how long, and what the memory holds."""

from __future__ import annotations

import pytest

from eyot_sync.leaf import replies
from eyot_sync.leaf.events import ReplyRule
from eyot_sync.leaf.replies import AllowedReplies


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> AllowedReplies:
    monkeypatch.setattr(replies, "REMEMBERED_MAX", 3)
    return AllowedReplies(ReplyRule(2, 10.0))


def test_so_many_replies_within_so_long(allowed: AllowedReplies) -> None:
    allowed.sent(b"r", 100.0)
    assert allowed.take(b"r", 109.9)
    assert allowed.take(b"r", 109.9)
    assert not allowed.take(b"r", 109.9)
    allowed.sent(b"r", 200.0)
    assert not allowed.take(b"r", 210.0)
    assert not allowed.take(b"other", 200.0)


def test_no_limits() -> None:
    allowed = AllowedReplies(ReplyRule(-1, -1.0))
    allowed.sent(b"r", 0.0)
    assert all(allowed.take(b"r", 1e9) for _ in range(1000))


def test_the_oldest_is_dropped_first(allowed: AllowedReplies) -> None:
    for reply in (b"1", b"2", b"3", b"4"):
        allowed.sent(reply, 0.0)
    assert [reply for reply in (b"1", b"2", b"3", b"4") if allowed.take(reply, 1.0)] == [b"2", b"3", b"4"]


def test_a_repeated_subject_drops_no_other_and_is_the_newest(allowed: AllowedReplies) -> None:
    for reply in (b"1", b"2", b"3", b"1"):
        allowed.sent(reply, 0.0)
    assert allowed.take(b"2", 1.0)
    allowed.sent(b"4", 2.0)
    assert not allowed.take(b"2", 3.0)
    assert allowed.take(b"1", 3.0)
    assert allowed.take(b"3", 3.0)
