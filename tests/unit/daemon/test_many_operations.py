"""What a client sends in one piece is handled in slices: others are served between two of them, and nothing is lost or reordered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eyot_daemon.client.connection import HELD_BYTES_MAX, OPS_MAX, ClientConnection
from eyot_daemon.net.transport import CLIENT_CLOSED, INTERNAL_ERROR
from support.clients.client_turns import ClientTurns

COUNT = 10 * OPS_MAX
SUBS = b"".join(b"SUB s.%d %d\r\n" % (number, number) for number in range(COUNT))


def handled(client: ClientConnection) -> int:
    return len(client.subs)


def test_others_are_answered_between_the_slices() -> None:
    fixture = ClientTurns()
    (client, wire), (other, heard) = fixture.client(), fixture.client()
    fixture.send(client, SUBS + b"PING\r\n")
    turns = 0
    while wire.held is not None and wire.held.is_shut:
        turns += 1
        assert handled(client) == turns * OPS_MAX
        heard.sent.clear()
        fixture.send(other, b"PING\r\n")
        assert heard.sent == b"PONG\r\n"
        assert fixture.later_turn()
    assert turns == COUNT // OPS_MAX
    assert (handled(client), wire.sent) == (COUNT, b"PONG\r\n")
    assert not fixture.later_turn()


def test_those_who_send_much_take_turns() -> None:
    fixture = ClientTurns()
    clients = [fixture.client()[0] for _ in range(3)]
    for client in clients:
        fixture.send(client, SUBS)
    for number in range(2, COUNT // OPS_MAX + 1):
        for client in clients:
            assert fixture.later_turn()
            assert handled(client) == number * OPS_MAX
    assert not fixture.later_turn()


def test_what_comes_meanwhile_waits_behind() -> None:
    """A gate is passed for one read now and then."""
    fixture = ClientTurns()
    client, wire = fixture.client()
    fixture.send(client, SUBS)
    gate, wire.held = wire.held, None
    fixture.send(client, b"UNSUB 1\r\nPUB s.0 2\r\nhi\r\nPING\r\n")
    assert wire.held is gate
    assert wire.sent == b""
    fixture.rest()
    assert wire.sent == b"MSG s.0 0 2\r\nhi\r\nPONG\r\n"
    assert handled(client) == COUNT - 1


def end(client: ClientConnection) -> None:
    client.lost(CLIENT_CLOSED)


def break_protocol(client: ClientConnection) -> None:
    client.received(b"NONSENSE\r\n")


def send_too_much(client: ClientConnection) -> None:
    for _ in range(HELD_BYTES_MAX // (1 << 20) + 1):
        client.received(b"PING\r\n" * (1 << 18))


@pytest.mark.parametrize("what", [end, break_protocol, send_too_much])
def test_what_was_read_is_carried_out_before_the_end(what: Callable[[ClientConnection], None]) -> None:
    fixture = ClientTurns()
    (client, _), (other, heard) = fixture.client(), fixture.client()
    fixture.send(other, b"SUB n 1\r\n")
    fixture.send(client, b"".join(b"PING\r\nPUB n 1\r\n%d\r\n" % (number % 10) for number in range(COUNT)))
    what(client)
    fixture.broker.flush()
    assert heard.sent.count(b"MSG n 1 1\r\n") == COUNT
    assert client.closed == (what is not send_too_much)
    fixture.rest()


def test_a_client_that_is_closed_gets_no_later_turn() -> None:
    fixture = ClientTurns()
    client, wire = fixture.client()
    fixture.send(client, SUBS)
    client.close("Kicked", linger=False)
    assert wire.held is not None
    assert not wire.held.is_shut
    fixture.rest()
    assert client.subs_at_close == OPS_MAX


def test_an_internal_error_in_a_later_turn_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = ClientTurns()
    client, _ = fixture.client()
    fixture.send(client, SUBS)
    monkeypatch.setattr("eyot_daemon.client.interest.subscribe", None)
    fixture.rest()
    assert client.close_reason == INTERNAL_ERROR
