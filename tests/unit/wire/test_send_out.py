"""`send_out`: what many connections have to send, one socket after the other; it stops where `flush` must decide."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from eyot_wire import native, out_buffer
from eyot_wire.out_buffer import AT_ONCE_BYTES

Pair = tuple[Any, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections with an open socket, and their peers."""
    made = []
    sockets = []
    for number in range(150):
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        peer.setblocking(False)
        sockets += [ours, peer]
        made.append((_connection(ours.fileno(), b"%d" % number), peer))
    yield made
    for each in sockets:
        each.close()


def _connection(fd: int, out: bytes) -> Any:
    connection = native.OutBuffer()
    connection.fd, connection.dirty = fd, True
    connection.out.extend(out)
    return connection


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20)
    except BlockingIOError:
        return b""


def test_the_plain_twin_leaves_everything_to_flush(pairs: list[Pair]) -> None:
    dests = [connection for connection, _ in pairs]
    assert [out_buffer.send_out(dests, at) for at in (0, 7, len(dests))] == [0, 7, len(dests)]
    with pytest.raises(IndexError):
        out_buffer.send_out(dests, -1)


def test_what_open_sockets_have_to_send_is_sent_in_order(pairs: list[Pair]) -> None:
    dests = [connection for connection, _ in pairs]
    dests[3].out.clear()
    assert native.send_out(dests, 1) == len(dests)
    got = [_received(peer) for _, peer in pairs]
    assert got == [b"", b"1", b"2", b"", *(b"%d" % number for number in range(4, len(dests)))]
    assert dests[0].dirty
    assert dests[0].out == b"0"
    assert not any(connection.dirty or connection.out for connection in dests[1:])
    assert native.send_out(dests, len(dests)) == len(dests)
    with pytest.raises(IndexError):
        native.send_out(dests, -1)


@pytest.mark.parametrize("why", ["other", "no socket", "closed", "large"])
def test_it_stops_before_what_is_not_plain(pairs: list[Pair], why: str) -> None:
    dests = [connection for connection, _ in pairs]
    if why == "other":
        dests[100] = object()
    elif why == "no socket":
        dests[100].fd = -1
    elif why == "closed":
        dests[100].closed = True
    else:
        dests[100].out = bytearray(AT_ONCE_BYTES + 1)
    assert native.send_out(dests, 0) == 100
    assert [_received(peer) for _, peer in pairs[98:103]] == [b"98", b"99", b"", b"", b""]
    assert why == "other" or dests[100].dirty
    assert native.send_out(dests, 100) == 100
    assert native.send_out(dests, 101) == len(dests)


def test_what_a_socket_does_not_accept_stays(pairs: list[Pair]) -> None:
    (_, _), (full, peer), (behind, _) = pairs[:3]
    sent = bytearray()
    while True:
        full.out = bytearray(b"%015d\n" % len(sent) * (AT_ONCE_BYTES // 16))
        full.dirty, before = True, bytes(full.out)
        at = native.send_out([full], 0)
        sent += before[: len(before) - len(full.out)]
        if not at:
            break
    assert full.dirty
    assert before.endswith(full.out)
    assert native.send_out([full, behind], 0) == 0
    assert behind.out == b""
    received = bytearray()
    while data := _received(peer):
        received += data
    assert received == sent


def test_an_error_is_left_to_flush(pairs: list[Pair]) -> None:
    (first, _), (broken, peer), (last, _) = pairs[:3]
    peer.close()
    assert native.send_out([first, broken, last], 0) == 1
    assert not first.dirty
    assert broken.dirty
    assert broken.out == b"1"
    assert last.out == b""


def test_one_that_stands_there_twice_is_sent_once(pairs: list[Pair]) -> None:
    """It was flushed in the middle of the turn, and got more."""
    dests = [connection for connection, _ in pairs[:3]]
    dests += [dests[1], dests[0]]
    at = native.send_out(dests, 0)
    while at < len(dests):
        at = native.send_out(dests, at + 1)
    assert [_received(peer) for _, peer in pairs[:3]] == [b"0", b"1", b"2"]
    assert not any(each.out or each.dirty for each in dests)
