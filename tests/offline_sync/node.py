"""One simulated daemon: broker, JetStream, leaf links and a real store in one Trio task, with its clock and disk in our hands.

What was submitted to the store is committed a little later, as one group, and the results come back a little later still. A
crash in between loses exactly what was not committed. The wall clock can be set; the disk can be full.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Peer
from eyot_daemon.config.accounts import AccountJetStreamOptions, AccountOptions, UserOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.leaf import CompressionOptions, LeafNodesOptions, LeafUrl, RemoteOptions
from eyot_daemon.config.options import Options
from eyot_daemon.jetstream.engine import JetStream
from eyot_daemon.jetstream.sourcing.sourcing import Sourcing
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.leaf.listener import LeafListener
from eyot_daemon.leaf.remotes import LeafRemotes
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.clock import Clock
from eyot_store import Store, StoreOptions
from eyot_store.errors import StoreError
from eyot_store.txn import Txn
from eyot_sync.leaf.registry import LeafRegistry, LinkIdentity
from offline_sync.network import Network

EPOCH_NS = 1_800_000_000_000_000_000
ACCOUNT = "ACC"
_STORE = StoreOptions(inline=True, flush=False, map_size=2 << 20, map_reserve=1 << 20)
#: From a submit to the flush that holds it, and from the flush to the loop that hears of it, seconds; on a third of the nodes flash is slow.
_COMMIT_S_MAX = 0.05
SLOW_COMMIT_S_MAX = 0.4
_NOTIFY_S_MAX = 0.005


class NodeClock(Clock):
    """A wall clock that can be set, beside Trio's."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self.latest_offset_s = 0.0  # the latest it ever was
        self.has_time_server = False
        self._ticks = trio.lowlevel.current_clock()

    def monotonic(self) -> float:
        return self._ticks.current_time()

    def now_ns(self) -> int:
        offset_s = self.offset_s
        if offset_s > self.latest_offset_s:
            self.latest_offset_s = offset_s
        return EPOCH_NS + int((self._ticks.current_time() + offset_s) * 1e9)

    def is_synchronized(self) -> bool:
        """A time server is in reach, and it has set the clock."""
        return self.has_time_server and not self.offset_s


class SimulatedBroker(Broker):
    """A broker whose store is committed soon after every turn that submitted something."""

    store: Store | None = None
    commits: random.Random
    commit_s_max = _COMMIT_S_MAX
    commit_waits = False

    def flush(self) -> None:
        super().flush()
        store = self.store
        if store is not None and store.backlog_txns and not self.commit_waits and not store.closed:
            self.commit_waits = True
            self.timers.call_later(self.commits.uniform(0.0, self.commit_s_max), self._commit)

    def _commit(self) -> None:
        self.commit_waits = False
        if self.store is not None and not self.store.closed:
            self.store.commit_now()


class _RefusesNobody(LeafRegistry[Any]):
    """The links of a hub that lets several leaf nodes have one JetStream domain."""

    __slots__ = ()

    def same_domain_as(self, newcomer: LinkIdentity) -> None:
        """Return None: no leaf node is refused for its domain."""


class LocalClient:
    """A client of a node: publishes and asks, and hears answers on its inbox."""

    kind = Kind.CLIENT

    def __init__(self, node: Node) -> None:
        self._account = node.account
        self._broker = node.broker
        self._prefix = f"_INBOX.{node.name}.{node.boots}.".encode()
        self._waiting: dict[bytes, Callable[[bytes], None]] = {}
        self._asked = 0
        self._account.subscribe(self._prefix + b"*", self).slow = True  # hears by `deliver`, not through a buffer

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        heard = self._waiting.pop(subject, None)
        if heard is not None:
            heard(payload)
        return True

    def flush(self) -> None:
        """Nothing is sent anywhere."""

    def ask(self, subject: bytes, payload: bytes, heard: Callable[[bytes], None], header: bytes = b"") -> None:
        self._asked += 1
        reply = self._prefix + b"%d" % self._asked
        self._waiting[reply] = heard
        self._account.publish(subject, reply, header, payload, origin=self)
        self._broker.flush()


