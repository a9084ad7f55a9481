"""The broker: its accounts, its clock and timers, and the turn.

A turn is one entry from outside: a socket read, a timer, a commit that completed, an HTTP request. Within a turn
messages are only gathered in the destinations' buffers; the turn ends with `flush`, which gives every destination that
got something one chance to send. Whoever enters the broker from outside calls `flush` when done; nothing else is ever
sent. Everything here belongs to one thread, Trio's.
"""

import logging
import math
import os
import random
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.options import Options
from eyot_daemon.router.account import Account
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.router.providers import Providers
from eyot_daemon.router.subscription import Flushing
from eyot_daemon.router.sync_control import SyncControl
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.readers import Readers
from eyot_daemon.turn.timers import Timers
from eyot_wire.status import ReloadReport

log = logging.getLogger("eyot.broker")

#: INFO's `proto`: asynchronous INFO is understood.
CLIENT_PROTO = 1


class Broker:
    """The daemon's heart. Built by the composition root, which hands in options, clock and randomness."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        server_id: str = "",
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.options = options or Options()
        self.server_id = server_id or _random_server_id()
        self.server_name = self.options.server_name or self.server_id
        self.clock = clock or Clock()
        self.timers = Timers(self.clock)
        self.readers = Readers(self)
        # For chances (members of a queue group, samples, jitter): fast, and of no use to who foresees them.
        self.rng = rng or random.Random(secrets.randbits(64))
        #: for names that nobody else shall foresee: inboxes, ids. Seeded in simulations alone, and never of what logs anybody in.
        self.ids: random.Random = rng or secrets.SystemRandom()
        self.random: Callable[[], float] = self.rng.random
        self.started_ns = self.clock.now_ns()
        self.config_loaded_ns = self.started_ns
        self.reloads = ReloadReport(os.getpid())
        self._dirty: list[Flushing] = []
        self._stall_s = 0.0
        self._gate: Gate | None = None
        self.accounts: dict[str, Account] = {}
        #: told of every account made from now on
        self.account_listeners: list[Callable[[Account], None]] = []
        self.global_account = self.add_account(GLOBAL_ACCOUNT)
        self.system_account: Account | None = None
        if self.options.system_account:
            self.system_account = self.add_account(self.options.system_account)
            self.system_account.is_system = True
        self.slow_consumers = 0
        self.stale_connections = 0
        self.stalled_clients = 0  # how often one had to wait because somebody else reads slowly
        self.connections_total = 0
        self.sync = SyncControl(self.clock, self.options.eyot.sync)
        self.links = LeafLinks(self)
        self.providers = Providers()
        #: ports as they were bound: of "http", "https", "leafnodes", "websocket"
        self.bound: dict[str, int] = {}
        #: the `server` of events and answers
        self.server_info: Callable[[], dict[str, Any]] = lambda: {"name": self.server_name, "id": self.server_id}
        self._next_cid = 0

    def add_account(self, name: str) -> Account:
        """The account of that name, made if it is not there yet."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, self)
            for listener in self.account_listeners:
                listener(account)
        return account

    def next_cid(self) -> int:
        """A new connection id, shared by clients and leaf links as in nats-server; starts at 1."""
        self._next_cid += 1
        return self._next_cid

    def mark_dirty(self, dest: Flushing) -> None:
        """`dest` has something to send: its `flush` runs at the end of this turn. Destinations call this once a turn."""
        self._dirty.append(dest)

    def flush(self) -> None:
        """End the turn: let every destination that got something send it.

        A destination that fails to send closes itself, which may mark others dirty (advisories, interest): they are
        flushed too.
        """
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for dest in dirty:
                try:
                    dest.flush()
                except Exception:
                    # One broken destination must not keep what the others have to send.
                    log.exception("flush of %r failed", dest)

    def ask_to_stall(self, seconds: float) -> None:
        """A destination of this turn is far behind: whoever publishes shall wait a little before it reads on."""
        if not self.options.no_fast_producer_stall:
            self._stall_s = max(self._stall_s, seconds)

    def take_stall_s(self) -> float:
        """How long the connection whose turn just ended shall wait before its next read."""
        stall_s, self._stall_s = self._stall_s, 0.0
        if stall_s:
            self.stalled_clients += 1
        return stall_s

    def hold_back(self, gate: Gate) -> None:
        """A destination of this turn has taken in more than it can deal with: whoever published shall wait at its gate."""
        self._gate = gate

    def take_gate(self) -> Gate | None:
        """Where the connection whose turn just ended shall wait before its next read; None: nowhere."""
        gate, self._gate = self._gate, None
        return gate

    def end_own_turn(self) -> None:
        """End a turn in which no connection was read: nobody waits for what it did."""
        self.flush()
        self._stall_s, self._gate = 0.0, None

    def due_in_s(self) -> float:
        """How long until the next timer falls due; infinity when there is none."""
        deadline = self.timers.next_deadline
        return math.inf if deadline is None else deadline - self.clock.monotonic()

    # messages and payload bytes over all clients and leaf links

    @property
    def in_msgs(self) -> int:
        return sum(account.in_msgs for account in self.accounts.values())

    @property
    def in_bytes(self) -> int:
        return sum(account.in_bytes for account in self.accounts.values())

    @property
    def out_msgs(self) -> int:
        return sum(account.out_msgs for account in self.accounts.values())

    @property
    def out_bytes(self) -> int:
        return sum(account.out_bytes for account in self.accounts.values())

    @property
    def subscriptions(self) -> int:
        """Subscriptions over all accounts."""
        return sum(len(account.sublist) for account in self.accounts.values())

    def each_account(self) -> Iterator[Account]:
        return iter(self.accounts.values())


def _random_server_id() -> str:
    """A server id of nats-server's form (56 characters starting with N) for brokers that are given none."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return "N" + "".join(secrets.choice(alphabet) for _ in range(55))
