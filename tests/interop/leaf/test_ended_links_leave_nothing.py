"""Leaf links that the daemon dialled leave no objects behind when they end, at whatever point: reference counts free them."""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from support.links.raw_hub import Hub, Link
from support.servers.counted_eyotd import CountedEyotd
from support.trust.certificates import Authority

#: Links of a kind that end. One more of a class than half of them is a leak.
LINKS = 16
LEFT_MIN = LINKS // 2
WAIT_S = 60
#: Kept on purpose: cancelled timers, until there are too many of them.
KEPT = ("eyot_daemon.turn.timers.TimerHandle",)
PLAIN = """
server_name: leaf-server
leafnodes { reconnect: "10ms", remotes = [ { url: "nats-leaf://acc:acc@127.0.0.1:HUB_PORT", account: ACC SETTINGS } ] }
accounts { ACC: { users: [ {user: good, password: good} ] } }
"""
MESSAGE = b"LMSG a 60000\r\n" + bytes(30_000)


def reset(link: Link) -> None:
    """Have the socket's end be a reset instead of a FIN."""
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_info(link: Link) -> None:
    link.send(b'INFO {"server_id":"NHOSTILE","server_na')


def connected(link: Link) -> None:
    """INFO, and the leaf node's CONNECT."""
    link.greet().until(rb"CONNECT [^\n]*\n")


def linked(link: Link) -> None:
    link.linked()


def mid_message(link: Link) -> None:
    link.linked().send(MESSAGE)


def interested(link: Link) -> None:
    """A hub with interest, and with messages that it passes on."""
    link.linked().send(b"LS+ up.>\r\nLS+ q.* work 3\r\n" + b"LMSG a 2\r\nhi\r\n" * 100 + b"PING\r\n")
    link.until(rb"PONG\r\n(.|\n)*PONG\r\n")


def refused(link: Link) -> None:
    connected(link)
    link.send(b"-ERR 'Authorization Violation'\r\n")


def wrong(link: Link) -> None:
    link.linked().send(b"LMSX a 1\r\nx\r\n")
    link.outcome()


PLAIN_ENDS: dict[str, Callable[[Link], object]] = {
    "at once": lambda link: None,
    "mid-INFO": half_info,
    "after INFO": lambda link: link.greet(),
    "after CONNECT": connected,
    "refused": refused,
    "linked": linked,
    "with interest": interested,
    "mid-message": mid_message,
    "a wrong verb": wrong,
}


def half_hello(link: Link) -> None:
    """The leaf node has sent its hello; the answer stops in its middle."""
    link.greet(tls_required=True).until(rb"\x16\x03")
    link.send(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + bytes(20))


def no_hello(link: Link) -> None:
    link.greet(tls_required=True).until(rb"\x16\x03")


def no_tls(link: Link) -> None:
    """Something else than TLS."""
    no_hello(link)
    link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def over_tls(link: Link) -> Link:
    """A link whose handshake is done, and whose leaf node has said CONNECT."""
    link.greet(tls_required=True)
    link.sock.settimeout(WAIT_S)
    link.sock = hub_context().wrap_socket(link.sock, server_side=True, suppress_ragged_eofs=True)
    link.until(rb"CONNECT [^\n]*\n")
    return link


def linked_over_tls(link: Link) -> Link:
    over_tls(link).greet(connect_info=True)
    link.send(b"LS+ $LDS.hostile\r\nPING\r\n")
    link.until(rb"PONG\r\n")
    return link


@cache
def hub_context() -> ssl.SSLContext:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Authority(Path(folder)).issue("hub")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context


TLS_ENDS: dict[str, Callable[[Link], object]] = {
    "half a hello": half_hello,
    "no hello": no_hello,
    "no TLS": no_tls,
    "after CONNECT": over_tls,
    "linked": linked_over_tls,
    "mid-message": lambda link: linked_over_tls(link).send(MESSAGE),
}


@dataclass
class Meeting:
    """A leaf node and the hub that it dials again and again."""

    leaf: CountedEyotd
    hub: Hub

    def meet(self, play: Callable[[Link], object], times: int, *, resets: bool) -> None:
        for _ in range(times):
            link = self.hub.accept(WAIT_S)
            play(link)
            if resets:
                reset(link)
            link.close()

    def nothing_left(self, play: Callable[[Link], object], *, resets: bool) -> None:
        self.meet(play, 2, resets=resets)  # what the first of a kind needs is made
        self.settle()
        before = self.leaf.objects()
        self.meet(play, LINKS, resets=resets)
        left: dict[str, int] = {}
        until = time.monotonic() + WAIT_S
        while left := self.survivors(before):
            assert time.monotonic() < until, left
            self.settle()

    def settle(self) -> None:
        """Let one link more begin and end: what came before is over."""
        self.hub.accept(WAIT_S).close()

    def survivors(self, before: Counter[str]) -> dict[str, int]:
        grown = self.leaf.objects() - before
        return {kind: count for kind, count in grown.items() if kind not in KEPT and count >= LEFT_MIN}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    yield from meeting(tmp_path_factory.mktemp("leaf"), "")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    yield from meeting(tmp_path_factory.mktemp("leaf"), ", tls { insecure: true }")


def meeting(path: Path, settings: str) -> Iterator[Meeting]:
    with Hub() as hub:
        config = PLAIN.replace("HUB_PORT", str(hub.port)).replace("SETTINGS", settings)
        with CountedEyotd(config, path) as leaf:
            yield Meeting(leaf, hub)


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("end", PLAIN_ENDS)
def test_nothing_is_left(plain: Meeting, end: str, resets: bool) -> None:
    plain.nothing_left(PLAIN_ENDS[end], resets=resets)


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("end", TLS_ENDS)
def test_nothing_is_left_of_a_handshake(secure: Meeting, end: str, resets: bool) -> None:
    secure.nothing_left(TLS_ENDS[end], resets=resets)
