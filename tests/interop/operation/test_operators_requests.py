"""What an operator's tools ask for and listen to, the same of eyotd and of a real nats-server 2.14: audits, purges, levels, limits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import StreamConfig

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: one
accounts {
  ACC: { users: [ { user: acc, password: acc } ], jetstream: enabled }
  OTHER: {
    users: [ { user: other, password: other } ], jetstream: enabled
    imports: [ { service: { account: SYS, subject: "$SYS.DEBUG.SUBSCRIBERS" } } ]
  }
  PLAIN: { users: [ { user: plain, password: plain } ] }
  SYS: { users: [ { user: sys, password: sys } ], exports: [ { service: "$SYS.DEBUG.SUBSCRIBERS" } ] }
}
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js" }
"""


@pytest.fixture(params=[Eyotd, NewerNatsServer])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    process: ServerProcess = request.param(CONFIG, tmp_path)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def play(server: ServerProcess, scene: Callable[[Callable[..., Awaitable[Client]]], Awaitable[None]]) -> None:
    """Run `scene`, which gets a function that connects users by name."""

    async def run() -> None:
        opened: list[Client] = []

        async def connect(user: str, **more: Any) -> Client:
            client = await nats.connect(f"nats://127.0.0.1:{server.client_port}", user=user, password=user, **more)
            opened.append(client)
            return client

        try:
            await scene(connect)
        finally:
            for client in opened:
                await client.close()

    asyncio.run(run())


async def ask(client: Client, subject: str, body: Any = None) -> Any:
    answer = await client.request(subject, b"" if body is None else json.dumps(body).encode(), timeout=30)
    return json.loads(answer.data)


def test_an_audit_tells_who_asked(server: ServerProcess) -> None:
    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client = await connect("acc", name="me")
        heard = await client.subscribe("$JS.EVENT.ADVISORY.API")
        await ask(client, "$JS.API.STREAM.INFO.none")
        event = json.loads((await heard.next_msg(timeout=30)).data)
        told = event["client"]
        assert told.pop("start")
        assert told.pop("rtt", 1) > 0
        assert told.pop("ver")
        assert told.pop("id") > 0
        assert told == {
            "host": "127.0.0.1",
            "acc": "ACC",
            "user": "acc",
            "name": "me",
            "lang": "python3",
            "server": "one",
            "kind": "Client",
            "client_type": "nats",
        }

    play(server, scene)


