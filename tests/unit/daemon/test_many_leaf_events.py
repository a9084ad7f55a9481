"""What a peer of a leaf link sends in one piece is handled in slices: others are served between two of them, in order, and nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from eyot_daemon.leaf.held_events import HELD_EVENTS_MAX
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.net.transport import CLIENT_CLOSED, INTERNAL_ERROR
from eyot_daemon.router import leaf_account
from eyot_daemon.router.retired import REMOVED_MAX
from eyot_sync.leaf.events import EVENTS_OF_A_TURN
from support.links.leaf_turns import Fixture

COUNT = 10 * EVENTS_OF_A_TURN
ADDS = b"".join(b"LS+ s.%d\r\n" % number for number in range(COUNT))


def handled(link: LeafConnection) -> int:
    return len(link.peer_interest.subs)


def test_others_are_answered_between_the_slices_and_the_sender_behind_them() -> None:
    fixture = Fixture()
    (link, wire), (other, heard) = fixture.leaf("a"), fixture.leaf("b")
    fixture.send(link, ADDS + b"PING\r\n")
    before = 0
    while not wire.is_read:
        assert before <= handled(link) <= before + EVENTS_OF_A_TURN
        before = handled(link)
        assert b"PONG" not in wire.sent
        heard.sent.clear()
        fixture.send(other, b"PING\r\n")
        assert b"PONG\r\n" in heard.sent
        assert fixture.later_turn()
    assert handled(link) == COUNT
    assert wire.sent.count(b"PONG\r\n") == 1


def test_what_comes_meanwhile_waits_behind() -> None:
    """A gate is passed for one read now and then."""
    fixture = Fixture()
    fixture.listen(b"n")
    link, wire = fixture.leaf()
    fixture.send(link, ADDS)
    gate, wire.held = wire.held, None
    fixture.send(link, b"LS- s.1\r\nLMSG n 2\r\nhi\r\nPING\r\n")
    assert wire.held is gate
    assert (fixture.heard, bytes(wire.sent)) == ([], b"")
    fixture.rest()
    assert (fixture.heard, bytes(wire.sent)) == ([b"hi"], b"PONG\r\n")
    assert handled(link) == COUNT - 1
    fixture.send(link, b"PING\r\n")
    assert wire.sent.count(b"PONG\r\n") == 2


def test_messages_between_interest_keep_their_order() -> None:
    fixture = Fixture()
    fixture.listen(b"n")
    link, _ = fixture.leaf()
    numbers = [b"%05d" % number for number in range(COUNT)]
    fixture.send(link, b"".join(b"LS+ s.%b\r\nLMSG n 5\r\n%b\r\n" % (number, number) for number in numbers))
    assert len(fixture.heard) == EVENTS_OF_A_TURN
    fixture.rest()
    assert fixture.heard == numbers


def test_messages_alone_are_one_slice() -> None:
    fixture = Fixture()
    fixture.listen(b"n")
    link, wire = fixture.leaf()
    fixture.send(link, b"LMSG n 1\r\nx\r\n" * COUNT)
    assert len(fixture.heard) == COUNT
    assert wire.held is None


def test_messages_that_came_before_the_end_are_delivered() -> None:
    fixture = Fixture()
    fixture.listen(b"n")
    link, _ = fixture.leaf()
    fixture.send(link, ADDS + b"LMSG n 4\r\nlast\r\n")
    link.lost(CLIENT_CLOSED)
    fixture.broker.flush()
    assert fixture.heard == [b"last"]
    fixture.rest()
    assert link.peer_interest.subs == {}


def test_interest_told_again_is_one_subscription_with_the_last_weight() -> None:
    fixture = Fixture()
    link, _ = fixture.leaf()
    before = len(list(fixture.account.subscriptions()))
    for weight, counts in ((2, 2), (5, 5), (0, 1)):
        fixture.send(link, b"LS+ p\r\nLS+ w g %d\r\n" % weight)
        (group,) = fixture.account.route(b"w").groups
        assert [member.weight for member in group.leaf_links] == [counts]
    assert len(list(fixture.account.subscriptions())) == before + 2
    assert [member.dest for member in fixture.account.route(b"p").leaf_links] == [link]


@pytest.mark.parametrize("other", [b"LS+ d.>\r\n", b"LS+ d.x q 1\r\n", b""])
def test_deliveries_that_wait_are_dropped_with_the_last_interest_in_them(other: bytes) -> None:
    fixture = Fixture()
    link, wire = fixture.leaf()
    fixture.leaf("b")
    fixture.send(link, b"LS+ d.x\r\n" + other)
    wire.sent.clear()
    assert link.deliver_all_of(b"S", b"d.x", [(b"", b"", b"one")]) == 1
    fixture.send(link, b"LS- d.x\r\n")
    assert (b"one" in wire.sent) is bool(other)


def kick(link: LeafConnection) -> None:
    link.close("Kicked")


def break_protocol(link: LeafConnection) -> None:
    link.received(b"NONSENSE\r\n")


@pytest.mark.parametrize("what", [kick, break_protocol])
def test_a_link_that_ends_gets_no_later_turn(what: Callable[[LeafConnection], None]) -> None:
    fixture = Fixture()
    link, wire = fixture.leaf()
    before = len(list(fixture.account.subscriptions()))
    fixture.send(link, ADDS)
    what(link)
    fixture.rest()
    assert link.closed
    assert wire.closed
    assert wire.is_read
    assert len(list(fixture.account.subscriptions())) == before


def test_interest_of_a_link_that_ends_is_withdrawn_in_slices() -> None:
    fixture = Fixture()
    (link, _), (_, heard) = fixture.leaf("a"), fixture.leaf("b")
    fixture.send(link, ADDS + b"LS+ $JS.hub.API.>\r\n")
    fixture.rest()
    fixture.clock.advance(leaf_account.PASS_ON_S_MAX)
    fixture.rest()
    heard.sent.clear()
    link.lost(CLIENT_CLOSED)
    fixture.broker.flush()
    link.release()
    assert not fixture.account.has_interest(b"$JS.hub.API.INFO")
    assert fixture.account.publish(b"s.%d" % (COUNT - 1)) == 0
    withdrawn = heard.sent.count(b"LS- s.")
    assert withdrawn < COUNT
    while fixture.later_turn():
        assert heard.sent.count(b"LS- s.") <= withdrawn + leaf_account.PASS_ON_CHANGES_MAX + REMOVED_MAX
        withdrawn = heard.sent.count(b"LS- s.")
    fixture.clock.advance(leaf_account.PASS_ON_S_MAX)
    fixture.rest()
    assert heard.sent.count(b"LS- s.") == COUNT
    assert not hasattr(link, "source")


def test_what_is_held_is_bounded() -> None:
    fixture = Fixture()
    link, _ = fixture.leaf()
    for _ in range(HELD_EVENTS_MAX // COUNT + 2):
        link.received(ADDS)
    assert handled(link) == COUNT
    fixture.rest()
    assert not link.session.events_wait


def test_an_internal_error_in_a_later_turn_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture()
    link, _ = fixture.leaf()
    fixture.send(link, ADDS)
    monkeypatch.setattr(link, "peer_interest", None)
    with monkeypatch.context() as patch:
        patch.setattr(LeafConnection, "_leave", lambda self: None)
        fixture.rest()
    assert link.close_reason == INTERNAL_ERROR


def test_much_changed_interest_is_passed_on_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait gathers changes of a fleet; gathered without a bound they would make one long turn."""
    monkeypatch.setattr(leaf_account, "PASS_ON_S_PER_LINK", 1.0)
    fixture = Fixture()
    (link, _), (_, heard) = fixture.leaf("a"), fixture.leaf("b")
    fixture.send(link, b"LS+ few\r\n")
    assert heard.sent == b""
    told = []
    fixture.send(link, ADDS)
    while True:
        told.append(heard.sent.count(b"LS+ s."))
        if not fixture.later_turn():
            break
    steps = [after - before for before, after in itertools.pairwise(told)]
    assert max(steps) <= leaf_account.PASS_ON_CHANGES_MAX + EVENTS_OF_A_TURN
    assert told[-1] >= COUNT - leaf_account.PASS_ON_CHANGES_MAX
