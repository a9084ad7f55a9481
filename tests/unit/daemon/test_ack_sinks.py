"""Acknowledgements find their consumer directly only while nobody else could hear them."""

from collections.abc import Sequence

from eyot_daemon.router.ack_sinks import Ack, AckSinks
from eyot_daemon.router.broker import Broker
from support.destinations import Recorder

ACK = b"$JS.ACK.S.C.1.2.3.4.5"


class Taker:
    def acknowledge(self, acks: Sequence[Ack]) -> None: ...


def test_only_while_nobody_else_listens() -> None:
    account = Broker().add_account("A")
    early = account.subscribe(b"$JS.ACK.S.>", Recorder())
    account.subscribe(b"orders.>", Recorder())
    sinks = AckSinks(account)
    mine, other = Taker(), Taker()
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
