"""What counts as a network that came back, and how often it is told."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
import trio
import trio.testing

from eyot_daemon.net.network_changes import (
    ADDRESS,
    HEADER,
    IFF_LOOPBACK,
    IFF_RUNNING,
    IFF_UP,
    INTERVAL_S,
    KNOWN_MAX,
    LINK,
    ROUTE,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_DELROUTE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWROUTE,
    NetworkNews,
    open_socket,
    watch,
)

UP = IFF_UP | IFF_RUNNING
MAIN_TABLE, LOCAL_TABLE = 254, 255
UNICAST, MULTICAST = 1, 5


def message(kind: int, body: bytes) -> bytes:
    packed = HEADER.pack(HEADER.size + len(body), kind, 0, 0, 0) + body
    return packed + bytes(-len(packed) % 4)


def attribute(kind: int, value: bytes) -> bytes:
    packed = struct.pack("=HH", 4 + len(value), kind) + value
    return packed + bytes(-len(packed) % 4)


def interface(flags: int, index: int = 2, kind: int = RTM_NEWLINK) -> bytes:
    return message(kind, LINK.pack(0, 1, index, flags, 0xFFFFFFFF) + attribute(3, b"eth0\0"))


def address(value: str, kind: int = RTM_NEWADDR, lifetime: bytes = b"") -> bytes:
    body = ADDRESS.pack(socket.AF_INET, 24, 0, 0, 2) + attribute(6, lifetime) + attribute(1, socket.inet_aton(value))
    return message(kind, body)


def route(gateway: str, kind: int = RTM_NEWROUTE, table: int = MAIN_TABLE, route_type: int = UNICAST) -> bytes:
    body = ROUTE.pack(socket.AF_INET, 0, 0, 0, table, 3, 0, route_type, 0)
    return message(kind, body + attribute(5, socket.inet_aton(gateway)) + attribute(4, struct.pack("=I", 2)))


def test_an_interface_that_begins_to_run_is_news_once() -> None:
    news = NetworkNews()
    assert not news.is_news(interface(IFF_UP)), "no carrier yet"
    assert news.is_news(interface(UP))
    assert not news.is_news(interface(UP)), "a driver reports its signal"
    assert news.is_news(interface(UP, index=3))
    assert not news.is_news(interface(IFF_UP))
    assert news.is_news(interface(UP)), "the carrier is back"
    assert not news.is_news(interface(0, kind=RTM_DELLINK))
    assert news.is_news(interface(UP))
    assert not news.is_news(interface(UP | IFF_LOOPBACK, index=1))


def test_an_address_is_news_once() -> None:
    news = NetworkNews()
    assert news.is_news(address("192.0.2.7", lifetime=b"1234"))
    assert not news.is_news(address("192.0.2.7", lifetime=b"9876")), "a router renews it"
    assert news.is_news(address("192.0.2.8"))
    assert not news.is_news(address("192.0.2.7", kind=RTM_DELADDR))
    assert news.is_news(address("192.0.2.7"))


def test_a_route_is_news_once() -> None:
    news = NetworkNews()
    assert news.is_news(route("192.0.2.1"))
    assert not news.is_news(route("192.0.2.1"))
    assert news.is_news(route("192.0.2.2"))
    assert not news.is_news(route("192.0.2.1", kind=RTM_DELROUTE))
    assert news.is_news(route("192.0.2.1"))
    assert not news.is_news(route("192.0.2.9", table=LOCAL_TABLE)), "the kernel makes one for each address"
    assert not news.is_news(route("192.0.2.9", route_type=MULTICAST))


def test_several_messages_in_a_datagram() -> None:
    news = NetworkNews()
    assert news.is_news(interface(IFF_UP) + address("192.0.2.7") + route("192.0.2.1"))
    assert not news.is_news(address("192.0.2.7") + route("192.0.2.1"))
    assert news.is_news(message(99, b"unknown") + interface(UP))


@pytest.mark.parametrize("whole", [interface(UP), address("192.0.2.7"), route("192.0.2.1")])
def test_what_is_cut_short_is_no_news(whole: bytes) -> None:
    for length in range(HEADER.size):
        assert not NetworkNews().is_news(whole[:length])
    for length in range(HEADER.size, len(whole)):
        NetworkNews().is_news(whole[:length])
        # A message whose header tells the truth about too short a body.
        shorter = HEADER.pack(length, *HEADER.unpack_from(whole)[1:]) + whole[HEADER.size : length]
        NetworkNews().is_news(shorter)
    assert not NetworkNews().is_news(HEADER.pack(4, RTM_NEWLINK, 0, 0, 0) + whole), "a length that leads nowhere"


def test_memory_is_bounded() -> None:
    news = NetworkNews()
    for number in range(KNOWN_MAX + 10):
        assert news.is_news(interface(UP, index=number + 2))
        assert news.is_news(address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"))
    assert len(news._running) <= KNOWN_MAX
    assert len(news._known) <= KNOWN_MAX


@contextmanager
def kernel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A kernel, and the socket to which it reports."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    far.setblocking(False)
    with closing(near), closing(far):
        yield far, near


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[socket.socket, list[float]]]:
    """A kernel whose reports are watched, and when each call came."""
    times: list[float] = []
    with kernel() as (far, near):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, near, lambda: times.append(trio.current_time()), INTERVAL_S)
            yield far, times
            nursery.cancel_scope.cancel()
        assert near.fileno() == -1, "the socket is closed"


async def until(times: list[float], count: int) -> None:
    """Wait in real time: the socket is a real one."""
    with trio.fail_after(60):
        while len(times) < count:
            await trio.sleep(0.01)


async def test_a_burst_is_one_call_and_what_follows_is_not_lost() -> None:
    async with watched() as (far, times):
        for number in range(8):
            far.send(address(f"192.0.2.{number}"))
        await until(times, 1)
        far.send(interface(UP))
        far.send(route("192.0.2.1"))
        await until(times, 2)
        assert times[1] - times[0] >= INTERVAL_S, "never sooner than the interval"
        far.send(route("192.0.2.1"))  # no news
        far.send(route("192.0.2.2"))
        await until(times, 3)
        assert len(times) == 3


async def test_the_end_of_the_reports_is_borne() -> None:
    with kernel() as (far, near):
        far.close()
        with trio.fail_after(60):
            await watch(near, lambda: None)
        assert near.fileno() == -1


async def test_reports_that_did_not_fit_are_news(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overrun:
        """A socket whose first read says that the kernel had to drop reports."""

        def __init__(self, near: socket.socket) -> None:
            self.fileno = near.fileno
            self.answers = [OSError(105, "No buffer space available"), BlockingIOError(), b""]

        def __enter__(self) -> Overrun:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def recv(self, size: int) -> bytes:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    calls: list[int] = []
    with kernel() as (far, near):
        far.send(b"x")  # stays there: the socket is readable
        with trio.fail_after(60):
            await watch(Overrun(near), lambda: calls.append(1), 0.01)  # type: ignore[arg-type]
    assert calls == [1]


def test_the_real_socket_opens() -> None:
    with open_socket() as source:
        assert source.getsockname()[1] == 0x551, "interfaces; addresses and routes of IPv4 and IPv6"
        assert not source.getblocking()
