"""Permissions: allow, deny, queue forms, tracked replies, the deny filter."""

import random

import pytest

from eyot_daemon.config.permissions import Permissions, ResponsePermission, SubjectPermission
from eyot_daemon.router.access import REPLIES_MAX, Access, ReplyTracker

NOW = 100.0


def access(
    publish: SubjectPermission | None = None,
    subscribe: SubjectPermission | None = None,
    responses: ResponsePermission | None = None,
) -> Access:
    return Access(
        Permissions(
            publish=publish or SubjectPermission(),
            subscribe=subscribe or SubjectPermission(),
            allow_responses=responses,
        )
    )


@pytest.mark.parametrize(
    ("allow", "deny", "subject", "allowed"),
    [
        (None, (), b"a", True),
        ((), (), b"a", False),
        ((b"a.*",), (), b"a.b", True),
        ((b"a.*",), (), b"a.b.c", False),
        ((b"a.>",), (b"a.b.>",), b"a.b.c", False),
        ((b"a.>",), (b"a.b.>",), b"a.c", True),
        (None, (b"a.*",), b"a.b", False),
        (None, (b"a",), b"b", True),
        ((b"a",), (b"a",), b"a", False),
    ],
)
def test_publish(allow: tuple[bytes, ...] | None, deny: tuple[bytes, ...], subject: bytes, allowed: bool) -> None:
    checked = access(publish=SubjectPermission(allow=allow, deny=deny))
    assert checked.may_publish(subject, NOW) is allowed
    assert checked.may_publish(subject, NOW) is allowed  # from the cache


@pytest.mark.parametrize(
    ("allow", "deny", "subject", "queue", "allowed"),
    [
        (None, (), b"a.>", b"", True),
        ((b"a.*",), (), b"a.*", b"", True),
        ((b"a.*",), (), b"a.>", b"", True),  # wider than allowed, and let through by nats-server too
        ((b"a.*",), (), b">", b"", False),
        ((b"a.>",), (), b"a.*.c", b"", True),
        ((b"a.*",), (), b"*.b", b"", False),  # overlaps, but is no subset
        ((b"a.>",), (b"a.b",), b"a.b", b"", False),
        ((b"a.>",), (b"a.b",), b"a.>", b"", True),  # filtered at delivery
        ((b"a.>",), (b"a.>",), b"a.*", b"", False),
        ((b"a q1",), (), b"a", b"q1", True),
        ((b"a q1",), (), b"a", b"q2", False),
        ((b"a q1",), (), b"a", b"", False),
        ((b"a v1.*",), (), b"a", b"v1.x", True),
        ((b"a v1.*",), (), b"a", b"v2.x", False),
        ((b"a",), (), b"a", b"any", True),
        ((b"a", b"a q1"), (), b"a", b"q2", False),
        (None, (b"a q1",), b"a", b"q1", False),
        (None, (b"a q1",), b"a", b"q2", True),
        (None, (b"a q1",), b"a", b"", True),
        (None, (b"*", b"a q1"), b"a", b"q2", False),  # denied without a queue, hence in every queue
        (None, (b"a.b q1",), b"a.*", b"q1", True),  # filtered at delivery
    ],
)
def test_subscribe(
    allow: tuple[bytes, ...] | None, deny: tuple[bytes, ...], subject: bytes, queue: bytes, allowed: bool
) -> None:
    assert access(subscribe=SubjectPermission(allow=allow, deny=deny)).may_subscribe(subject, queue) is allowed


def test_the_deny_filter_is_for_wildcards_that_overlap_a_deny() -> None:
    checked = access(subscribe=SubjectPermission(deny=(b"a.secret", b"*.hidden")))
    assert checked.needs_deny_filter(b"a.*")
    assert checked.needs_deny_filter(b">")
    assert checked.needs_deny_filter(b"b.*")
    assert not checked.needs_deny_filter(b"a.open")
    assert not checked.needs_deny_filter(b"a.*.c")
    assert not checked.may_receive(b"a.secret")
    assert not checked.may_receive(b"x.hidden")
    assert checked.may_receive(b"a.open")


def test_what_a_queue_may_not_have_is_filtered_for_its_members() -> None:
    checked = access(subscribe=SubjectPermission(deny=(b"a.b q.*",)))
    assert checked.needs_deny_filter(b"a.*", b"q.1")
    assert not checked.needs_deny_filter(b"a.*")
    assert not checked.may_receive(b"a.b", b"q.1")
    assert checked.may_receive(b"a.b", b"r")
    assert checked.may_receive(b"a.b")