class Node:
    """A daemon that can be crashed and started again on the same directory.

    `dials`: the addresses of its hub, none for a hub; `other_hub`: those of a second one; `addresses`: where it can be
    dialled itself.
    """

    def __init__(
        self, name: str, network: Network, path: Path, seed: str, *, dials: Sequence[str] = (), addresses: Sequence[str]
    ) -> None:
        self.name = name
        self.network = network
        self.path = path
        self.dials = dials
        self.other_hub: Sequence[str] = ()
        self.in_order = False  # of several addresses the first is tried first
        self.addresses = addresses
        self.domain = name
        self.refuses_twins = True  # as a hub; else as nats-server, which links leaf nodes of one domain
        self.boots = 0
        self.clock = NodeClock()
        self.disk_full = False
        self.running = False
        self.broker: SimulatedBroker
        self.store: Store
        self.js: JetStream
        self.sourcing: Sourcing
        self.client: LocalClient
        #: When leaf links of this node became usable, latest last.
        self.links_up: list[float] = []
        #: Called when one is: what is said then, before anybody has asked anything, must be true, too.
        self.on_link_up: Callable[[], None] = lambda: None
        self.linked_at: dict[str, float] = {}
        self.backup: Path | None = None
        self.was_restored = self.has_restored_stream = False
        self.restored_at = -1.0
        #: Of its links; what they carry is what messages are, unless somebody wants it otherwise.
        self.compression = CompressionOptions(mode="off")
        self._remote_changes = 0
        self._seed = seed
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    @property
    def account(self) -> Account:
        return self.broker.accounts[ACCOUNT]

    def _link_up(self, peer: str) -> None:
        now = trio.current_time()
        self.links_up.append(now)
        self.on_link_up()
        self.linked_at[peer] = now

    def is_linked_since(self, since: float) -> bool:
        """Is a link up to each of its hubs that came up at this time or later?"""
        others = [at for peer, at in self.linked_at.items() if f"{peer}-a" in self.other_hub]
        rules = [at for peer, at in self.linked_at.items() if f"{peer}-a" not in self.other_hub]
        return max(rules, default=-1.0) >= since and (not self.other_hub or max(others, default=-1.0) >= since)

    @property
    def other_link(self) -> str:
        """The link to the second hub that it is linked to at the same time."""
        return f"{self.name}+"

    def stream(self, name: str) -> Stream | None:
        return self.js.accounts[ACCOUNT].streams.get(name) if self.running else None

    # -- life ------------------------------------------------------------------------------------------------------

    def _options(self) -> Options:
        user = UserOptions(user="acc", password="acc", account=ACCOUNT)
        return Options(
            server_name=self.name,
            accounts=(AccountOptions(name=ACCOUNT, users=(user,), jetstream=AccountJetStreamOptions()),),
            jetstream=JetStreamOptions(domain=self.domain),
            leafnodes=LeafNodesOptions(port=-1, remotes=self._remotes(), compression=self.compression),
        )

    def _remotes(self) -> tuple[RemoteOptions, ...]:
        """One remote with every address of a hub; it is another one after each change (its patience with the first INFO)."""
        patience_s = 1.0 + self._remote_changes / 1000
        return tuple(
            RemoteOptions(
                urls=tuple(LeafUrl(scheme="nats", host=each, port=7422, user="acc", password="acc") for each in hub),
                account=ACCOUNT,
                no_randomize=self.in_order,
                first_info_timeout_s=patience_s,
            )
            for hub in (self.dials, self.other_hub)
            if hub
        )

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """From power on to power off."""
        self.boots += 1
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        options = self._options()
        rng = random.Random(f"{self._seed}/{self.name}/{self.boots}")
        self.broker = broker = SimulatedBroker(options, server_id=f"N{self.name}", clock=self.clock, rng=rng)
        broker.commits = random.Random(rng.random())
        if random.Random(f"flash {self._seed}/{self.name}").random() < 1 / 3:
            broker.commit_s_max = SLOW_COMMIT_S_MAX
        set_up_accounts(broker, options)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(broker.timers.run, broker.flush)
                    self._start(options, nursery)
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self.running = False
            self._ended.set()

    def _start(self, options: Options, nursery: trio.Nursery) -> None:
        broker = self.broker
        latency = random.Random(broker.commits.random())
        self.store = Store.open(
            self.path,
            notify=lambda fn: broker.timers.call_later(latency.uniform(0.0, _NOTIFY_S_MAX), fn) and None,
            options=_STORE,
        )
        broker.store = self.store
        self._watch_disk()
        self.sourcing = Sourcing()
        assert options.jetstream is not None
        self.js = JetStream(broker, self.store, options.jetstream, sourcing=self.sourcing)
        self.js.start()
        listener = LeafListener(broker.links, ConfigAuthenticator(options).leaf, nursery)

        boot = self.boots

        async def serve(stream: trio.abc.Stream, dialler: str) -> None:
            if not self.running or boot != self.boots:
                return  # dialled in the moment the power went
            nursery.start_soon(listener.serve_stream, stream, Peer(host=dialler, port=1), self.name)

        if not self.refuses_twins:
            broker.links.of(self.account).registry.__class__ = _RefusesNobody
        self.network.listen(self.name, serve)
        self.network.place(self.name, self.addresses)
        self._nursery = nursery
        self._leaf_remotes = LeafRemotes(
            broker.links, self.network.dialler(self.name, dict.fromkeys(self.other_hub, self.other_link))
        )
        self._leaf_remotes.start(nursery)
        broker.links.on_link_up(ACCOUNT, lambda link: self._link_up(link.state.peer_name))
        self.client = LocalClient(self)
        self.running = True
        broker.flush()

    async def crash(self, *, silent: bool) -> None:
        """The power goes: what was not committed is lost, nobody is told anything."""
        self.running = False
        self.network.power_off(self.name, silent=silent)
        self.store.crash()
        self._scope.cancel()
        await self._ended.wait()

    async def stop(self) -> None:
        await self.crash(silent=False)

    def back_up(self) -> None:
        """While it is down: copy its directory, as a backup of the appliance does."""
        assert not self.running
        self.backup = self.path.with_name(f"{self.name}.backup")
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.path, self.backup)

    def restore(self) -> None:
        """While it is down: put the backup back; without one, begin with an empty directory."""
        assert not self.running
        self.restored_at = trio.current_time()
        shutil.rmtree(self.path)
        if self.backup is None:
            self.path.mkdir()
        else:
            shutil.copytree(self.backup, self.path)

    # -- what can be done to it ------------------------------------------------------------------------------------

    def reload_remotes(self) -> None:
        """The configuration is reloaded with changed remotes: the link ends and is dialled anew."""
        self._remote_changes += 1
        self._leaf_remotes.update(self._remotes(), self._nursery)

    def set_disk_full(self, full: bool) -> None:
        self.disk_full = full

    def _watch_disk(self) -> None:
        """Stand between the store and its committer: on a full disk every group fails, and all that was built on it."""
        committer: Any = self.store._driver._committer  # type: ignore[attr-defined]
        whole, failures = committer.commit, committer._failure_propagation

        def commit(group: Sequence[Txn]) -> list[StoreError | None]:
            if not self.disk_full:
                return whole(group)  # type: ignore[no-any-return]
            results: list[StoreError | None] = []
            for txn in group:
                failure = failures.inherited(txn) or StoreError("full", "no space left on device")
                failures.fail(txn, failure)
                results.append(failure)
            return results

        committer.commit = commit

    async def request(self, words: str, body: Any = None) -> Any:
        """One request of the JetStream API and its decoded answer; None if none comes within ten seconds."""
        answers: list[bytes] = []
        done = trio.Event()

        def heard(payload: bytes) -> None:
            answers.append(payload)
            done.set()

        data = b"" if body is None else msgspec.json.encode(body)
        self.client.ask(f"$JS.API.{words}".encode(), data, heard)
        with trio.move_on_after(10):
            await done.wait()
        return msgspec.json.decode(answers[0]) if answers else None
