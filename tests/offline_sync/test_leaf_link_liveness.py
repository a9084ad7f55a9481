"""Leaf links between brokers in one process: what refusals, loops, cuts, silence and restarts do to them. Mock clock throughout."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from eyot_daemon.auth.configured import AuthResult, ConfigAuthenticator
from eyot_daemon.auth.login import Deferred
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.monitor.accounts import account_stat
from eyot_sync.link.state import LinkPhase
from support.links.leaf_fixture import hub_and_leaf, leaf_link_fixture, only_link, remote, settle, until


async def test_loop_is_found_and_left_alone_for_30_seconds(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", remote("leaf"))
        leaf = await fixture.node("leaf", remote("hub"))
        await until(
            lambda: any("Loop detected" in state.last_error for state in (*hub.links.remotes, *leaf.links.remotes))
        )
        caught = next(node for node in (hub, leaf) if "Loop detected" in node.links.remotes[0].last_error)
        state = caught.links.remotes[0]
        assert "circle" in state.remedy
        dials = len(fixture.net.dials)
        await trio.sleep(25)
        assert state.phase is LinkPhase.WAITING
        assert len(fixture.net.dials) - dials < 60, "no storm of attempts meanwhile"


async def test_loop_over_three_brokers(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        nodes = [
            await fixture.node("a", remote("b")),
            await fixture.node("b", remote("c")),
            await fixture.node("c", remote("a")),
        ]
        await until(lambda: any("Loop detected" in node.links.remotes[0].last_error for node in nodes))


async def test_second_remote_to_the_same_account_is_a_loop_or_duplicate(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(), remote())
        await until(lambda: any(state.last_error for state in leaf.links.remotes))
        await trio.sleep(5)
        assert len(hub.account().leafnodes) <= 1
        recorder = hub.subscribe(b"a")
        await until(lambda: leaf.knows(b"a"), 60)
        leaf.publish(b"a")
        await settle()
        assert len(recorder.got) == 1


async def test_wrong_password(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(password="wrong"))
        await until(lambda: leaf.links.remotes[0].attempts > 3)
        state = leaf.links.remotes[0]
        assert state.last_error == "Authorization Violation"
        assert "credentials" in state.remedy
        assert not hub.account().leafnodes
        assert not leaf.links.is_up("ACC")


async def test_too_many_leafnodes(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        hub.account().leafnodes_max = 1
        await fixture.node("east", remote())
        await until(lambda: hub.links.is_up("ACC"))
        west = await fixture.node("west", remote())
        await until(lambda: bool(west.links.remotes[0].last_error))
        assert west.links.remotes[0].last_error == "maximum account active connections exceeded"


async def test_cut_and_return(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        recorder = hub.subscribe(b"a")
        gone = hub.add(b"gone", recorder)
        await until(lambda: leaf.knows(b"gone"))
        fixture.net.cut()
        await until(lambda: not leaf.links.is_up("ACC") and not hub.links.is_up("ACC"))
        assert leaf.publish(b"a", b"lost") == 0, "no interest while the link is down"
        hub.remove(gone)
        hub.add(b"new", recorder)
        await trio.sleep(3 * 3600)
        state = leaf.links.remotes[0]
        assert state.attempts > 1000
        assert state.last_error == "no connection within 1 s"
        fixture.net.restore()
        restored_at = trio.current_time()
        await until(lambda: leaf.knows(b"new"))
        assert trio.current_time() - restored_at < 3.5, "the next attempt is never far away"
        assert leaf.knows(b"a")
        assert not leaf.knows(b"gone")
        leaf.publish(b"a", b"back")
        await settle()
        assert recorder.payloads == [b"back"]
        assert state.is_up
        assert (state.attempts, state.last_error, state.connects) == (0, "", 2)


async def test_half_open_link_is_found_and_replaced(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        recorder = hub.subscribe(b"a")
        await until(lambda: leaf.knows(b"a"))
        old = only_link(hub)
        fixture.net.swallow()
        swallowed_at = trio.current_time()
        await until(lambda: not leaf.links.is_up("ACC"))
        assert trio.current_time() - swallowed_at <= 15
        assert leaf.links.remotes[0].last_error == "Stale Connection"
        await until(lambda: leaf.knows(b"a"))
        await until(lambda: old.closed)
        assert trio.current_time() - swallowed_at <= 17
        leaf.publish(b"a", b"once")
        await settle()
        assert recorder.payloads == [b"once"]


async def test_successor_of_a_half_open_link_takes_its_place_at_the_hub(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        at_leaf = leaf.subscribe(b"down")
        await until(lambda: hub.knows(b"down"))
        old = only_link(hub)
        fixture.net.swallow()
        # The leaf lost power and came back; the hub has not noticed anything yet.
        leaf.stop()
        leaf = await fixture.node("leaf", remote())
        at_leaf = leaf.subscribe(b"down")
        await until(lambda: hub.account().leafnodes != {old} and leaf.links.is_up("ACC"))
        await settle()
        assert old.closed
        assert old.end.reason == "Duplicate Remote LeafNode Connection"
        hub.publish(b"down", b"x")
        await settle()
        assert at_leaf.payloads == [b"x"]


async def test_restart_of_the_hub(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        fixture.net.cut()
        hub.stop()
        fixture.net.restore()
        await until(lambda: leaf.links.remotes[0].last_error == "Connection refused")
        hub = await fixture.node("hub")
        recorder = hub.subscribe(b"a")
        await until(lambda: leaf.knows(b"a"))
        leaf.publish(b"a", b"x")
        await settle()
        assert recorder.payloads == [b"x"]


async def test_link_up_wakes_who_waits_for_it_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", jetstream=JetStreamOptions(domain="hub"))
        api = hub.subscribe(b"$JS.hub.API.>")
        fixture.net.up = False
        leaf = await fixture.node("leaf", remote())
        seen: list[tuple[float, bool]] = []

        def woken(link: LeafConnection) -> None:
            seen.append((trio.current_time(), leaf.knows(b"$JS.hub.API.INFO")))
            leaf.account().publish(b"$JS.hub.API.INFO", b"", b"", b"")

        end = leaf.links.on_link_up("ACC", woken)
        await trio.sleep(100)
        assert not seen
        fixture.net.restore()
        await until(lambda: bool(seen))
        up_since = trio.current_time()
        await settle()
        assert seen[0][0] <= up_since
        assert all(known for _, known in seen), "the origin can be asked when the call comes"
        assert api.got
        end()
        calls = len(seen)
        fixture.net.cut()
        fixture.net.restore()
        await until(lambda: leaf.links.remotes[0].connects == 2)
        await settle()
        assert len(seen) == calls


async def test_hub_that_throws_out_at_once_is_not_dialled_in_a_tight_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote())

        async def throw_out() -> None:
            while True:
                await until(lambda: bool(hub.account().leafnodes), 1000)
                only_link(hub).close("Duplicate Remote LeafNode Connection")
                hub.broker.flush()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(throw_out)
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        assert leaf.links.remotes[0].connects < 120
        assert "server names must be unique" in leaf.links.remotes[0].remedy


async def test_slow_link_answers_pings_through_a_backlog(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        recorder = hub.subscribe(b"bulk")
        await until(lambda: leaf.knows(b"bulk"))
        fixture.net.bytes_per_s = 6_250  # 50 kbit/s
        for number in range(2_000):
            leaf.publish(b"bulk", b"%06d" % number + b"x" * 994)
        await until(lambda: len(recorder.got) == 2_000, 3600)
        assert [payload[:6] for payload in recorder.payloads] == [b"%06d" % number for number in range(2_000)]
        assert leaf.links.remotes[0].connects == 1, "the link never broke"


@pytest.mark.parametrize("welcome", [True, False])
async def test_a_verdict_that_takes_a_while(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, welcome: bool
) -> None:
    """A bcrypt check in a thread, an auth callout: the link waits, and so does everything behind its CONNECT."""
    authenticate = ConfigAuthenticator.leaf
    waiting: list[tuple[Deferred, AuthResult | None]] = []

    def slowly(self: ConfigAuthenticator, *presented: Any) -> Deferred:
        login = authenticate(self, *presented)
        assert login is None or isinstance(login, AuthResult)
        waiting.append((Deferred(), login if welcome else None))
        return waiting[-1][0]

    monkeypatch.setattr(ConfigAuthenticator, "leaf", slowly)
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote())
        leaf.subscribe(b"a")
        await until(lambda: bool(waiting))
        await trio.sleep(0.2)
        assert not hub.links.is_up("ACC")
        assert not hub.knows(b"a")
        deferred, login = waiting[0]
        deferred.settle(login)
        hub.broker.flush()
        if welcome:
            await until(lambda: hub.knows(b"a") and leaf.links.is_up("ACC"))
        else:
            await until(lambda: leaf.links.remotes[0].last_error == "Authorization Violation")
            await until(lambda: len(waiting) == 2)  # it asks again
            leaf.stop()
            await until(lambda: waiting[1][0].abandoned)


async def test_what_crossed_the_links_of_an_account_stays_counted(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        got = hub.subscribe(b"up")
        await until(lambda: leaf.knows(b"up"))
        leaf.publish(b"up", b"abc")
        await until(lambda: got.payloads == [b"abc"])
        for stopped in (False, True):
            if stopped:
                leaf.stop()
                await until(lambda: not hub.links.is_up("ACC"))
            traffic = hub.links.traffic(hub.account())
            assert (traffic.in_msgs, traffic.in_bytes, traffic.out_msgs) == (1, 3, 0)
        stat = account_stat(hub.broker, hub.account())
        assert stat["received"]["leafs"] == {"msgs": 1, "bytes": 3}
        assert hub.links.traffic(hub.account("OTHER")).in_msgs == 0
