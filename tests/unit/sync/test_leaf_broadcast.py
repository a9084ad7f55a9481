"""Interest sent to many links at once equals the interest that each would receive alone."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eyot_sync.leaf.broadcast import InterestBroadcast, Source
from eyot_sync.leaf.interest import LOCAL, InterestOrigin, LeafInterest, LinkPeer, crosses

KEYS = st.tuples(st.sampled_from([b"a", b"b.>", b"$LDS.x", b"$LDS.y"]), st.sampled_from([b"", b"q"]))


class Link:
    """A member, and what its peer understood."""

    def __init__(self, cluster: str, isolated: bool) -> None:
        self.cluster = cluster
        self.isolated = isolated
        self.source = Source(self, cluster)
        self.peer = LinkPeer(is_upstream=False, cluster=cluster, isolated=isolated)
        self.known: dict[tuple[bytes, bytes], int] = {}
        self.lines = 0

    def told(self, chunk: bytes) -> None:
        for line in chunk.splitlines():
            self.lines += 1
            verb, subject, *rest = line.split(b" ")
            key = (subject, rest[0] if rest else b"")
            if verb == b"LS+":
                value = int(rest[1]) if rest else 1
                assert self.known.get(key) != value, "nothing is said twice"
                self.known[key] = value
            else:
                del self.known[key]


class Broadcasts(RuleBasedStateMachine):
    """Links come and go, interest at home and beyond links comes and goes; the model counts for each link alone."""

    def __init__(self) -> None:
        super().__init__()
        self.broadcast: InterestBroadcast[Link] = InterestBroadcast()
        self.members: list[Link] = []
        # An upstream hub: interest comes from it, it is not told here.
        self.hub = Link("hub", False)
        self.interest: list[tuple[bytes, bytes, int, Link | None]] = []

    @rule(cluster=st.sampled_from(["", "c", "d"]), isolated=st.booleans())
    def join(self, cluster: str, isolated: bool) -> None:
        link = Link(cluster, isolated)
        self.members.append(link)
        link.told(self.broadcast.join(link))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.members))
        self.members.remove(link)
        self.broadcast.leave(link)
        for entry in [entry for entry in self.interest if entry[3] is link]:
            self._remove(entry)

    @rule(data=st.data(), key=KEYS, weight=st.integers(1, 3))
    def add(self, data: st.DataObject, key: tuple[bytes, bytes], weight: int) -> None:
        source = data.draw(st.sampled_from([None, None, self.hub, *self.members]))
        if source is not None and any(entry[:2] == key and entry[3] is source for entry in self.interest):
            return  # a link announces a key once
        entry = (*key, weight if key[1] else 1, source)
        self.interest.append(entry)
        self.broadcast.add(*key, entry[2], None if source is None else source.source)

    @precondition(lambda self: self.interest)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self._remove(data.draw(st.sampled_from(self.interest)))

    @rule()
    def distribute(self) -> None:
        told = []
        for link, chunk in self.broadcast.distribute():
            assert chunk
            told.append(link)
            link.told(chunk)
        assert len(told) == len(set(told))

    @invariant()
    def everybody_knows_what_it_should(self) -> None:
        if self.broadcast.pending:
            return
        for link in self.members:
            alone = LeafInterest()
            for subject, queue, weight, source in self.interest:
                origin = LOCAL if source is None else InterestOrigin(True, source is self.hub, source.cluster)
                # Kin are left out by cluster, whatever the subject; so is the link itself.
                if source is not link and crosses(origin, link.peer, subject):
                    alone.add(subject, queue, weight)
            alone.drain(1000)
            assert link.known == {(subject, queue): weight for subject, queue, weight in alone.announced()}

    def _remove(self, entry: tuple[bytes, bytes, int, Link | None]) -> None:
        self.interest.remove(entry)
        subject, queue, weight, source = entry
        self.broadcast.remove(subject, queue, weight, None if source is None else source.source)


Broadcasts.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestBroadcasts = Broadcasts.TestCase


def test_one_chunk_serves_everybody_who_has_no_part_in_it() -> None:
    broadcast: InterestBroadcast[Link] = InterestBroadcast()
    links = [Link(f"c{number}", False) for number in range(50)]
    for link in links:
        assert broadcast.join(link) == b""
    broadcast.add(b"home", b"", 1, None)
    broadcast.add(b"of.0", b"", 1, links[0].source)
    chunks = dict(broadcast.distribute())
    assert chunks[links[0]] == b"LS+ home\r\n"
    others = {id(chunks[link]) for link in links[1:]}
    assert len(others) == 1, "the very same bytes"
    assert chunks[links[1]] == b"LS+ home\r\nLS+ of.0\r\n"


def test_what_came_and_went_in_between_is_not_told() -> None:
    broadcast: InterestBroadcast[Link] = InterestBroadcast()
    link = Link("", False)
    broadcast.join(link)
    broadcast.add(b"_INBOX.1", b"", 1, None)
    broadcast.remove(b"_INBOX.1", b"", 1, None)
    assert broadcast.pending
    assert list(broadcast.distribute()) == []
    assert not broadcast.pending


def test_many_changes_are_told_in_groups_that_are_shared() -> None:
    broadcast: InterestBroadcast[Link] = InterestBroadcast()
    links = [Link(f"c{number}", False) for number in range(20)]
    for link in links:
        broadcast.join(link)
    for number, link in enumerate(links):
        for subject in range(50):
            broadcast.add(b"of.%d.%d" % (number, subject), b"", 1, link.source)
    chunks: dict[Link, list[bytes]] = {}
    for link, chunk in broadcast.distribute():
        link.told(chunk)
        chunks.setdefault(link, []).append(chunk)
    for number, link in enumerate(links):
        assert len(link.known) == 950
        assert not any(subject.startswith(b"of.%d." % number) for subject, _ in link.known)
    everything = sum(len(chunk) for told in chunks.values() for chunk in told)
    held = sum(len(chunk) for chunk in {id(chunk): chunk for told in chunks.values() for chunk in told}.values())
    assert held < everything / 2


def test_what_is_settled_is_told_to_those_who_join_alone() -> None:
    broadcast: InterestBroadcast[Link] = InterestBroadcast()
    broadcast.add(b"a", b"", 1, None)
    broadcast.add(b"b", b"", 1, None)
    assert broadcast.changes == 2
    broadcast.settle()
    assert (broadcast.changes, broadcast.pending) == (0, False)
    member = Link("", isolated=False)
    assert broadcast.join(member) == b"LS+ a\r\nLS+ b\r\n"
    assert list(broadcast.distribute()) == []
    broadcast.remove(b"a", b"", 1, None)
    assert list(broadcast.distribute()) == [(member, b"LS- a\r\n")]
