"""A hub and a leaf as real processes, each either eyotd or Debian's nats-server, and nats-py clients at both ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

ACCOUNTS = """
accounts {
    SYS: { users: [{user: admin, password: admin}] }
    ACC: { users: [{user: acc, password: acc}], jetstream: enabled }
    OTHER: { users: [{user: other, password: other}] }
}
system_account: SYS
"""
HUB = """
server_name: hub-server
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
"""
LEAF = """
server_name: leaf-server
jetstream { store_dir: "%WORKDIR%/store", domain: leaf }
leafnodes { reconnect: 1, remotes = [
    { urls: ["nats-leaf://admin:admin@127.0.0.1:HUB_PORT"], account: SYS }
    { urls: ["nats-leaf://acc:acc@127.0.0.1:HUB_PORT"], account: ACC }
] }
"""
WAIT_S = 60.0


def configs_behind(port: int) -> dict[str, str]:
    """Return `hub_config` and `leaf_config` of a pair with a link on `port` between them.

    A nats-server tells leaf nodes its own address even with `no_advertise`. A leaf node would go round a link that is cut.
    """
    return {
        "hub_config": HUB.replace("no_advertise: true", f'advertise: "127.0.0.1:{port}"'),
        "leaf_config": LEAF.replace("HUB_PORT", str(port)),
    }


def server(kind: str, config: str, workdir: Path) -> ServerProcess:
    """`kind`: eyotd, nats-server (Debian's), or the version of a newer one."""
    if kind == "eyotd":
        return Eyotd(config, workdir)
    if kind == "nats-server":
        return NatsServer(config, workdir)
    return NewerNatsServer(config, workdir, kind)


class LeafPair:
    """`hub` and `leaf` processes; started and linked on entry."""

    def __init__(
        self,
        hub: str,
        leaf: str,
        workdir: Path,
        *,
        hub_config: str = HUB,
        leaf_config: str = LEAF,
        accounts: str = ACCOUNTS,
    ) -> None:
        self.hub = server(hub, hub_config + accounts, workdir / "hub")
        config = (leaf_config + accounts).replace("HUB_PORT", str(self.hub.leaf_port))
        self.leaf = server(leaf, config, workdir / "leaf")

    def __enter__(self) -> Self:
        self.hub.start()
        try:
            self.leaf.start()
        except BaseException:
            self.hub.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leaf.kill()
        self.hub.kill()
        if error is not None:
            print(f"--- {self.hub.name} as hub\n{self.hub.log()[-3000:]}")
            print(f"--- {self.leaf.name} as leaf\n{self.leaf.log()[-3000:]}")

    def play(self, test: Callable[[Client, Client], Awaitable[None]], user: str = "acc") -> None:
        """Run `test(client of the hub, client of the leaf)` once messages pass both ways."""

        async def run() -> None:
            async with Clients(self.hub, self.leaf, user=user) as (hub, leaf):
                await linked(hub, leaf)
                await test(hub, leaf)

        asyncio.run(run())


class Clients:
    """A client on each of several servers."""

    def __init__(self, *servers: ServerProcess, user: str = "acc") -> None:
        self._servers = servers
        self._user = user
        self._clients: list[Client] = []

    async def __aenter__(self) -> tuple[Client, ...]:
        for one in self._servers:
            self._clients.append(await nats.connect(one.client_url(self._user), allow_reconnect=False))
        return tuple(self._clients)

    async def __aexit__(self, *exc: object) -> None:
        for client in self._clients:
            await client.close()


class Inbox:
    """Messages of one subscription, as they come."""

    def __init__(self) -> None:
        self.got: list[Msg] = []

    @classmethod
    async def on(cls, client: Client, subject: str, queue: str = "") -> Self:
        inbox = cls()

        async def take(message: Msg) -> None:
            inbox.got.append(message)

        await client.subscribe(subject, queue=queue, cb=take)
        await client.flush()
        return inbox

    @property
    def payloads(self) -> list[bytes]:
        return [message.data for message in self.got]

    async def wait(self, count: int, timeout_s: float = WAIT_S) -> list[bytes]:
        """Wait until that many messages are here."""
        await eventually(lambda: len(self.got) >= count, timeout_s)
        return self.payloads


async def eventually(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


async def linked(first: Client, second: Client, timeout_s: float = WAIT_S) -> None:
    """Wait until messages pass in both directions."""
    for source, target in ((first, second), (second, first)):
        await reaches(source, target, timeout_s)


async def reaches(source: Client, target: Client, timeout_s: float = WAIT_S) -> None:
    """Wait until what `source` publishes arrives at `target`."""
    subject = target.new_inbox()
    inbox = await Inbox.on(target, subject)
    deadline = time.monotonic() + timeout_s
    while not inbox.got:
        assert time.monotonic() < deadline, "nothing passes the link"
        await source.publish(subject, b"")
        await source.flush()
        await asyncio.sleep(0.02)


async def answering(client: Client, subject: str, queue: str = "", text: bytes = b"pong ") -> list[Any]:
    """A service that answers with `text` and what it was asked; returns the list of requests it gets."""
    requests: list[Any] = []

    async def answer(message: Msg) -> None:
        requests.append(message)
        await message.respond(text + message.data)

    await client.subscribe(subject, queue=queue, cb=answer)
    await client.flush()
    return requests


async def bulk(hub: Client, leaf: Client) -> None:
    """Much goes both ways, and all of it arrives in order."""
    at_hub, at_leaf = await Inbox.on(hub, "up"), await Inbox.on(leaf, "down")
    await linked(hub, leaf)
    for number in range(300):
        await leaf.publish("up", b"%d" % number + b"x" * 5000)
        await hub.publish("down", b"%d" % number + b"y" * 5000)
    await at_hub.wait(300)
    await at_leaf.wait(300)
    assert at_hub.payloads == [b"%d" % number + b"x" * 5000 for number in range(300)]
    assert at_leaf.payloads == [b"%d" % number + b"y" * 5000 for number in range(300)]
