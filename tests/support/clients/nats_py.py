"""Scenarios with the real nats-py: one coroutine, run against any server, its findings as plain values.

nats-py needs asyncio; a scenario therefore runs in an event loop of its own (`play`), not in the tests' Trio.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from support.servers.server_process import ServerProcess

#: No scenario takes longer than this; a hang is a failure with a name.
SCENARIO_TIMEOUT_S = 60.0


class Table:
    """What a scenario works with: a connection, a stream of its own, and short words for raw requests."""

    def __init__(self, nc: Client, name: str) -> None:
        self.nc = nc
        self.js: JetStreamContext = nc.jetstream(timeout=10)
        self.name = name

    async def stream(self, **config: Any) -> None:
        """Create the scenario's stream, subjects `<name>.>`."""
        config.setdefault("subjects", [f"{self.name}.>"])
        answer = await self.api(f"STREAM.CREATE.{self.name}", {"name": self.name, **config})
        assert "error" not in answer, answer

    async def fill(self, count: int, subject: str = "x", size: int = 1) -> None:
        for i in range(count):
            await self.js.publish(f"{self.name}.{subject}", f"{i}".ljust(size).encode())

    async def api(self, words: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """One request of the JetStream API, its answer decoded."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.nc.request(f"$JS.API.{words}", data, timeout=10, headers=headers)
        return json.loads(answer.data)

    async def consumer(self, name: str = "C", **config: Any) -> Any:
        """Create a durable consumer; returns the whole answer."""
        config = {"durable_name": name, **config}
        body = {"stream_name": self.name, "config": config}
        return await self.api(f"CONSUMER.DURABLE.CREATE.{self.name}.{name}", body)

    async def info(self, name: str = "C") -> Any:
        return await self.api(f"CONSUMER.INFO.{self.name}.{name}")

    async def pull(self, body: Any, *, name: str = "C", until: float = 0.2, count: int = 1000) -> list[Msg]:
        """A raw pull request and everything that comes within `until` seconds (at most `count` messages)."""
        inbox = self.nc.new_inbox()
        sub = await self.nc.subscribe(inbox)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.{name}", data, reply=inbox)
        got = await collect(sub, until=until, count=count)
        await sub.unsubscribe()
        return got

    async def expect(self, ready: Callable[[], Awaitable[bool]], timeout: float = 10.0) -> None:
        """Wait until `ready()` holds."""
        async with asyncio.timeout(timeout):
            while not await ready():
                await asyncio.sleep(0.02)


async def collect(sub: Any, *, until: float = 0.2, count: int = 1000) -> list[Msg]:
    """What a subscription gets until it is silent for `until` seconds, or `count` messages."""
    got: list[Msg] = []
    try:
        while len(got) < count:
            got.append(await sub.next_msg(timeout=until))
    except TimeoutError:
        pass
    return got


def seqs(messages: list[Msg]) -> list[int]:
    """Stream sequences of deliveries."""
    return [msg.metadata.sequence.stream for msg in messages if is_delivery(msg)]


def deliveries(messages: list[Msg]) -> list[tuple[int, int, int]]:
    """(stream sequence, consumer sequence, how often delivered) of each."""
    metadata = [msg.metadata for msg in messages if is_delivery(msg)]
    return [(m.sequence.stream, m.sequence.consumer, m.num_delivered) for m in metadata]


def statuses(messages: list[Msg]) -> list[str]:
    """Code and text of each status message."""
    out = []
    for msg in messages:
        if not is_delivery(msg):
            headers = msg.headers or {}
            # nats-py takes header lines that follow a status without text for that text
            text = headers.get("Description", "").split("\n")[0]
            out.append(f"{headers.get('Status', '')} {text}".strip())
    return out


def is_delivery(msg: Msg) -> bool:
    return msg.reply.startswith("$JS.ACK.")


Scenario = Callable[[Table], Awaitable[Any]]


def play(server: ServerProcess, scenario: Scenario, name: str, user: str | None = None) -> Any:
    """Run a scenario against a server; returns what it found."""

    async def run() -> Any:
        nc = await nats.connect(server.client_url(user), max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        try:
            async with asyncio.timeout(SCENARIO_TIMEOUT_S):
                return await scenario(Table(nc, name))
        finally:
            await nc.close()

    return asyncio.run(run())


def play_on_both(servers: tuple[ServerProcess, ServerProcess], scenario: Scenario, name: str) -> tuple[Any, Any]:
    """The same scenario against two servers at the same time; what each one found."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(play, server, scenario, name) for server in servers]
        return runs[0].result(), runs[1].result()


def play_alone(server: ServerProcess, scene: Callable[[Client, JetStreamContext], Awaitable[None]]) -> None:
    """Run a scene that has the server's default account to itself; every stream is gone afterwards."""

    async def run() -> None:
        client = await nats.connect(server.client_url(), allow_reconnect=False)
        try:
            js = client.jetstream(timeout=5)
            await scene(client, js)
            for info in await js.streams_info():
                await js.delete_stream(info.config.name or "")
        finally:
            await client.close()

    asyncio.run(run())
