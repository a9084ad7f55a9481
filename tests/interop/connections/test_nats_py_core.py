"""Core NATS with the real nats-py against a real daemon, and against Debian's nats-server as the reference.

Every scenario runs against both, with the same expectations, so that the two agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: core
max_payload: 256kb
accounts {
    A {
        users: [
            { user: a, password: a }
            { user: limited, password: limited, permissions {
                publish { allow: ["ok.>"], deny: "ok.not" }
                subscribe { allow: ["in.>", "_INBOX.>"], deny: "in.secret" }
            } }
            { user: responder, password: responder, permissions {
                subscribe: "svc", publish { deny: ">" }, allow_responses: true
            } }
        ]
        exports: [ { service: "svc.shared" }, { stream: "news.>" } ]
        mappings { "old.*": "new.$1" }
    }
    B {
        users: [ { user: b, password: b } ]
        imports: [
            { service: { account: A, subject: "svc.shared" }, to: "svc.of.a" }
            { stream: { account: A, subject: "news.>" }, prefix: "from.a" }
        ]
    }
    SYS { users: [ { user: s, password: s } ] }
}
system_account: SYS
"""


@pytest.fixture(scope="module", params=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind = Eyotd if request.param == "eyotd" else NatsServer
    with kind(CONFIG, tmp_path_factory.mktemp(request.param)) as process:
        yield process


@asynccontextmanager
async def connected(server: ServerProcess, user: str = "a", **options: Any) -> AsyncIterator[Client]:
    errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        errors.append(error)

    client = await nats.connect(server.client_url(user), error_cb=on_error, allow_reconnect=False, **options)
    client.seen_errors = errors  # type: ignore[attr-defined]
    try:
        yield client
    finally:
        await client.close()


def scenario(play: Callable[[ServerProcess], Awaitable[None]]) -> Callable[[ServerProcess], None]:
    """An asyncio scenario as an ordinary test."""

    def test(server: ServerProcess) -> None:
        asyncio.run(asyncio.wait_for(play(server), 30))

    test.__doc__ = play.__doc__
    test.__name__ = play.__name__
    return test


async def collect(sub: Any, count: int) -> list[Msg]:
    return [await sub.next_msg(timeout=5) for _ in range(count)]


@scenario
async def test_publish_and_subscribe(server: ServerProcess) -> None:
    async with connected(server) as client, connected(server) as other:
        sub = await other.subscribe("foo.*.bar")
        everything = await other.subscribe("foo.>")
        await other.flush()
        await client.publish("foo.1.bar", b"one")
        await client.publish("foo.2.baz", b"two")
        await client.publish("foo.3.bar", b"three", reply="back", headers={"K": "v"})
        await client.flush()
        got = await collect(sub, 2)
        assert [(msg.subject, msg.data, msg.reply) for msg in got] == [
            ("foo.1.bar", b"one", ""),
            ("foo.3.bar", b"three", "back"),
        ]
        assert got[1].headers == {"K": "v"}
        assert [msg.data for msg in await collect(everything, 3)] == [b"one", b"two", b"three"]


@scenario
async def test_request_and_reply(server: ServerProcess) -> None:
    async with connected(server) as client, connected(server) as service:

        async def answer(msg: Msg) -> None:
            await msg.respond(msg.data.upper())

        await service.subscribe("svc.upper", cb=answer)
        await service.flush()
        answers = await asyncio.gather(*(client.request("svc.upper", b"n%d" % n, timeout=5) for n in range(200)))
        assert [msg.data for msg in answers] == [b"N%d" % n for n in range(200)]
        old_style = await client.request("svc.upper", b"old", timeout=5, old_style=True)
        assert old_style.data == b"OLD"


@scenario
async def test_no_responders(server: ServerProcess) -> None:
    async with connected(server) as client:
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody.there", b"", timeout=5)


@scenario
async def test_queue_groups(server: ServerProcess) -> None:
    async with connected(server) as publisher:
        counts = [0, 0, 0]
        async with connected(server) as one, connected(server) as two, connected(server) as three:
            for index, client in enumerate((one, two, three)):

                async def count(msg: Msg, index: int = index) -> None:
                    counts[index] += 1

                await client.subscribe("work", queue="workers", cb=count)
                await client.flush()
            for _ in range(300):
                await publisher.publish("work", b"x")
            await publisher.flush()
            for _ in range(500):
                if sum(counts) == 300:
                    break
                await asyncio.sleep(0.01)
        assert sum(counts) == 300
        assert min(counts) > 50


@scenario
async def test_auto_unsubscribe_and_drain(server: ServerProcess) -> None:
    async with connected(server) as client:
        sub = await client.subscribe("limited")
        await sub.unsubscribe(limit=3)
        for n in range(6):
            await client.publish("limited", b"%d" % n)
        await client.flush()
        assert [msg.data for msg in await collect(sub, 3)] == [b"0", b"1", b"2"]
        taken: list[bytes] = []

        async def take(msg: Msg) -> None:
            taken.append(msg.data)

        drained = await client.subscribe("drained", cb=take)
        await client.publish("drained", b"last")
        await drained.drain()
        await client.publish("drained", b"late")
        await client.flush()
        assert taken == [b"last"]


@scenario
async def test_no_echo(server: ServerProcess) -> None:
    async with connected(server, no_echo=True) as client, connected(server) as other:
        mine, theirs = await client.subscribe("echo"), await other.subscribe("echo")
        await other.flush()
        await client.publish("echo", b"x")
        await client.flush()
        assert (await theirs.next_msg(timeout=5)).data == b"x"
        with pytest.raises(nats.errors.TimeoutError):
            await mine.next_msg(timeout=0.1)


@scenario
async def test_verbose_and_pedantic(server: ServerProcess) -> None:
    async with connected(server, verbose=True, pedantic=True) as client:
        sub = await client.subscribe("v")
        await client.publish("v", b"x")
        await client.flush()
        assert (await sub.next_msg(timeout=5)).data == b"x"


@scenario
async def test_payloads_up_to_the_limit(server: ServerProcess) -> None:
    async with connected(server) as client:
        assert client.max_payload == 256 * 1024
        sub = await client.subscribe("big")
        payload = bytes(range(256)) * 1024
        await client.publish("big", payload)
        await client.flush()
        assert (await sub.next_msg(timeout=5)).data == payload
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish("big", payload + b"x")


@scenario
async def test_wrong_credentials(server: ServerProcess) -> None:
    for url in (server.client_url("a", "wrong"), server.client_url("nobody"), server.client_url()):
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=0)


