"""Acknowledgements reach their consumer directly only while no other subscription could receive them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.router import ack_sinks
from eyot_daemon.router.ack_sinks import Ack
from eyot_daemon.router.broker import Broker
from eyot_wire.pattern_set import PatternSet
from eyot_wire.subject import overlaps
from support.clients.destinations import Recorder

ACK = b"$JS.ACK.S.C.1.2.3.4.5"


class Counted(PatternSet):
    """Questions about what others listen to."""

    asked = 0

    def overlaps(self, pattern: bytes) -> bool:
        Counted.asked += 1
        return super().overlaps(pattern)


class Sink:
    def acknowledge(self, acks: Sequence[Ack]) -> None: ...


def test_only_while_nobody_else_listens() -> None:
    account = Broker().add_account("A")
    early = account.subscribe(b"$JS.ACK.S.>", Recorder())
    account.subscribe(b"orders.>", Recorder())
    sinks = account.acknowledgement_sinks()
    mine, other = Sink(), Sink()
    sub_of_mine = account.subscribe(b"$JS.ACK.S.C.*.*.*.*.*", Recorder())
    sub_of_other = account.subscribe(b"$JS.ACK.S.D.*.*.*.*.*", Recorder())
    sinks.register(sub_of_mine, mine)
    sinks.register(sub_of_other, other)
    assert sinks.find(ACK) is None
    account.unsubscribe(early)
    assert sinks.find(ACK) is mine
    assert sinks.find(b"$JS.ACK.S.D.1.2.3.4.5") is other
    assert sinks.find(b"$JS.ACK.S.C.1.2.3.4") is None
    assert sinks.find(b"$JS.ACK.S.C.1.2.3.4.5.6") is None
    assert sinks.find(b"$JS.ACK.S.E.1.2.3.4.5") is None
    for pattern in (b">", b"*.ACK.>", b"$JS.ACK.*.C.>", b"$JS.ACK.S.C.1.2.3.4.5"):
        listener = account.subscribe(pattern, Recorder())
        assert sinks.find(ACK) is None
        account.unsubscribe(listener)
        assert sinks.find(ACK) is mine
    listener = account.subscribe(b"$JS.ACK.S.D.>", Recorder())
    assert sinks.find(ACK) is mine
    assert sinks.find(b"$JS.ACK.S.D.1.2.3.4.5") is None
    account.unsubscribe(listener)
    sinks.unregister(sub_of_mine)
    assert sinks.find(ACK) is None
    account.unsubscribe(sub_of_mine)
    assert sinks.find(b"$JS.ACK.S.D.1.2.3.4.5") is other


@pytest.mark.parametrize("others", [0, 3000])
def test_consumers_and_listeners_cost_nothing_until_an_acknowledgement_comes(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 consumers and as many listeners: each was compared with each when one of them came or went."""
    monkeypatch.setattr(ack_sinks, "PatternSet", Counted)
    account = Broker().add_account("A")
    sinks = account.acknowledgement_sinks()
    Counted.asked = 0
    sinks_by_key = {}
    for number in range(3000):
        sub = account.subscribe(b"$JS.ACK.S.C%d.*.*.*.*.*" % number, Recorder())
        sinks_by_key[number] = Sink()
        sinks.register(sub, sinks_by_key[number])
    for number in range(others):
        account.subscribe(b"$JS.ACK.*.D%d.>" % number, Recorder())
    assert Counted.asked == 0
    for _ in range(3):
        for number in range(3000):
            assert sinks.find(b"$JS.ACK.S.C%d.1.2.3.4.5" % number) is sinks_by_key[number]
    assert Counted.asked == 3000


TOKEN = st.sampled_from([b"$JS", b"ACK", b"S", b"C", b"D", b"*", b"1"])
OTHER = st.lists(TOKEN, min_size=1, max_size=9).map(b".".join) | st.lists(TOKEN, max_size=5).map(
    lambda tokens: b".".join([*tokens, b">"])
)


@given(st.lists(OTHER, max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_what_is_found_is_what_nobody_else_hears(others: list[bytes], leaving: list[int]) -> None:
    account = Broker().add_account("A")
    sinks = account.acknowledgement_sinks()
    sinks_by_key = {name: Sink() for name in (b"C", b"D")}
    subs = {name: account.subscribe(b"$JS.ACK.S.%b.*.*.*.*.*" % name, Recorder()) for name in sinks_by_key}
    for name, sub in subs.items():
        sinks.register(sub, sinks_by_key[name])
    listening = [account.subscribe(pattern, Recorder()) for pattern in others]
    for index in [None, *leaving]:
        if index is not None and index < len(listening):
            account.unsubscribe(listening.pop(index))
        for name, sub in subs.items():
            heard = any(overlaps(other.subject, sub.subject) for other in listening)
            found = sinks.find(b"$JS.ACK.S.%b.1.2.3.4.5" % name)
            assert found is (None if heard else sinks_by_key[name])