def test_the_system_account_hears_every_request_of_the_api(server: ServerProcess) -> None:
    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client, system = await connect("acc", name="me"), await connect("sys")
        heard: list[Msg] = []
        seen = asyncio.Event()

        async def take(message: Msg) -> None:
            heard.append(message)
            if message.subject == "$JS.API.CONSUMER.INFO.S.C":
                seen.set()

        await system.subscribe("$JS.API.>", cb=take)
        await system.flush()
        await ask(client, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await ask(client, "$JS.API.STREAM.INFO.S")
        await ask(client, "$JS.API.CONSUMER.INFO.S.C")
        await asyncio.wait_for(seen.wait(), 30)
        assert [message.subject for message in heard] == [
            "$JS.API.STREAM.CREATE.S",
            "$JS.API.STREAM.INFO.S",
            "$JS.API.CONSUMER.INFO.S.C",
        ]
        assert json.loads(heard[0].data)["name"] == "S"
        asker = json.loads((heard[1].headers or {})["Nats-Request-Info"])
        assert (asker["acc"], asker["user"], asker["name"], asker["server"]) == ("ACC", "acc", "me", "one")

    play(server, scene)


def test_an_accounts_streams_are_purged(server: ServerProcess) -> None:
    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client, other, system = await connect("acc"), await connect("other"), await connect("sys")
        for name in ("A", "B"):
            await client.jetstream().add_stream(StreamConfig(name=name, subjects=[name]))
            await client.jetstream().publish(name, b"x")
        await other.jetstream().add_stream(StreamConfig(name="A", subjects=["A"]))
        purged = await ask(system, "$JS.API.ACCOUNT.PURGE.ACC")
        assert purged == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
        assert (await ask(client, "$JS.API.STREAM.NAMES"))["total"] == 0
        assert (await ask(other, "$JS.API.STREAM.NAMES"))["streams"] == ["A"]
        assert (await ask(system, "$JS.API.ACCOUNT.PURGE.nobody"))["initiated"] is True
        refused = await ask(system, "$JS.API.ACCOUNT.PURGE.a/b")
        assert refused["error"]["err_code"] == 10051
        if isinstance(server, NatsServer):
            server.hold_directories()
        await client.jetstream().add_stream(StreamConfig(name="A", subjects=["A"]))

    play(server, scene)


@pytest.mark.parametrize(
    ("member", "level"),
    [
        ({}, "0"),
        ({"pause_until": "0001-01-01T00:00:00Z"}, "0"),
        ({"pause_until": "2020-01-01T00:00:00Z"}, "1"),
        ({"priority_policy": "none", "priority_timeout": 0, "priority_groups": None}, "0"),
        ({"priority_policy": "overflow", "priority_groups": ["a"]}, "1"),
    ],
)
def test_the_level_that_a_consumer_needs(server: ServerProcess, member: dict[str, Any], level: str) -> None:
    """The `nats` tool writes every member, those that it leaves empty too."""

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client = await connect("acc")
        await client.jetstream().add_stream(StreamConfig(name="S", subjects=["s"]))
        asked = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit", **member}}
        made = await ask(client, "$JS.API.CONSUMER.CREATE.S.C", asked)
        assert made["config"]["metadata"]["_nats.req.level"] == level

    play(server, scene)


def test_the_last_of_each_subject_beyond_the_end(server: ServerProcess) -> None:
    """`nats sub --direct --last-per-subject` moves on until nothing is found."""

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client = await connect("acc")
        await client.jetstream().add_stream(StreamConfig(name="S", subjects=["s.*"], allow_direct=True))
        for _ in range(3):
            await client.jetstream().publish("s.a", b"x")
        for up_to, expected in ((3, None), (4, "404"), (2**63, "404"), (0, None)):
            body = json.dumps({"multi_last": ["s.*"], "up_to_seq": up_to}).encode()
            answer = await client.request("$JS.API.DIRECT.GET.S", body, timeout=30)
            assert (answer.headers or {}).get("Status") == expected, up_to

    play(server, scene)


LIMITED = """
accounts {
  ACC: {
    users: [ { user: acc, password: acc }, { user: few, password: few, permissions: { publish: "may.>", subscribe: "may.>" } } ]
    limits: { max_payload: 100 }
  }
}
"""


@pytest.fixture(params=[Eyotd, NewerNatsServer])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    process: ServerProcess = request.param(LIMITED, tmp_path)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def test_a_client_is_told_the_payload_limit_of_its_account(limited: ServerProcess) -> None:
    with RawClient(limited.client_port, user="acc", protocol=1, **{"pass": "acc"}) as client:
        assert client.info["max_payload"] == 1 << 20
        client.send(b"PING\r\n")
        while not (line := client.until(b"\r\n")).startswith(b"INFO "):
            assert line, "the connection ended"
        assert json.loads(line.removeprefix(b"INFO "))["max_payload"] == 100


def test_what_permissions_forbid_is_in_the_log(limited: ServerProcess) -> None:
    with RawClient(limited.client_port, user="few", **{"pass": "few"}) as client:
        client.ask(b"PUB may.x 1\r\nx\r\n" + b"PUB no.x 1\r\nx\r\n" * 3)
        client.ask(b"SUB no.y 7\r\nSUB no.z q 8\r\nPUB may.x _R_.a 1\r\nx\r\n")
        client.ask(b"PUB may.x 101\r\n" + b"x" * 101 + b"\r\n")
    lines = [line for line in limited.log().splitlines() if "Violation" in line or "maximum payload" in line]
    said = [line.partition(' - "ACC/user:few" - ')[2] for line in lines]
    assert list(dict.fromkeys(said)) == [
        'Publish Violation - Subject "no.x"',
        'Subscription Violation - Subject "no.y", SID 7',
        'Subscription Violation - Subject "no.z", Queue: "q", SID 8',
        'Publish Violation - Reply "_R_.a"',
        "maximum payload exceeded: 101 vs 100",
    ]
    assert all("[ERR]" in line for line in lines)


def test_what_goes_into_a_stream_is_not_sent(server: ServerProcess) -> None:
    with (
        RawClient(server.client_port, user="acc", **{"pass": "acc"}) as client,
        RawClient(server.client_port, user="sys", **{"pass": "sys"}) as system,
    ):
        request = b'{"name":"S","subjects":["s"]}'
        client.send(b"SUB box 1\r\nPUB $JS.API.STREAM.CREATE.S box %d\r\n%b\r\n" % (len(request), request))
        while not client.until(b"\r\n").startswith(b'{"type"'):
            pass
        steps = []
        for subscribed in (b"", b"SUB s 2\r\n", b"SUB s group 3\r\n"):
            before = sent_by_account(system)
            client.ask(subscribed + b"PUB s 4\r\nfour\r\n" * 10)
            after = sent_by_account(system)
            steps.append((after[0] - before[0], after[1] - before[1]))
        assert steps == [(0, 0), (10, 40), (20, 80)]


def sent_by_account(system: RawClient) -> tuple[int, int]:
    """Messages and bytes that the account ACC has sent to clients and leaf links; nats-server counts a little after it sent."""
    found, said = None, _said_to_be_sent(system)
    while found != said:
        time.sleep(0.2)
        found, said = said, _said_to_be_sent(system)
    return said


def _said_to_be_sent(system: RawClient) -> tuple[int, int]:
    system.send(b"SUB figures 9\r\nUNSUB 9 1\r\nPUB $SYS.REQ.ACCOUNT.ACC.STATZ figures 0\r\n\r\n")
    while not (line := system.until(b"\r\n")).startswith(b"{"):
        assert line, "the connection ended"
    sent = json.loads(line)["data"]["account_statz"][0]["sent"]
    return sent["msgs"], sent["bytes"]


def test_subscribers_of_a_subject_are_counted(server: ServerProcess) -> None:
    """In the system account, where nobody subscribes, and by an import in the account that asks."""

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client, other, system = await connect("acc"), await connect("other"), await connect("sys")
        for subject, queue in (("a.b", ""), ("a.*", ""), ("a.b", "q"), ("a.b", "r"), ("c", "")):
            await client.subscribe(subject, queue)
            await system.subscribe(subject, queue)
        await client.flush()
        await system.flush()
        asked = ("a.b", "a.b q", "a.b none", "a.*", "a.> r", ">", "nobody", "")
        for asker in (system, other):
            counts = [json.loads((await asker.request("$SYS.DEBUG.SUBSCRIBERS", one.encode())).data) for one in asked]
            if asker is system:
                assert counts[:5] == [4, 1, 0, 4, 1]
                assert counts[6:] == [0, 0]
            else:
                assert counts[0] == 0
        with pytest.raises(NoRespondersError):
            await client.request("$SYS.DEBUG.SUBSCRIBERS", b"a.b")
        with pytest.raises(NoRespondersError):
            await system.request("$SYS.REQ.ACCOUNT.ACC.NOTHING", b"")

    play(server, scene)


DOMAIN = """
accounts { ACC: { users: [ { user: acc, password: acc } ], jetstream: enabled }, SYS: { users: [ { user: sys, password: sys } ] } }
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js", domain: here }
"""
#: What is to be acknowledged in which way, and the last token of the event's prefix.
ANSWERS = {"+ACK": "ACK", "-NAK": "MSG_NAKED", "+TERM why": "MSG_TERMINATED"}


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_the_domain_stands_where_it_does_in_nats_servers_events(
    kind: Callable[[str, Path], ServerProcess], tmp_path: Path
) -> None:
    here = kind(DOMAIN, tmp_path)
    here.start()

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        client = await connect("acc")
        events = await client.subscribe("$JS.EVENT.>")
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s"]))
        for _ in ANSWERS:
            await js.publish("s", b"")
        config = {"durable_name": "C", "ack_policy": "explicit", "sample_freq": "100%", "max_deliver": 1}
        await ask(client, "$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
        inbox = await client.subscribe("pulled")
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":3}', reply="pulled")
        for answer in ANSWERS:
            await client.publish((await inbox.next_msg(timeout=30)).reply, answer.encode())
        await client.flush()
        await ask(client, "$JS.API.CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
        await ask(client, "$JS.API.CONSUMER.DELETE.S.C")
        pinned = config | {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": 10**9}
        await ask(client, "$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": pinned})
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"group":"g"}', reply="pulled")
        await inbox.next_msg(timeout=30)
        await ask(client, "$JS.API.CONSUMER.UNPIN.S.C", {"group": "g"})
        members: dict[str, list[str]] = {}
        wanted = {"consumer_action", "consumer_pause", "nak", "terminated", "consumer_ack", "consumer_group_pinned"}
        while not (wanted | {"consumer_group_unpinned"}) <= members.keys():
            event = json.loads((await events.next_msg(timeout=30)).data)
            members[event["type"].rpartition(".")[2]] = [name for name in event if name not in ("id", "timestamp")]
        begin = ["type", "stream", "consumer"]
        counted = ["consumer_seq", "stream_seq"]
        assert members["consumer_action"] == [*begin, "action", "domain"]
        assert members["consumer_pause"] == [*begin, "paused", "pause_until", "domain"]
        assert members["nak"] == [*begin, *counted, "deliveries", "domain"]
        assert members["terminated"] == [*begin, *counted, "deliveries", "reason", "domain"]
        assert members["consumer_ack"] == [*begin, *counted, "ack_time", "deliveries", "domain"]
        account = ["type", "account", "stream", "consumer", "domain", "group"]
        assert members["consumer_group_pinned"] == [*account, "pinned_id"]
        assert members["consumer_group_unpinned"] == [*account, "reason"]

    try:
        play(here, scene)
    finally:
        here.kill()


@pytest.mark.parametrize("kinds", [(Eyotd, Eyotd), (Eyotd, NewerNatsServer), (NewerNatsServer, Eyotd)])
def test_servers_that_share_a_system_account_count_each_other(
    kinds: tuple[Callable[[str, Path], ServerProcess], Callable[[str, Path], ServerProcess]], tmp_path: Path
) -> None:
    """`nats server list` and its reports wait for as many answers as the first STATSZ says."""
    hub = kinds[0](SHARED_HUB, tmp_path / "hub")
    hub.start()
    leaf = kinds[1](SHARED_LEAF.replace("HUB_PORT", str(hub.leaf_port)), tmp_path / "leaf")

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        system = await connect("sys")
        figures = await system.subscribe("$SYS.SERVER.*.STATSZ")
        ends = await system.subscribe("$SYS.SERVER.*.SHUTDOWN")
        await system.flush()
        leaf.start()
        counted: dict[str, int] = {}
        while counted != {"hub": 2, "leaf": 2}:
            event = json.loads((await figures.next_msg(timeout=60)).data)
            counted[event["server"]["name"]] = event["statsz"]["active_servers"]
        versions = await ask(system, "$SYS.REQ.SERVER.PING.CONNZ")
        assert all(one["version"] for one in versions["data"]["connections"] if one["kind"] == "Leafnode")
        here = await ask(system, "$SYS.REQ.SERVER.PING.HEALTHZ", {"account": "ACC", "server_name": "leaf"})
        assert (here["data"]["status_code"], here["data"]["error"]) == (404, 'JetStream account "ACC" not found')
        leaf.stop()
        await ends.next_msg(timeout=30)
        while (await ask(system, "$SYS.REQ.SERVER.PING.STATSZ", {"server_name": "hub"}))["statsz"][
            "active_servers"
        ] > 1:
            pass

    try:
        play(hub, scene)
    finally:
        leaf.kill()
        hub.kill()


SHARED_HUB = """
server_name: hub
accounts { SYS: { users: [ { user: sys, password: sys } ] } }
system_account: SYS
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""
SHARED_LEAF = """
server_name: leaf
accounts {
  ACC: { users: [ { user: acc, password: acc } ], jetstream: enabled }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js" }
leafnodes { remotes: [ { url: "nats://sys:sys@127.0.0.1:HUB_PORT", account: SYS } ] }
"""
LEAF = """
server_name: leaf
accounts {
  ACC: { users: [ { user: acc, password: acc } ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
leafnodes { remotes: [ { url: "nats://acc:acc@127.0.0.1:1", account: ACC } ] }
"""


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_a_server_with_remotes_is_a_cluster_by_its_own_name(
    kind: Callable[[str, Path], ServerProcess], tmp_path: Path
) -> None:
    """The column that `nats server list` and its reports have for it."""
    leaf = kind(LEAF, tmp_path)
    leaf.start()

    async def scene(connect: Callable[..., Awaitable[Client]]) -> None:
        answer = await ask(await connect("sys"), "$SYS.REQ.SERVER.PING.VARZ")
        assert answer["server"]["cluster"] == "leaf"
        narrowed = await ask(await connect("sys"), "$SYS.REQ.SERVER.PING.IDZ", {"cluster": "leaf"})
        assert narrowed["name"] == "leaf"
        assert (await ask(await connect("sys"), "$SYS.REQ.SERVER.PING.STATSZ", {"cluster": "leaf"}))["statsz"]

    try:
        play(leaf, scene)
    finally:
        leaf.kill()