@scenario
async def test_permissions(server: ServerProcess) -> None:
    async with connected(server, "limited") as client, connected(server) as other:
        watcher = await other.subscribe("ok.>")
        await other.flush()
        sub = await client.subscribe("in.>")
        await client.publish("ok.yes", b"1")
        await client.publish("ok.not", b"2")
        await client.publish("elsewhere", b"3")
        await client.subscribe("elsewhere")
        await client.flush()
        await other.publish("in.secret", b"hidden")
        await other.publish("in.open", b"seen")
        await other.flush()
        assert (await sub.next_msg(timeout=5)).data == b"seen"
        assert (await watcher.next_msg(timeout=5)).subject == "ok.yes"
        await asyncio.sleep(0.05)
        texts = sorted(str(error).lower() for error in client.seen_errors)  # type: ignore[attr-defined]
        assert len(texts) == 3
        assert 'permissions violation for publish to "elsewhere"' in texts[0]
        assert 'permissions violation for publish to "ok.not"' in texts[1]
        assert 'permissions violation for subscription to "elsewhere"' in texts[2]


@scenario
async def test_a_responder_may_only_answer(server: ServerProcess) -> None:
    async with connected(server, "responder") as service, connected(server) as client:

        async def answer(msg: Msg) -> None:
            await msg.respond(b"once")
            await msg.respond(b"twice")
            await service.publish("elsewhere", b"x")

        await service.subscribe("svc", cb=answer)
        await service.flush()
        inbox = await client.subscribe("_INBOX.me")
        await client.publish("svc", b"", reply="_INBOX.me")
        # a tracked reply passes even a deny of everything, but only once
        assert (await inbox.next_msg(timeout=5)).data == b"once"
        await service.flush()
        await client.flush()
        with pytest.raises(nats.errors.TimeoutError):
            await inbox.next_msg(timeout=0.1)
        assert len(service.seen_errors) == 2  # type: ignore[attr-defined]


@scenario
async def test_mappings(server: ServerProcess) -> None:
    async with connected(server) as client:
        sub = await client.subscribe("new.*")
        await client.publish("old.1", b"x")
        await client.flush()
        assert (await sub.next_msg(timeout=5)).subject == "new.1"


@scenario
async def test_accounts_are_apart_but_for_their_imports(server: ServerProcess) -> None:
    async with connected(server) as in_a, connected(server, "b") as in_b:
        seen = await in_b.subscribe(">")

        async def answer(msg: Msg) -> None:
            await msg.respond(b"from a: " + msg.data)

        await in_a.subscribe("svc.shared", cb=answer)
        await in_a.flush()
        await in_b.flush()
        await in_a.publish("private", b"x")
        await in_a.publish("news.today", b"y")
        await in_a.flush()
        got = await seen.next_msg(timeout=5)
        assert (got.subject, got.data) == ("from.a.news.today", b"y")
        reply = await in_b.request("svc.of.a", b"hello", timeout=5)
        assert reply.data == b"from a: hello"
        await seen.unsubscribe()
        with pytest.raises(nats.errors.NoRespondersError):
            await in_b.request("svc.shared", b"", timeout=5)


@scenario
async def test_many_messages_keep_their_order(server: ServerProcess) -> None:
    async with connected(server) as client, connected(server) as reader:
        received: list[int] = []
        done = asyncio.Event()

        async def take(msg: Msg) -> None:
            received.append(int(msg.data))
            if len(received) == 20_000:
                done.set()

        await reader.subscribe("order.*", cb=take)
        await reader.flush()
        for n in range(20_000):
            await client.publish(f"order.{n % 5}", b"%d" % n)
        await client.flush()
        await asyncio.wait_for(done.wait(), 20)
        assert received == list(range(20_000))


@scenario
async def test_system_account(server: ServerProcess) -> None:
    async with connected(server, "s") as client:
        reply = await client.request("$SYS.REQ.SERVER.PING.VARZ", b"", timeout=5)
        assert b'"server_name":"core"' in reply.data.replace(b" ", b"")


def test_the_server_stops_cleanly(tmp_path: Path) -> None:
    process = Eyotd("server_name: stops\n", tmp_path)
    process.start()

    async def play() -> None:
        closed = asyncio.Event()

        async def on_close() -> None:
            closed.set()

        client = await nats.connect(process.client_url(), allow_reconnect=False, closed_cb=on_close)
        await client.subscribe("a")
        await client.flush()
        assert await asyncio.to_thread(process.stop) == 0
        await asyncio.wait_for(closed.wait(), 10)

    asyncio.run(play())
