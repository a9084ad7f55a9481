"""Brokers in one process, joined by leaf links over a network in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Peer
from eyot_daemon.config.accounts import AccountOptions, UserOptions
from eyot_daemon.config.leaf import LeafNodesOptions, LeafUrl, RemoteOptions
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.listener import LeafListener
from eyot_daemon.leaf.remotes import LeafRemotes
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import Subscription
from support.clients.destinations import Client, Recorder
from support.links.memory_net import MemoryNetwork

ACCOUNTS = (
    AccountOptions(name="ACC", users=(UserOptions(user="acc", password="acc", account="ACC"),)),
    AccountOptions(name="OTHER", users=(UserOptions(user="other", password="other", account="OTHER"),)),
)


def remote(
    host: str = "hub", user: str = "acc", password: str = "acc", account: str = "ACC", **options: Any
) -> RemoteOptions:
    """A remote that dials `host` of the network in memory."""
    url = LeafUrl(scheme="nats", host=host, port=7422, user=user, password=password)
    return RemoteOptions(urls=(url,), account=account, **options)


class Node:
    """One broker. `publish` acts as a client of the account, `subscribe` gives a recorder."""

    def __init__(self, name: str, net: MemoryNetwork, options: Options, seed: int) -> None:
        self.name = name
        self.net = net
        self.broker = Broker(options, server_id=f"N{name.upper()}", rng=random.Random(seed))
        set_up_accounts(self.broker, options)
        self.links = self.broker.links
        self.authenticator = ConfigAuthenticator(options)
        self.remotes = LeafRemotes(self.links, net)
        self.scope = trio.CancelScope()

    def account(self, name: str = "ACC") -> Account:
        return self.broker.accounts[name]

    def subscribe(self, subject: bytes, queue: bytes = b"", account: str = "ACC", **recorder: Any) -> Recorder:
        found = Recorder(**recorder)
        self.add(subject, found, queue, account)
        return found

    def add(self, subject: bytes, recorder: Recorder, queue: bytes = b"", account: str = "ACC") -> Subscription:
        sub = self.account(account).subscribe(subject, recorder, queue)
        self.broker.flush()
        return sub

    def remove(self, sub: Subscription) -> None:
        sub.account.unsubscribe(sub)
        self.broker.flush()

    def publish(
        self, subject: bytes, payload: bytes = b"", reply: bytes = b"", header: bytes = b"", account: str = "ACC"
    ) -> int:
        count = self.account(account).publish(subject, reply, header, payload, origin=Client())
        self.broker.flush()
        return count

    def knows(self, subject: bytes, account: str = "ACC") -> bool:
        """Does the account have interest in the subject, here or over a link?"""
        return self.account(account).has_interest(subject)

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Serve timers, listener and remotes until stopped."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.broker.timers.run, self.broker.flush)
                listener = LeafListener(self.links, self.authenticator.leaf, nursery)

                async def serve(stream: trio.abc.Stream, host: str) -> None:
                    nursery.start_soon(listener.serve_stream, stream, Peer(host=host, port=1), self.name)

                self.net.listen(self.name, serve)
                self.remotes.start(nursery)
                task_status.started()
                await trio.sleep_forever()

    def stop(self) -> None:
        """What a power cut does: everything ends, nothing is said."""
        self.net.close(self.name)
        self.scope.cancel()


class LeafFixture:
    """Nodes on one network."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.net = MemoryNetwork(nursery)
        self._nursery = nursery
        self._seed = 0

    async def node(
        self, name: str, *remotes: RemoteOptions, leafnodes: dict[str, Any] | None = None, **options: Any
    ) -> Node:
        """Start a broker that listens under its name and dials its remotes."""
        self._seed += 1
        options.setdefault("accounts", ACCOUNTS)
        built = Options(
            server_name=name, leafnodes=LeafNodesOptions(port=-1, remotes=remotes, **(leafnodes or {})), **options
        )
        node = Node(name, self.net, built, self._seed)
        await self._nursery.start(node.run)
        return node


async def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Wait until something holds; time is the mock clock's, so the wait costs nothing."""
    with trio.fail_after(timeout_s):
        while not condition():
            await trio.sleep(0.01)


async def settle() -> None:
    """Let everything that is under way arrive."""
    await trio.sleep(0.05)


@asynccontextmanager
async def leaf_link_fixture() -> AsyncIterator[LeafFixture]:
    async with trio.open_nursery() as nursery:
        yield LeafFixture(nursery)
        nursery.cancel_scope.cancel()


async def hub_and_leaf(fixture: LeafFixture) -> tuple[Node, Node]:
    hub = await fixture.node("hub")
    leaf = await fixture.node("leaf", remote())
    await until(lambda: leaf.links.is_up("ACC") and hub.links.is_up("ACC"))
    return hub, leaf


def only_link(node: Node) -> LeafConnection:
    (link,) = node.links.connections.values()
    return link
