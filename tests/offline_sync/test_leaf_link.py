"""Leaf links between brokers in one process: what crosses them. Mock clock throughout."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from eyot_daemon.config.accounts import AccountOptions, MappingDestination, MappingOptions, UserOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.router.account_setup import update_accounts
from support.links.leaf_fixture import ACCOUNTS, hub_and_leaf, leaf_link_fixture, only_link, remote, settle, until


async def test_messages_cross_both_ways_once(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        at_hub, at_leaf = hub.subscribe(b"up.>"), leaf.subscribe(b"down.*")
        also_at_hub = hub.subscribe(b"up.a")
        await until(lambda: leaf.knows(b"up.a") and hub.knows(b"down.a"))
        assert leaf.publish(b"up.a", b"1", b"_INBOX.x", b"NATS/1.0\r\nA: b\r\n\r\n") == 1, "one message per link"
        assert hub.publish(b"down.a", b"2") == 1
        await settle()
        (got,) = at_hub.got
        assert (got.subject, got.reply, got.header, got.payload) == (
            b"up.a",
            b"_INBOX.x",
            b"NATS/1.0\r\nA: b\r\n\r\n",
            b"1",
        )
        assert also_at_hub.payloads == [b"1"]
        assert at_leaf.payloads == [b"2"]


async def test_interest_comes_and_goes(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        recorder = hub.subscribe(b"early")
        first = hub.add(b"a", recorder)
        second = hub.add(b"a", recorder)
        await until(lambda: leaf.knows(b"a"))
        hub.remove(first)
        await settle()
        assert leaf.knows(b"a")
        hub.remove(second)
        await until(lambda: not leaf.knows(b"a"))
        assert leaf.publish(b"a") == 0, "no responders here"


async def test_a_link_tells_who_waits_that_deliveries_have_left(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        at_hub = hub.subscribe(b"d.1")
        await until(lambda: leaf.knows(b"d.1"))
        link = only_link(leaf)
        sent, told = 0, []
        while link.hold(b"STREAM") is None:
            sent += link.deliver_all_of(b"STREAM", b"d.1", [(b"", b"", b"x" * 1000)] * 10)
        link.room.wait(lambda: told.append(trio.current_time()))
        assert not told
        leaf.broker.flush()
        await until(lambda: len(at_hub.got) == sent)
        assert link.hold(b"STREAM") is None
        assert len(told) == 1


async def test_one_member_of_a_group_over_all_brokers(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        members = [hub.subscribe(b"work", b"q"), hub.subscribe(b"work", b"q"), leaf.subscribe(b"work", b"q")]
        plain = hub.subscribe(b"work")
        await until(lambda: hub.knows(b"work") and leaf.knows(b"work"))
        await settle()
        for number in range(20):
            leaf.publish(b"work", b"%d" % number)
        await settle()
        assert [len(member.got) for member in members] == [0, 0, 20], "a local member comes first"
        assert len(plain.got) == 20, "plain subscribers get it all the same"
        other = [hub.subscribe(b"jobs", b"q"), hub.subscribe(b"jobs", b"q"), hub.subscribe(b"jobs", b"r")]
        await until(lambda: leaf.knows(b"jobs"))
        for _ in range(40):
            leaf.publish(b"jobs")
        await settle()
        assert len(other[0].got) + len(other[1].got) == 40
        assert other[0].got
        assert other[1].got
        assert len(other[2].got) == 40
        assert hub.publish(b"jobs", b"") == 2


async def test_accounts_are_kept_apart(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(), remote(user="other", password="other", account="OTHER"))
        await until(lambda: leaf.links.is_up("ACC") and leaf.links.is_up("OTHER"))
        acc, other = hub.subscribe(b"a"), hub.subscribe(b"a", account="OTHER")
        await until(lambda: leaf.knows(b"a") and leaf.knows(b"a", "OTHER"))
        leaf.publish(b"a", b"for acc")
        leaf.publish(b"a", b"for other", account="OTHER")
        await settle()
        assert acc.payloads == [b"for acc"]
        assert other.payloads == [b"for other"]
        assert len(hub.links.connections) == 2


async def test_leafs_hear_each_other_through_the_hub(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        east = await fixture.node("east", remote())
        west = await fixture.node("west", remote())
        await until(lambda: len(hub.account().leafnodes) == 2)
        at_west = west.subscribe(b"a")
        await until(lambda: east.knows(b"a"))
        east.publish(b"a", b"hello")
        await settle()
        assert at_west.payloads == [b"hello"]
        request = west.subscribe(b"svc", b"workers")
        answer = east.subscribe(b"_INBOX.1")
        await until(lambda: east.knows(b"svc"))
        east.publish(b"svc", b"?", b"_INBOX.1")
        await settle()
        assert request.got[0].reply == b"_INBOX.1"
        west.publish(b"_INBOX.1", b"!")
        await settle()
        assert answer.payloads == [b"!"]


async def test_isolated_leafs_do_not(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", leafnodes={"isolate_leafnode_interest": True})
        east = await fixture.node("east", remote())
        west = await fixture.node("west", remote())
        await until(lambda: len(hub.account().leafnodes) == 2)
        west.subscribe(b"a")
        hub.subscribe(b"b")
        await until(lambda: east.knows(b"b") and hub.knows(b"a"))
        await settle()
        assert not east.knows(b"a")


async def test_a_chain_of_three(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        top = await fixture.node("top")
        middle = await fixture.node("middle", remote("top"))
        bottom = await fixture.node("bottom", remote("middle"))
        await until(lambda: bottom.links.is_up("ACC") and middle.links.is_up("ACC"))
        at_top, at_bottom = top.subscribe(b"up"), bottom.subscribe(b"down")
        await until(lambda: bottom.knows(b"up") and top.knows(b"down"))
        bottom.publish(b"up", b"1")
        top.publish(b"down", b"2")
        await settle()
        assert at_top.payloads == [b"1"]
        assert at_bottom.payloads == [b"2"]
        assert middle.links.is_up("ACC")


async def test_no_bridge_between_two_hubs(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        first, second = await fixture.node("first"), await fixture.node("second")
        leaf = await fixture.node("leaf", remote("first"), remote("second"))
        await until(lambda: len(leaf.account().leafnodes) == 2)
        at_first = first.subscribe(b"a")
        await until(lambda: leaf.knows(b"a"))
        await settle()
        assert not second.knows(b"a")
        leaf.publish(b"a", b"x")
        second.subscribe(b"a")
        await settle()
        first.publish(b"a", b"y")
        await settle()
        assert at_first.payloads == [b"x", b"y"]


async def test_too_many_subscriptions_of_a_leaf(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        hub.account().subscriptions_max = 3
        for number in range(6):
            leaf.subscribe(b"s.%d" % number)
        await settle()
        assert len(only_link(hub).peer_interest.subs) == 3
        assert leaf.links.is_up("ACC"), "the link stays"


async def test_permissions_of_the_hubs_user(autojump_clock: trio.testing.MockClock) -> None:
    permissions = Permissions(
        publish=SubjectPermission(allow=(b"ok.>",)), subscribe=SubjectPermission(allow=(b"in.>",), deny=(b"in.secret",))
    )
    user = UserOptions(user="acc", password="acc", account="ACC", permissions=permissions)
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", accounts=(AccountOptions(name="ACC", users=(user,)),))
        leaf = await fixture.node("leaf", remote())
        await until(lambda: leaf.links.is_up("ACC"))
        everything = hub.subscribe(b">")
        recorder = leaf.subscribe(b"in.>")
        leaf.subscribe(b"zz.top")
        leaf.subscribe(b"in.secret")
        await until(lambda: leaf.knows(b"ok.a"))
        await settle()
        leaf.publish(b"ok.a", b"1")
        leaf.publish(b"not.ok", b"2")
        hub.publish(b"in.a", b"3")
        hub.publish(b"in.secret", b"4")
        await settle()
        assert sorted(everything.payloads) == [b"1", b"3", b"4"]
        assert recorder.payloads == [b"3"]
        assert leaf.links.is_up("ACC"), "a leaf that keeps the rules is never thrown out"


async def test_denied_imports_and_exports(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(deny_imports=(b"down.>",), deny_exports=(b"up.>",)))
        await until(lambda: leaf.links.is_up("ACC"))
        at_hub, at_leaf = hub.subscribe(b">"), leaf.subscribe(b">")
        await until(lambda: hub.knows(b"x") and leaf.knows(b"x"))
        await settle()
        leaf.publish(b"up.a")
        leaf.publish(b"side.a")
        hub.publish(b"down.a")
        await settle()
        assert sorted(at_hub.subjects) == [b"down.a", b"side.a"]
        assert at_leaf.subjects == [b"up.a", b"side.a"]


async def test_jetstream_api_of_the_domains(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", jetstream=JetStreamOptions(domain="hub"))
        leaf = await fixture.node("leaf", remote(), jetstream=JetStreamOptions(domain="leaf"))
        await until(lambda: leaf.links.is_up("ACC"))
        at_hub, at_leaf = hub.subscribe(b"$JS.API.>"), leaf.subscribe(b"$JS.API.>")
        hub_domain, leaf_domain = hub.subscribe(b"$JS.hub.API.>"), leaf.subscribe(b"$JS.leaf.API.>")
        await until(lambda: leaf.knows(b"$JS.hub.API.INFO") and hub.knows(b"$JS.leaf.API.INFO"))
        leaf.publish(b"$JS.API.INFO", b"at home")
        hub.publish(b"$JS.API.INFO", b"at home too")
        leaf.publish(b"$JS.hub.API.INFO", b"to the hub")
        hub.publish(b"$JS.leaf.API.INFO", b"to the leaf")
        leaf.publish(b"$KV.bucket.key")
        await settle()
        assert at_leaf.payloads == [b"at home"]
        assert at_hub.payloads == [b"at home too"]
        assert hub_domain.payloads == [b"to the hub"]
        assert leaf_domain.payloads == [b"to the leaf"]


async def test_leaf_without_jetstream_uses_the_hubs(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", jetstream=JetStreamOptions(domain="hub"))
        api = hub.subscribe(b"$JS.API.>")
        leaf = await fixture.node("leaf", remote(), default_js_domain=(("ACC", ""),))
        await until(lambda: leaf.knows(b"$JS.API.INFO"))
        leaf.publish(b"$JS.API.INFO", b"", b"_INBOX.1")
        await settle()
        assert api.subjects == [b"$JS.API.INFO"]


async def test_deliveries_carry_their_subject_behind_an_at(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        top = await fixture.node("top")
        middle = await fixture.node("middle", remote("top"))
        bottom = await fixture.node("bottom", remote("middle"))
        at_middle, at_bottom = middle.subscribe(b"$JS.M.x"), bottom.subscribe(b"$JS.M.x")
        await until(lambda: top.knows(b"$JS.M.x"))
        await settle()
        ack = b"$JS.ACK.S.C.1.1.1.1795215637220265409.2"
        top.account().publish(b"$JS.M.x", ack, b"", b"data", original=b"orders.1")
        top.broker.flush()
        await settle()
        for recorder in (at_middle, at_bottom):
            (got,) = recorder.got
            assert (got.subject, got.reply, got.payload) == (b"orders.1", ack, b"data")


@pytest.mark.parametrize("hub_flag", [False, True])
async def test_remote_that_is_the_hub(autojump_clock: trio.testing.MockClock, hub_flag: bool) -> None:
    async with leaf_link_fixture() as fixture:
        spoke = await fixture.node("spoke")
        dialler = await fixture.node("dialler", remote("spoke", hub=hub_flag))
        await until(lambda: dialler.links.is_up("ACC") and spoke.links.is_up("ACC"))
        assert only_link(dialler).session.is_spoke is not hub_flag
        assert only_link(spoke).session.is_spoke is hub_flag
        recorder = spoke.subscribe(b"a")
        await until(lambda: dialler.knows(b"a"))
        dialler.publish(b"a", b"x")
        await settle()
        assert recorder.payloads == [b"x"]


async def test_request_info_names_the_account_on_the_other_side(autojump_clock: trio.testing.MockClock) -> None:
    accounts = (*ACCOUNTS, AccountOptions(name="LOCAL"))
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(account="LOCAL"), accounts=accounts)
        recorder = hub.subscribe(b"svc")
        await until(lambda: leaf.knows(b"svc", "LOCAL"))
        header = b'NATS/1.0\r\nNats-Request-Info: {"acc":"LOCAL","rtt":5}\r\n\r\n'
        leaf.publish(b"svc", b"", b"_INBOX.1", header, account="LOCAL")
        await settle()
        assert recorder.got[0].header == b'NATS/1.0\r\nNats-Request-Info: {"acc":"ACC","rtt":5}\r\n\r\n'


async def test_full_lane_drops_and_the_link_stays(autojump_clock: trio.testing.MockClock) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        leaf = await fixture.node("leaf", remote(), max_pending=100_000)
        recorder = hub.subscribe(b"bulk")
        await until(lambda: leaf.knows(b"bulk"))
        fixture.net.bytes_per_s = 1_000_000
        taken = sum(leaf.publish(b"bulk", b"x" * 1000) for _ in range(1000))
        assert taken < 300
        link = only_link(leaf)
        assert link.session.outbox.dropped_msgs == 1000 - taken
        await until(lambda: len(recorder.got) == taken)
        assert leaf.links.remotes[0].connects == 1


@pytest.mark.parametrize("restricted", [False, True])  # told what all are told, or one by one
async def test_mappings_that_a_reload_brings_are_announced(
    autojump_clock: trio.testing.MockClock, restricted: bool
) -> None:
    permissions = Permissions(subscribe=SubjectPermission(allow=(b"new.>", b"old.>"))) if restricted else None
    user = UserOptions(user="acc", password="acc", account="ACC", permissions=permissions)

    def options(source: str) -> Options:
        mapping = MappingOptions(source=source, destinations=(MappingDestination(subject="there"),))
        return Options(accounts=(AccountOptions(name="ACC", users=(user,), mappings=(mapping,)),))

    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub", accounts=options("old.a").accounts)
        leaf = await fixture.node("leaf", remote())
        await until(lambda: leaf.knows(b"old.a"))
        got = hub.subscribe(b"there")
        update_accounts(hub.broker, options("old.a"), options("new.a"))
        hub.broker.flush()
        await until(lambda: leaf.knows(b"new.a") and not leaf.knows(b"old.a"))
        leaf.publish(b"new.a", b"1")
        await until(lambda: got.payloads == [b"1"])