def test_replies_may_be_published_once_and_for_a_while() -> None:
    checked = access(responses=ResponsePermission(max_messages=1, expires_s=10.0))
    assert not checked.may_publish(b"_INBOX.1", NOW)
    assert checked.replies is not None
    checked.replies.delivered(b"_INBOX.1", NOW)
    assert checked.may_publish(b"_INBOX.1", NOW + 1)
    assert not checked.may_publish(b"_INBOX.1", NOW + 1)
    checked.replies.delivered(b"_INBOX.2", NOW)
    assert not checked.may_publish(b"_INBOX.2", NOW + 11)


class CountedNow(float):
    """A time that counts how often an age was asked for."""

    asked = 0

    def __sub__(self, other: float) -> float:
        CountedNow.asked += 1
        return float(self) - other


def test_a_full_record_of_replies_looks_at_the_oldest_alone() -> None:
    """Each message to a service that answers little or late adds a reply; none may cost a look at all of them."""
    tracker = ReplyTracker(ResponsePermission(max_messages=-1, expires_s=60.0))
    for number in range(REPLIES_MAX):
        tracker.delivered(b"r.%d" % number, NOW)
    CountedNow.asked = 0
    for number in range(100):
        tracker.delivered(b"s.%d" % number, CountedNow(NOW + 1))
    assert CountedNow.asked <= 200
    assert len(tracker) == REPLIES_MAX
    assert [tracker.use(reply, NOW + 1) for reply in (b"r.99", b"r.100", b"s.0", b"s.99")] == [False, True, True, True]


def test_a_full_record_of_replies_forgets_what_has_expired() -> None:
    tracker = ReplyTracker(ResponsePermission(max_messages=-1, expires_s=60.0))
    for number in range(REPLIES_MAX):
        tracker.delivered(b"r.%d" % number, NOW + (number >= 100))
    tracker.delivered(b"s", NOW + 60.5)
    assert len(tracker) == REPLIES_MAX - 100 + 1
    assert tracker.use(b"r.100", NOW + 60.5)


def test_replies_without_limit() -> None:
    checked = access(responses=ResponsePermission(max_messages=-1, expires_s=-1.0))
    assert checked.replies is not None
    checked.replies.delivered(b"r", NOW)
    assert all(checked.may_publish(b"r", NOW + 1e6) for _ in range(10))


def test_allow_responses_with_a_publish_list_adds_to_it() -> None:
    checked = access(publish=SubjectPermission(allow=(b"a",)), responses=ResponsePermission(max_messages=2))
    assert checked.replies is not None
    checked.replies.delivered(b"r", NOW)
    assert checked.may_publish(b"a", NOW)
    assert [checked.may_publish(b"r", NOW) for _ in range(3)] == [True, True, False]


def test_tracked_replies_are_bounded() -> None:
    checked = access(responses=ResponsePermission(max_messages=1, expires_s=60.0))
    assert checked.replies is not None
    for number in range(REPLIES_MAX + 100):
        checked.replies.delivered(b"r.%d" % number, NOW)
    assert len(checked.replies) == REPLIES_MAX
    assert not checked.may_publish(b"r.0", NOW)
    assert checked.may_publish(b"r.%d" % (REPLIES_MAX + 99), NOW)


def test_nobody_receives_what_is_denied() -> None:
    from eyot_wire.subject import matches

    rng = random.Random(1)

    def subject(tokens: str) -> bytes:
        return ".".join(rng.choice(tokens) for _ in range(rng.randrange(1, 4))).encode()

    received = 0
    for _ in range(20_000):
        allow, deny = ([subject("ab*") for _ in range(rng.randrange(4))] for _ in range(2))
        wanted, literal = subject("ab*"), subject("ab")
        checked = access(subscribe=SubjectPermission(allow=tuple(allow), deny=tuple(deny)))
        if not checked.may_subscribe(wanted) or not matches(wanted, literal):
            continue
        if not checked.needs_deny_filter(wanted) or checked.may_receive(literal):
            received += 1
            assert any(matches(entry, literal) for entry in allow)
            assert not any(matches(entry, literal) for entry in deny)
    assert received > 300
