"""The attempts of a remote: addresses, delays, and its status record."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import pytest
import trio
import trio.testing

from eyot_sync.link.dialer import DialError, TcpDialer
from eyot_sync.link.ports import LinkEnd
from eyot_sync.link.state import LinkPhase, LinkState
from eyot_sync.link.supervisor import LinkSupervisor, RemoteSpec
from eyot_sync.link.urls import LinkAddress, LinkUrls

A, B, C = (LinkAddress(name, 7422) for name in "abc")


class Clock:
    def now_ns(self) -> int:
        return int(trio.current_time() * 1e9)

    def monotonic(self) -> float:
        return trio.current_time()


class Network:
    """Dialer and runner in one: `up` hosts accept, a connection ends as `ends` says."""

    def __init__(self, up: set[str] | None = None) -> None:
        self.up = up if up is not None else {"a", "b", "c"}
        self.dialled: list[tuple[float, str]] = []
        self.ends: list[tuple[float, LinkEnd]] = []
        self.learn: tuple[str, ...] = ()

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        self.dialled.append((trio.current_time(), address.host))
        await trio.lowlevel.checkpoint()
        if address.host not in self.up:
            raise DialError("Connection refused")
        return trio.testing.memory_stream_pair()[0]

    async def run_link(
        self,
        stream: trio.abc.Stream,
        address: LinkAddress,
        state: LinkState,
        learn: Callable[[Iterable[str]], None],
    ) -> LinkEnd:
        learn(self.learn)
        lasts_s, end = self.ends.pop(0) if self.ends else (1e9, LinkEnd("never", established=True))
        if end.established:
            state.came_up(Clock().now_ns())
        await trio.sleep(lasts_s)
        return end

    @property
    def hosts(self) -> str:
        return "".join(host for _, host in self.dialled)


def supervisor(network: Network, *addresses: LinkAddress, **spec: object) -> LinkSupervisor:
    options: dict[str, object] = {"randomize": False} | spec
    return LinkSupervisor(
        RemoteSpec("ACC@hub", "ACC", addresses or (A,), **options),  # type: ignore[arg-type]
        dialer=network,
        runner=network,
        clock=Clock(),
        rng=random.Random(1),
    )


async def run_for(one: LinkSupervisor, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await one.run()


async def test_addresses_take_turns(autojump_clock: trio.testing.MockClock) -> None:
    network = Network(up=set())
    await run_for(supervisor(network, A, B, C), 20)
    assert network.hosts.startswith("abcabcabc")


async def test_discovered_addresses_come_behind_the_configured_ones(autojump_clock: trio.testing.MockClock) -> None:
    network = Network(up={"a"})
    malformed = ("nonsense", "7422", ":7422", "d:port", "d:\u00b2", "d:0", "d:65536", "d:" + "9" * 5000)
    network.learn = ("c:7422", "a:7422", "c:7422", *malformed, "[::1]:7500")
    network.ends = [(2.0, LinkEnd("cut", established=True))]
    one = supervisor(network, A, B)
    await run_for(one, 2.0001)
    network.up = set()
    await run_for(one, 20)
    assert one.urls.addresses == (A, B, C, LinkAddress("::1", 7500))
    assert network.hosts[1:].startswith("abc::1abc")
    assert str(one.urls.addresses[3]) == "nats://[::1]:7500"


async def test_discovered_addresses_can_be_ignored(autojump_clock: trio.testing.MockClock) -> None:
    network = Network()
    network.learn = ("c:7422",)
    one = supervisor(network, A, ignore_discovered=True)
    await run_for(one, 5)
    assert one.urls.addresses == (A,)


async def test_record_of_a_remote_that_is_down(autojump_clock: trio.testing.MockClock) -> None:
    one = supervisor(Network(up=set()))
    await run_for(one, 600)
    state = one.state
    assert state.phase is LinkPhase.WAITING
    assert state.attempts > 300
    assert (state.last_error, state.connects, state.since_ns) == ("Connection refused", 0, 0)
    assert "nothing listens" in state.remedy
    assert 0 < state.next_attempt_ns - Clock().now_ns() <= 2e9


async def test_attempts_are_spread_and_never_far_apart(autojump_clock: trio.testing.MockClock) -> None:
    network = Network(up=set())
    await run_for(supervisor(network, reconnect_s=1.0), 600)
    times = [at for at, _ in network.dialled]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert max(waits) <= 2.0
    assert min(waits[10:]) < 0.2, "full jitter"
    assert 0.8 < sum(waits[10:]) / len(waits[10:]) < 1.2


async def test_errors_that_somebody_must_mend_wait_longer(autojump_clock: trio.testing.MockClock) -> None:
    network = Network()
    network.ends = [(0.0, LinkEnd("Loop detected", established=True, retry_after_s=30.0))]
    await run_for(supervisor(network), 100)
    assert [round(at) for at, _ in network.dialled] == [0, 30]


async def test_a_loop_through_the_hub_where_the_last_link_lives_on_is_no_reason_to_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """That hub takes the new link for the successor of the old one; the others see a circle until then."""
    loop = LinkEnd("Loop detected", established=True, retry_after_s=30.0)
    network = Network(up={"a", "b"})
    network.ends = [(100.0, LinkEnd("Stale Connection", established=True)), (0.1, loop)]
    await run_for(supervisor(network, A, B), 110)
    assert network.hosts == "aab"
    circle = Network(up={"a", "b"})
    circle.ends = [(0.1, loop)] * 1000
    await run_for(supervisor(circle, A, B), 1000)
    assert len(circle.dialled) < 120, "a circle for good is asked about every half minute"


async def test_a_link_that_never_lasts_backs_off(autojump_clock: trio.testing.MockClock) -> None:
    network = Network()
    network.ends = [(0.0, LinkEnd("Duplicate", established=True)) for _ in range(1000)]
    await run_for(supervisor(network, A, B, reconnect_s=1.0), 100)
    assert len(network.dialled) < 130
    assert network.hosts.startswith("abab"), "another hub may keep it"


async def test_wake_ends_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    network = Network()
    network.ends = [(0.0, LinkEnd("Loop detected", established=True, retry_after_s=30.0))]
    one = supervisor(network)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(3)
        assert not one.state.is_up
        one.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert one.state.is_up
        assert one.state.connects == 2
        nursery.cancel_scope.cancel()


def test_addresses_are_shuffled_unless_told_otherwise() -> None:
    addresses = [LinkAddress(str(number), 1) for number in range(20)]
    assert list(LinkUrls(addresses, random.Random(1)).addresses) != addresses
    assert list(LinkUrls(addresses, random.Random(1), randomize=False).addresses) == addresses
    with pytest.raises(ValueError, match="at least one url"):
        LinkUrls([], random.Random(1))


async def test_dialling_over_tcp() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    dialer = TcpDialer(random.Random(1))
    stream = await dialer.dial(LinkAddress("127.0.0.1", port), 5.0)
    accepted = await listeners[0].accept()
    await stream.send_all(b"x")
    assert await accepted.receive_some(1) == b"x"
    await stream.aclose()
    await listeners[0].aclose()
    with pytest.raises(DialError, match="Connection refused"):
        await dialer.dial(LinkAddress("127.0.0.1", port), 5.0)
    with pytest.raises(DialError, match=r"no\.such\.host\.invalid"):
        await dialer.dial(LinkAddress("no.such.host.invalid", port), 5.0)


async def test_dialling_gives_up_in_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: object, **kwargs: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio.socket, "getaddrinfo", never)
    with pytest.raises(DialError, match=r"no answer to the look-up of hub within 5 s"):
        await TcpDialer(random.Random(1)).dial(LinkAddress("hub", 7422), 1.0)


async def test_a_network_that_changes_ends_a_wait_after_a_failure(autojump_clock: trio.testing.MockClock) -> None:
    network = Network(up=set())
    one = supervisor(network, reconnect_s=600.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(5000)
        network.up = {"a"}
        before = len(network.dialled)
        one.network_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert one.state.is_up
        assert len(network.dialled) == before + 1
        one.network_changed()
        await trio.sleep(10)
        assert one.state.is_up, "what is up stays up"
        assert len(network.dialled) == before + 1
        nursery.cancel_scope.cancel()


async def test_a_network_that_changes_does_not_hurry_who_was_refused(autojump_clock: trio.testing.MockClock) -> None:
    network = Network()
    refused = LinkEnd("Permissions Violation", established=False, retry_after_s=30.0)
    network.ends = [(0.0, refused)] * 1000
    one = supervisor(network)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        for _ in range(10):
            await trio.sleep(9.7)
            one.network_changed()
        nursery.cancel_scope.cancel()
    assert len(network.dialled) == 4, "every half minute, whatever the network does"


class SlowNetwork(Network):
    """Each dial hangs for a minute."""

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        self.dialled.append((trio.current_time(), address.host))
        await trio.sleep(60)
        return trio.testing.memory_stream_pair()[0]


async def test_a_dial_that_hangs_is_begun_anew_once(autojump_clock: trio.testing.MockClock) -> None:
    network = SlowNetwork()
    one = supervisor(network)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        for _ in range(8):
            await trio.sleep(10)
            one.network_changed()
        assert one.state.is_up, "a network that changes all the time lets a dial end"
        assert [time - network.dialled[0][0] for time, _ in network.dialled] == [0, 10]
        nursery.cancel_scope.cancel()
