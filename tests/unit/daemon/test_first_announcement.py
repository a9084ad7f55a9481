"""The first announcement of very many subscriptions to a link: in slices, complete and true whatever comes and goes meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.router import leaf_account
from eyot_daemon.router.leaf_account import ANNOUNCED_MAX, PASS_ON_CHANGES_MAX
from eyot_daemon.router.subscription import CallbackDest, Kind, Subscription
from support.links.leaf_turns import Fixture as Turns
from support.links.leaf_turns import Wire

COUNT = 6 * PASS_ON_CHANGES_MAX


class Fixture(Turns):
    def greeted(self, wire: Wire) -> None:
        """Keep what it was sent: that is the beginning of the announcement."""


def told(wire: Wire) -> dict[tuple[bytes, bytes], int]:
    """What a peer knows after all lines: subject and queue, and the members."""
    known: dict[tuple[bytes, bytes], int] = {}
    for line in bytes(wire.sent).split(b"\r\n"):
        words = line.split(b" ")
        if words[0] == b"LS+" and not words[1].startswith(b"$LDS."):
            known[words[1], words[2] if len(words) > 2 else b""] = int(words[3]) if len(words) > 3 else 1
        elif words[0] == b"LS-":
            known.pop((words[1], words[2] if len(words) > 2 else b""), None)
    return known


def expected(fixture: Fixture, link: LeafConnection) -> dict[tuple[bytes, bytes], int]:
    found: dict[tuple[bytes, bytes], int] = {}
    for sub in fixture.account.subscriptions():
        if sub.dest is not link:
            key = sub.subject, sub.queue
            found[key] = found.get(key, 0) + sub.weight if sub.queue else 1
    return found


def subscribe(fixture: Fixture, subject: bytes, queue: bytes = b"") -> Subscription:
    dest = CallbackDest(lambda *_: None, Kind.SYSTEM, "test")
    return fixture.account.subscribe(subject, dest, queue)


@pytest.fixture(params=["together", "one by one"])
def fixture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fixture:
    """Links are served together, or each by its own permissions."""
    if request.param == "one by one":
        monkeypatch.setattr(LeafConnection, "receives_all_interest", False)
    return Fixture()


def linked(fixture: Fixture, name: str) -> tuple[LeafConnection, Wire]:
    """A link that has only begun to hear of the account's interest."""
    link, wire = fixture.leaf(name)
    fixture.send(link, b"LS+ n\r\nPING\r\n")
    return link, wire


def settle(fixture: Fixture) -> None:
    fixture.rest()
    fixture.clock.advance(leaf_account.PASS_ON_S_MAX)
    fixture.rest()


@pytest.mark.parametrize("others", [0, 1])
def test_it_takes_many_turns_and_is_complete(fixture: Fixture, others: int) -> None:
    for number in range(COUNT):
        subscribe(fixture, b"s.%d" % number)
    subscribe(fixture, b"$JS.hub.API.>")
    for number in range(others):
        linked(fixture, f"other{number}")
        settle(fixture)
    link, wire = fixture.leaf("a")
    turns, known = 0, wire.sent.count(b"LS+ ")
    while fixture.later_turn():
        before, known = known, wire.sent.count(b"LS+ ")
        assert known - before <= ANNOUNCED_MAX + PASS_ON_CHANGES_MAX
        turns += 1
    settle(fixture)
    assert turns >= COUNT // (ANNOUNCED_MAX + PASS_ON_CHANGES_MAX)
    assert told(wire) == expected(fixture, link)


def test_services_are_announced_first(fixture: Fixture) -> None:
    for number in range(COUNT):
        subscribe(fixture, b"s.%d" % number)
    subscribe(fixture, b"$JS.hub.API.>")
    _, wire = fixture.leaf("a")
    known = told(wire)
    assert (b"$JS.hub.API.>", b"") in known
    assert len(known) < COUNT


def test_messages_wait_for_it(fixture: Fixture) -> None:
    """A responder beyond the link must know who listens before it is asked."""
    for number in range(COUNT):
        subscribe(fixture, b"s.%d" % number)
    link, wire = linked(fixture, "a")
    fixture.account.publish(b"n", reply=b"s.%d" % (COUNT - 1), payload=b"x")
    fixture.broker.flush()
    fixture.send(link, b"PING\r\n")
    assert wire.sent.count(b"PONG\r\n") >= 1
    assert b"LMSG n" not in wire.sent
    fixture.rest()
    fixture.send(link, b"PONG\r\n" * wire.sent.count(b"PING\r\n"))
    assert wire.sent.count(b"LMSG n") == 1
    assert wire.sent.index(b"LMSG n") > max(wire.sent.rindex(b"LS+ s."), 0)


def test_a_link_that_ends_meanwhile(fixture: Fixture) -> None:
    subs = [subscribe(fixture, b"s.%d" % number) for number in range(COUNT)]
    link, _ = linked(fixture, "a")
    link.close("Kicked")
    fixture.rest()
    for sub in subs:
        fixture.account.unsubscribe(sub)
    link, wire = linked(fixture, "b")
    settle(fixture)
    assert told(wire) == expected(fixture, link)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_peer_knows_is_true_whatever_comes_and_goes_meanwhile(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for bound in ("ANNOUNCED_MAX", "PASS_ON_CHANGES_MAX"):
        monkeypatch.setattr(leaf_account, bound, 5)
    rng = Random(seed)
    links: dict[LeafConnection, Wire] = {}
    sent: dict[LeafConnection, bytearray] = {}
    subs: list[Subscription] = []

    def come() -> None:
        subject = b"%b.%d" % (rng.choice([b"s", b"$JS"]), rng.randrange(60))
        subs.append(subscribe(fixture, subject, rng.choice([b"", b"", b"q", b"r"])))

    def go() -> None:
        if subs:
            fixture.account.unsubscribe(subs.pop(rng.randrange(len(subs))))

    def link_up() -> None:
        if len(links) < 4:
            link, wire = fixture.leaf(f"link{len(sent)}")
            sent[link] = bytearray()
            links[link] = wire

    def link_down() -> None:
        if links and rng.random() < 0.3:
            link = rng.choice(list(links))
            del links[link]
            link.close("Kicked")

    def from_a_link() -> None:
        if links:
            subject = b"s.%d" % rng.randrange(60)
            line = rng.choice([b"LS+ %b\r\n", b"LS- %b\r\n", b"LS+ %b q %d\r\n"])
            link = rng.choice(list(links))
            fixture.send(link, line % ((subject, rng.randrange(1, 5)) if b"%d" in line else subject))

    for _ in range(rng.randrange(10, 80)):
        come()
    for _ in range(150):
        rng.choice([come, come, go, link_up, link_down, from_a_link, fixture.later_turn])()
        fixture.broker.flush()
    settle(fixture)
    for link, wire in links.items():
        assert told(wire) == expected(fixture, link)
        assert not link.session.outbox.awaits_interest
