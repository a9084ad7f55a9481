"""Memory that a hub keeps for a leaf node before authentication."""

import random

import pytest

from eyot_sync.leaf.compression import LeafCompression
from eyot_sync.leaf.events import Closed, ConnectReceived, Established, LeafIdentity, LeafOptions, Role, UserRules
from eyot_sync.leaf.session import LeafSession
from eyot_wire.archive import s2
from eyot_wire.frames import LeafMsg, LsAdd

CONNECT = b'CONNECT {"name":"leaf","headers":true}\r\n'
UNKNOWN_MAX = 64 * 1024
LARGE = 8 * 1024 * 1024


def accepting(compression: LeafCompression | None = None) -> LeafSession:
    options = LeafOptions(role=Role.ACCEPT, client_id=1, compression=compression or LeafCompression())
    session = LeafSession(
        LeafIdentity(server_id="N" + "A" * 55, server_name="hub", version="2.14.0", max_payload=LARGE),
        options,
        random.Random(1),
    )
    session.start(0.0)
    session.data_to_send()
    return session


@pytest.mark.parametrize(
    "first", [b"LMSG a 1000000\r\n", b"HMSG a 12 1000000\r\n", b"LMSG a 0\r\n\r\n", b"CONNECT {" + b" " * 60_000]
)
def test_nothing_but_a_connect_of_usual_length_is_taken(first: bytes) -> None:
    session = accepting()
    (closed,) = session.receive(first, 0.0)
    assert isinstance(closed, Closed)
    assert session.held_bytes == 0


@pytest.mark.parametrize("packed", [False, True])
def test_what_follows_connect_waits_within_bounds(packed: bool) -> None:
    session = accepting(LeafCompression("s2_fast") if packed else None)
    identifier = b""
    if packed:
        assert session.receive(b'INFO {"compression":"s2_fast"}\r\n', 0.0) == []
        identifier = b"\xff\x06\x00\x00S2sTwO"
    message = b"LMSG a 5\r\nhello\r\n"
    data = CONNECT + b"LS+ b\r\n" + message * 500

    def wire(data: bytes) -> bytes:
        return s2.chunks([data], compress=False) if packed else data

    (event,) = session.receive(identifier + wire(data), 0.0)
    assert isinstance(event, ConnectReceived)
    assert session.receive(wire(message), 0.0) == []
    assert 0 < session.held_bytes <= UNKNOWN_MAX
    events = session.accept_connect(0.0, account="A", is_system=False, user=UserRules())
    kinds = [type(event) for event in events]
    assert kinds == [Established, LsAdd] + [LeafMsg] * 501
    assert session.held_bytes == 0
    large = b"LMSG a %d\r\n" % LARGE + bytes(LARGE) + b"\r\n"  # and now it may say what it likes
    got = [event for at in range(0, len(large), 65536) for event in session.receive(wire(large[at : at + 65536]), 0.0)]
    assert [type(event) for event in got] == [LeafMsg]


def test_who_goes_on_without_an_answer_is_sent_away() -> None:
    session = accepting()
    events = session.receive(CONNECT, 0.0)
    while not session.is_closed:
        events += session.receive(bytes(16 * 1024), 0.0)
        assert session.held_bytes <= UNKNOWN_MAX
    assert isinstance(events[-1], Closed)
    assert session.held_bytes == 0


def test_a_packed_block_stands_for_little_before_connect() -> None:
    session = accepting(LeafCompression("s2_fast"))
    session.receive(b'INFO {"compression":"s2_fast"}\r\n', 0.0)
    bomb = s2.chunks([bytes(60_000)], compress=True)
    (closed,) = session.receive(b"\xff\x06\x00\x00S2sTwO" + bomb, 0.0)
    assert isinstance(closed, Closed)


@pytest.mark.parametrize("sent", [b"LMSG a 1000000\r\n" + bytes(500_000), b"LS+ a"])
def test_a_link_that_ends_keeps_nothing(sent: bytes) -> None:
    session = accepting()
    session.receive(CONNECT, 0.0)
    session.accept_connect(0.0, account="A", is_system=False, user=UserRules())
    session.receive(sent, 0.0)
    assert session.held_bytes >= len(sent)
    session.connection_lost("cut")
    assert session.held_bytes == 0
