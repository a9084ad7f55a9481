"""Leaf links between eyotd and Debian's nats-server, in both roles, with unchanged clients at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from support.links.leaf_pair import (
    ACCOUNTS,
    HUB,
    LEAF,
    Clients,
    Inbox,
    LeafPair,
    answering,
    eventually,
    linked,
    reaches,
    server,
)

PAIRS = [("nats-server", "eyotd"), ("eyotd", "nats-server"), ("eyotd", "eyotd")]
PAIR_IDS = [f"{hub}-hub,{leaf}-leaf" for hub, leaf in PAIRS]


@pytest.fixture(scope="module", params=PAIRS, ids=PAIR_IDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeafPair]:
    """One pair for the tests that leave no trace."""
    hub, leaf = request.param
    with LeafPair(hub, leaf, tmp_path_factory.mktemp("pair")) as started:
        yield started


def test_messages_cross_both_ways_once(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        at_hub, at_leaf = await Inbox.on(hub, "up.*"), await Inbox.on(leaf, "down.>")
        twice = await Inbox.on(hub, "up.a")
        await reaches(leaf, hub)
        await reaches(hub, leaf)
        for number in range(500):
            await leaf.publish("up.a", b"%d" % number, headers={"Number": str(number)})
            await hub.publish("down.a.b", b"%d" % number)
        await asyncio.gather(leaf.flush(), hub.flush())
        expected = [b"%d" % number for number in range(500)]
        assert await at_hub.wait(500) == expected
        assert await at_leaf.wait(500) == expected
        assert [message.headers for message in at_hub.got] == [{"Number": str(number)} for number in range(500)]
        await asyncio.sleep(0.2)
        assert len(twice.got) == len(at_hub.got) == len(at_leaf.got) == 500, "nothing arrives twice"

    pair.play(test)


def test_bulk_arrives_whole_and_in_order(pair: LeafPair) -> None:
    """Runs of equal control lines: plain, with reply, with header; one subscriber at home, two beyond the link."""

    async def test(hub: Client, leaf: Client) -> None:
        for source, target, subject in ((leaf, hub, "bulk.up"), (hub, leaf, "bulk.down")):
            there, also_there = await Inbox.on(target, subject), await Inbox.on(target, "bulk.*")
            here = await Inbox.on(source, subject)
            await reaches(source, target)
            for number in range(9_000):
                payload = b"%06d" % number
                if number < 3_000:
                    await source.publish(subject, payload)
                elif number < 6_000:
                    await source.publish(subject, payload, reply="back.to.me")
                else:
                    await source.publish(subject, payload, reply="back.to.me", headers={"N": "7"})
            await source.flush()
            expected = [b"%06d" % number for number in range(9_000)]
            for inbox in (there, also_there, here):
                assert await inbox.wait(9_000) == expected
                assert [message.reply for message in inbox.got] == [""] * 3_000 + ["back.to.me"] * 6_000
                assert [message.headers for message in inbox.got] == [None] * 6_000 + [{"N": "7"}] * 3_000

    pair.play(test)


def test_payloads_of_all_sizes(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        at_hub, at_leaf = await Inbox.on(hub, "size"), await Inbox.on(leaf, "size.down")
        await reaches(leaf, hub)
        await reaches(hub, leaf)
        sizes = [0, 1, 2, 1023, 65_535, 65_536, 1_000_000]
        for size in sizes:
            await leaf.publish("size", b"\r\n" * (size // 2) + b"x" * (size % 2))
            await hub.publish("size.down", b"y" * size)
        assert [len(payload) for payload in await at_hub.wait(len(sizes))] == sizes
        assert [len(payload) for payload in await at_leaf.wait(len(sizes))] == sizes
        assert at_hub.payloads[3] == b"\r\n" * 511 + b"x"

    pair.play(test)


def test_requests_are_answered_across(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        await answering(hub, "svc.hub")
        await answering(leaf, "svc.leaf")
        await linked(hub, leaf)
        for number in range(50):
            assert (await leaf.request("svc.hub", b"%d" % number, timeout=30)).data == b"pong %d" % number
            assert (await hub.request("svc.leaf", b"%d" % number, timeout=30)).data == b"pong %d" % number
        for client in (hub, leaf):
            with pytest.raises(NoRespondersError):
                await client.request("svc.nobody", b"", timeout=5)

    pair.play(test)


def test_a_service_that_ends_is_no_longer_known(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        subscription = await hub.subscribe("fleeting")
        await hub.flush()
        await reaches(leaf, hub)
        await subscription.unsubscribe()
        await hub.flush()
        await reaches(leaf, hub)
        with pytest.raises(NoRespondersError):
            await leaf.request("fleeting", b"", timeout=5)

    pair.play(test)


def test_a_group_gets_each_message_once_local_members_first(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        at_hub = [await Inbox.on(hub, "work", "q"), await Inbox.on(hub, "work", "q")]
        second_group = await Inbox.on(hub, "work", "r")
        plain = await Inbox.on(hub, "work")
        await reaches(leaf, hub)
        for _ in range(200):
            await leaf.publish("work", b"")
        await plain.wait(200)
        await second_group.wait(200)
        await eventually(lambda: sum(len(inbox.got) for inbox in at_hub) == 200)
        assert all(inbox.got for inbox in at_hub), "members share the work"
        local = await Inbox.on(leaf, "work", "q")
        for _ in range(100):
            await leaf.publish("work", b"")
        await local.wait(100)
        await plain.wait(300)
        await asyncio.sleep(0.2)
        assert sum(len(inbox.got) for inbox in at_hub) == 200
        assert (len(local.got), len(second_group.got), len(plain.got)) == (100, 300, 300)

    pair.play(test)


def test_wildcards_and_odd_subjects(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        everything, star = await Inbox.on(hub, "odd.>"), await Inbox.on(hub, "odd.*.z")
        await reaches(leaf, hub)
        subjects = ["odd.a@b", "odd.ünï", "odd.+", "odd.|", "odd.x.z", "odd.$a.b"]
        for subject in subjects:
            await leaf.publish(subject, b"", reply="back.+")
        await everything.wait(len(subjects))
        assert [message.subject for message in everything.got] == subjects
        assert {message.reply for message in everything.got} == {"back.+"}
        assert [message.subject for message in star.got] == ["odd.x.z"]

    pair.play(test)


def test_accounts_without_a_remote_stay_home(pair: LeafPair) -> None:
    async def run() -> None:
        async with Clients(pair.hub, pair.leaf, user="other") as (hub, leaf):
            inbox = await Inbox.on(hub, "a")
            await asyncio.sleep(0.2)
            await leaf.publish("a", b"")
            await leaf.flush()
            await asyncio.sleep(0.2)
            assert not inbox.got

    asyncio.run(run())


def test_each_domain_answers_under_its_own_name(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        for client, own in ((hub, "hub"), (leaf, "leaf")):
            assert (await client.jetstream(timeout=5).account_info()).domain == own
            for domain in ("hub", "leaf"):
                assert (await client.jetstream(domain=domain, timeout=5).account_info()).domain == domain

    pair.play(test)


@pytest.mark.parametrize("far", ["hub", "leaf"])
def test_consumers_of_the_other_domain(pair: LeafPair, far: str) -> None:
    """Pull and push deliveries cross with their original subject and can be acknowledged."""

    async def test(hub: Client, leaf: Client) -> None:
        near_client, name = (leaf if far == "hub" else hub), f"FAR_{far}"
        js = near_client.jetstream(domain=far, timeout=5)
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        owner = (hub if far == "hub" else leaf).jetstream(timeout=5)
        for number in range(100):
            await owner.publish(f"{name}.a.{number}", b"%d" % number, headers={"N": str(number)})
        pull = await js.pull_subscribe("", "PULL", stream=name)
        messages = []
        while len(messages) < 100:
            messages += await pull.fetch(40, timeout=5)
        assert [message.subject for message in messages] == [f"{name}.a.{number}" for number in range(100)]
        for message in messages:
            await message.ack_sync(timeout=5)
        assert (await js.consumer_info(name, "PULL")).num_ack_pending == 0
        ordered = await js.subscribe(f"{name}.>", stream=name, ordered_consumer=True)
        pushed = [await ordered.next_msg(timeout=5) for _ in range(100)]
        assert [message.data for message in pushed] == [b"%d" % number for number in range(100)]
        assert [message.subject for message in pushed] == [f"{name}.a.{number}" for number in range(100)]
        assert pushed[7].headers == {"N": "7"}
        await ordered.unsubscribe()
        await js.delete_stream(name)

    pair.play(test)


def test_key_value_of_the_other_domain(pair: LeafPair) -> None:
    async def test(hub: Client, leaf: Client) -> None:
        mine = await hub.jetstream(timeout=5).create_key_value(bucket="conf")
        await mine.put("a", b"1")
        far = await leaf.jetstream(domain="hub", timeout=5).key_value("conf")
        assert (await far.get("a")).value == b"1"
        await hub.jetstream(timeout=5).delete_key_value("conf")

    pair.play(test)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_kill_and_restart_of_either_side(hub: str, leaf: str, tmp_path: Path) -> None:
    async def converse(pair: LeafPair) -> None:
        async with Clients(pair.hub, pair.leaf) as (at_hub, at_leaf):
            await linked(at_hub, at_leaf)
            inbox = await Inbox.on(at_hub, "a")
            await reaches(at_leaf, at_hub)
            await at_leaf.publish("a", b"x")
            await inbox.wait(1)
            await asyncio.sleep(0.1)
            assert inbox.payloads == [b"x"]

    with LeafPair(hub, leaf, tmp_path) as pair:
        asyncio.run(converse(pair))
        for victim in (pair.hub, pair.leaf, pair.hub):
            victim.kill()
            victim.start()
            asyncio.run(converse(pair))


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_client_of_the_leaf_lives_through_a_cut(hub: str, leaf: str, tmp_path: Path) -> None:
    """The hub goes and comes back with other interest; a client of the leaf that never disconnected sees what is true."""

    async def run(pair: LeafPair) -> None:
        async with Clients(pair.leaf) as (at_leaf,):
            async with Clients(pair.hub) as (at_hub,):
                await answering(at_hub, "svc")
                await linked(at_hub, at_leaf)
                assert (await at_leaf.request("svc", b"1", timeout=30)).data == b"pong 1"
            pair.hub.kill()
            while True:
                try:
                    await at_leaf.request("svc", b"2", timeout=1)
                except NoRespondersError:
                    break
                except nats.errors.TimeoutError:
                    continue
            pair.hub.start()
            async with Clients(pair.hub) as (at_hub,):
                await answering(at_hub, "svc", text=b"again ")
                await linked(at_hub, at_leaf)
                assert (await at_leaf.request("svc", b"3", timeout=30)).data == b"again 3"

    with LeafPair(hub, leaf, tmp_path) as pair:
        asyncio.run(run(pair))


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_wrong_password(hub: str, leaf: str, tmp_path: Path) -> None:
    with LeafPair(hub, leaf, tmp_path, leaf_config=LEAF.replace("acc:acc", "acc:wrong")) as pair:
        pair.leaf.wait_log("Authorization Violation")

        async def run() -> None:
            async with Clients(pair.hub, pair.leaf) as (at_hub, at_leaf):
                inbox = await Inbox.on(at_hub, "a")
                await at_leaf.publish("a", b"")
                await at_leaf.flush()
                await asyncio.sleep(0.3)
                assert not inbox.got
            async with Clients(pair.hub, pair.leaf, user="admin") as (at_hub, at_leaf):
                await linked(at_hub, at_leaf)

        asyncio.run(run())


LEAF_USER = """
accounts {
    ACC: { users: [
        {user: acc, password: acc}
        {user: edge, password: edge, permissions: { publish: ["ok.>", "_INBOX.>"], subscribe: {allow: ["in.>", "_INBOX.>"], deny: "in.secret"}}}
    ] }
}
"""
ONE_REMOTE = """
server_name: %s
leafnodes { reconnect: 1, remotes = [ { urls: ["nats-leaf://%s@127.0.0.1:HUB_PORT"], account: ACC } ] }
"""
PLAIN_HUB = """
server_name: hub-server
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
"""


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_permissions_of_the_leafs_user(hub: str, leaf: str, tmp_path: Path) -> None:
    async def test(at_hub: Client, at_leaf: Client) -> None:
        everything = await Inbox.on(at_hub, ">")
        allowed, denied = await Inbox.on(at_leaf, "in.>"), await Inbox.on(at_leaf, "zz.top")
        secret = await Inbox.on(at_leaf, "in.secret")
        await linked(at_hub, at_leaf)
        everything.got.clear()
        await at_leaf.publish("ok.a", b"1")
        await at_leaf.publish("not.ok", b"2")
        await at_hub.publish("in.a", b"3")
        await at_hub.publish("in.secret", b"4")
        await at_hub.publish("zz.top", b"5")
        await allowed.wait(1)
        await linked(at_hub, at_leaf)
        assert allowed.payloads == [b"3"]
        assert not denied.got
        assert not secret.got
        seen = [message.data for message in everything.got if not message.subject.startswith("_INBOX")]
        assert sorted(seen) == [b"1", b"3", b"4", b"5"]

    config = ONE_REMOTE % ("leaf-server", "edge:edge")
    with LeafPair(hub, leaf, tmp_path, hub_config=PLAIN_HUB, leaf_config=config, accounts=LEAF_USER) as pair:
        pair.play(test)


@pytest.mark.parametrize("hub", ["nats-server", "eyotd"])
@pytest.mark.parametrize(("east", "west"), [("eyotd", "nats-server"), ("eyotd", "eyotd")])
def test_two_leafs_of_a_hub_hear_each_other(hub: str, east: str, west: str, tmp_path: Path) -> None:
    with LeafPair(
        hub, east, tmp_path, hub_config=PLAIN_HUB, leaf_config=ONE_REMOTE % ("east", "acc:acc"), accounts=LEAF_USER
    ) as pair:
        config = (ONE_REMOTE % ("west", "acc:acc") + LEAF_USER).replace("HUB_PORT", str(pair.hub.leaf_port))

        async def run() -> None:
            async with Clients(pair.leaf, third) as (at_east, at_west):
                await linked(at_east, at_west)
                requests = await answering(at_west, "svc", "q")
                await answering(at_east, "other", "q")
                await linked(at_east, at_west)
                for number in range(30):
                    assert (await at_east.request("svc", b"%d" % number, timeout=30)).data == b"pong %d" % number
                    assert (await at_west.request("other", b"%d" % number, timeout=30)).data == b"pong %d" % number
                assert len(requests) == 30

        with server(west, config, tmp_path / "west") as third:
            asyncio.run(run())


@pytest.mark.parametrize(
    ("hub", "first", "second"),
    [("nats-server", "eyotd", "eyotd"), ("eyotd", "eyotd", "eyotd"), ("nats-server", "eyotd", "nats-server")],
)
def test_second_server_of_the_same_name_takes_the_place_of_the_first(
    hub: str, first: str, second: str, tmp_path: Path
) -> None:
    with LeafPair(
        hub, first, tmp_path, hub_config=PLAIN_HUB, leaf_config=ONE_REMOTE % ("twin", "acc:acc"), accounts=LEAF_USER
    ) as pair:
        asyncio.run(_linked_pair(pair))
        config = (ONE_REMOTE % ("twin", "acc:acc") + LEAF_USER).replace("HUB_PORT", str(pair.hub.leaf_port))
        with server(second, config, tmp_path / "second"):
            pair.leaf.wait_log("Duplicate Remote LeafNode Connection")
        asyncio.run(_linked_pair(pair))


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_a_circle_of_two_is_found(hub: str, leaf: str, tmp_path: Path) -> None:
    """Each dials the other: one of them sees its own loop subject and stays away for a while."""
    listen = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true, reconnect: 1, remotes = '
    remotes = '[ { urls: ["nats-leaf://acc:acc@127.0.0.1:OTHER_PORT"], account: ACC } ] }\n'
    one = server(hub, "", tmp_path / "one")
    two = server(leaf, "", tmp_path / "two")
    one.set_config("server_name: one\n" + listen + remotes.replace("OTHER_PORT", str(two.leaf_port)) + LEAF_USER)
    two.set_config("server_name: two\n" + listen + remotes.replace("OTHER_PORT", str(one.leaf_port)) + LEAF_USER)
    with one, two:

        async def found() -> None:
            await eventually(lambda: "Loop detected" in one.log() + two.log())

        asyncio.run(found())


async def _linked_pair(pair: LeafPair) -> None:
    async with Clients(pair.hub, pair.leaf) as (at_hub, at_leaf):
        await linked(at_hub, at_leaf, 60)


def test_configurations_of_the_guide_start_and_link(tmp_path: Path) -> None:
    """System account and application account over two remotes, discovered addresses left on."""
    hub_config = HUB.replace(", no_advertise: true", "")
    for hub, leaf in PAIRS:
        with LeafPair(hub, leaf, tmp_path / f"{hub}-{leaf}", hub_config=hub_config, accounts=ACCOUNTS) as pair:
            asyncio.run(_linked_pair(pair))
            pair.play(_both_reachable, user="admin")


async def _both_reachable(hub: Client, leaf: Client) -> None:
    await linked(hub, leaf)
