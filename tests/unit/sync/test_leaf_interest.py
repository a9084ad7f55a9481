"""What crosses a link, and the lines that say so."""

from __future__ import annotations

import pytest

from eyot_sync.leaf.interest import LOCAL, InterestOrigin, LeafInterest, LinkPeer, crosses, may_forward

UPSTREAM = LinkPeer(is_upstream=True, cluster="hub")
DOWNSTREAM = LinkPeer(is_upstream=False, cluster="B")


def test_plain_interest_is_told_once_and_untold_once() -> None:
    interest = LeafInterest()
    interest.add(b"a")
    interest.add(b"a")
    assert interest.drain(10) == [b"LS+ a\r\n"]
    interest.remove(b"a")
    assert interest.drain(10) == []
    interest.remove(b"a")
    assert interest.drain(10) == [b"LS- a\r\n"]
    assert len(interest) == 0


def test_queue_members_are_weights() -> None:
    interest = LeafInterest()
    interest.add(b"q", b"grp")
    assert interest.drain(10) == [b"LS+ q grp 1\r\n"]
    interest.add(b"q", b"grp")
    assert interest.drain(10) == [b"LS+ q grp 2\r\n"]
    interest.add(b"q", b"grp", 5)
    interest.remove(b"q", b"grp")
    assert interest.drain(10) == [b"LS+ q grp 6\r\n"]
    interest.remove(b"q", b"grp")
    interest.remove(b"q", b"grp", 5)
    assert interest.drain(10) == [b"LS- q grp\r\n"]


def test_what_came_and_went_within_a_turn_costs_nothing() -> None:
    interest = LeafInterest()
    interest.add(b"_INBOX.1")
    interest.remove(b"_INBOX.1")
    assert interest.has_changes
    assert interest.drain(10) == []
    assert not interest.has_changes


def test_a_replaced_subscription_does_not_blink() -> None:
    interest = LeafInterest()
    interest.add(b"a")
    interest.drain(10)
    interest.remove(b"a")
    interest.add(b"a")
    assert interest.drain(10) == []


def test_floods_leave_in_portions_and_in_order() -> None:
    interest = LeafInterest()
    for number in range(5):
        interest.add(b"s.%d" % number)
    assert interest.drain(2) == [b"LS+ s.0\r\n", b"LS+ s.1\r\n"]
    assert interest.drain(9) == [b"LS+ s.2\r\n", b"LS+ s.3\r\n", b"LS+ s.4\r\n"]
    assert sorted(interest.announced())[0] == (b"s.0", b"", 1)


def test_removing_what_was_never_there_changes_nothing() -> None:
    interest = LeafInterest()
    interest.remove(b"a")
    interest.remove(b"a", b"q", 3)
    assert interest.drain(10) == []


@pytest.mark.parametrize(
    ("origin", "peer", "subject", "expected"),
    [
        (LOCAL, UPSTREAM, b"a", True),
        (LOCAL, LinkPeer(is_upstream=False, isolated=True), b"a", True),
        # east-west between two leafs of a hub
        (InterestOrigin(is_leaf=True, cluster="A"), DOWNSTREAM, b"a", True),
        # from a leaf of ours up to our hub
        (InterestOrigin(is_leaf=True, cluster="A"), UPSTREAM, b"a", True),
        # from our hub down to a leaf of ours
        (InterestOrigin(is_leaf=True, from_upstream=True, cluster="hub"), DOWNSTREAM, b"a", True),
        # between two hubs of ours: we are no bridge
        (InterestOrigin(is_leaf=True, from_upstream=True, cluster="other"), UPSTREAM, b"a", False),
        # links of one cluster hear each other inside it
        (InterestOrigin(is_leaf=True, cluster="B"), DOWNSTREAM, b"a", False),
        (InterestOrigin(is_leaf=True, cluster="B"), DOWNSTREAM, b"$LDS.x", False),
        # two peers without cluster are not one cluster
        (InterestOrigin(is_leaf=True), LinkPeer(is_upstream=False), b"a", True),
        (
            InterestOrigin(is_leaf=True, cluster="A"),
            LinkPeer(is_upstream=False, cluster="B", isolated=True),
            b"a",
            False,
        ),
        # loop subjects go further than others
        (InterestOrigin(is_leaf=True, cluster="A"), LinkPeer(is_upstream=False, isolated=True), b"$LDS.x", True),
        (InterestOrigin(is_leaf=True, from_upstream=True, cluster="other"), UPSTREAM, b"$LDS.x", True),
    ],
)
def test_crosses(origin: InterestOrigin, peer: LinkPeer, subject: bytes, expected: bool) -> None:
    assert crosses(origin, peer, subject) is expected


def test_messages_go_between_leafs_but_not_between_hubs() -> None:
    assert may_forward(LOCAL, UPSTREAM)
    assert may_forward(InterestOrigin(is_leaf=True, cluster="A"), DOWNSTREAM)
    assert may_forward(InterestOrigin(is_leaf=True, cluster="A"), UPSTREAM)
    assert may_forward(InterestOrigin(is_leaf=True, from_upstream=True, cluster="hub"), DOWNSTREAM)
    assert not may_forward(InterestOrigin(is_leaf=True, from_upstream=True, cluster="h2"), UPSTREAM)
    assert not may_forward(InterestOrigin(is_leaf=True, cluster="B"), DOWNSTREAM)
