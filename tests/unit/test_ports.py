"""Ports of tests: no two processes of this machine are given the same."""

from __future__ import annotations

import socket

from support.servers.server_process import BLOCK, Ports


def test_each_has_a_block_of_its_own() -> None:
    one, other = Ports(), Ports()
    ports = {one.next() for _ in range(50)}
    assert len(ports) == 50
    assert ports.isdisjoint({other.next() for _ in range(50)})


def test_what_listens_is_passed_over() -> None:
    ports = Ports()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports.first = taken.getsockname()[1]
        assert ports.next() != ports.first


def test_the_one_given_longest_ago_comes_again() -> None:
    ports = Ports()
    first = ports.next()
    assert first in {ports.next() for _ in range(BLOCK)}
