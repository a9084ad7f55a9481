"""The turn, and the server in which it runs: what accounts and links know of the broker.

A turn is one entry from outside: a socket read, a timer, a completed commit, an HTTP request. Within a turn messages
only gather in the destinations' buffers. The turn ends with `flush`, which lets every destination with data send once.
Code that enters the broker from outside calls `flush` when done; nothing else is ever sent. Everything here belongs to
one thread, Trio's.
"""

import logging
import math
import os
import random
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from eyot_daemon.config.options import Options
from eyot_daemon.router.error_counts import ErrorCounts
from eyot_daemon.router.providers import Providers
from eyot_daemon.router.subscription import Flushing
from eyot_daemon.router.sync_control import SyncControl
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.later_turns import LaterTurns
from eyot_daemon.turn.readers import Readers
from eyot_daemon.turn.timers import Timers
from eyot_daemon.turn.wall_timers import WallTimers
from eyot_sync.link.state import LinkState
from eyot_wire.native import send_out
from eyot_wire.status import ReloadReport

log = logging.getLogger("eyot.broker")


class RecordedLink(Protocol):
    """A leaf connection as a destination with a record."""

    @property
    def state(self) -> LinkState: ...


class TurnStore(Protocol):
    """Where destinations hand in what they store (`Store`)."""

    def hold(self) -> None:
        """Keep what is handed in until `release`."""
        ...

    def release(self) -> None:
        """Begin to commit what was kept."""
        ...


class BrokerCore:
    """Options, identity, clock, randomness and the turn. `Broker` adds the accounts."""

    def __init__(self, options: Options, server_id: str, clock: Clock | None, rng: random.Random | None) -> None:
        self.options = options
        self.server_id = server_id or _random_server_id()
        self.server_name = self.options.server_name or self.server_id
        self.clock = clock or Clock()
        self.timers = Timers(self.clock)
        self.wall_timers = WallTimers(self.clock, self.timers)
        #: connections that were sent more small operations than a turn handles
        self.later_turns = LaterTurns(self.timers)
        self.readers = Readers(self)
        # For random choices (queue group members, samples, jitter): fast; foreseeing it gives no advantage.
        self.rng = rng or random.Random(secrets.randbits(64))
        #: for unpredictable names: inboxes, ids. Seeded in simulations only, and never used for credentials
        self.ids: random.Random = rng or secrets.SystemRandom()
        self.random: Callable[[], float] = self.rng.random
        self.started_ns = self.clock.now_ns()
        self.config_loaded_ns = self.started_ns
        self.reloads = ReloadReport(os.getpid())
        self._dirty: list[Flushing] = []
        #: what the streams of a turn store together; None: no JetStream
        self.turn_store: TurnStore | None = None
        self._stall_s = 0.0
        self._gate: Gate | None = None
        self.slow_consumers = 0
        self.stale_connections = 0
        self.stalled_clients = 0  # how often a client had to wait because another one reads slowly
        self.connections_total = 0
        self.connections_refused = 0  # beyond `max_connections`
        self.client_errors = ErrorCounts()
        self.sync = SyncControl(self.clock, self.options.eyot.sync)
        #: ports as they were bound: of "http", "https", "leafnodes", "websocket", "mqtt"
        self.bound: dict[str, int] = {}
        #: the `server` of events and answers
        self.server_info: Callable[[], dict[str, Any]] = lambda: {"name": self.server_name, "id": self.server_id}
        #: all leaf connections, and the records of all links, connected or not; `Broker` knows them
        self.leaf_connections: Callable[[], Iterable[RecordedLink]] = tuple
        self.link_states: Callable[[], Iterable[LinkState]] = tuple
        self.providers = Providers()
        self._next_cid = 0

    @property
    def cluster(self) -> str:
        """Return the name of this server's cluster, "" for none."""
        return self.cluster_in(self.options)

    def cluster_in(self, options: Options) -> str:
        """Return `cluster` with other options. As in nats-server, a server with remotes is called after itself otherwise."""
        return options.cluster_name or (self.server_name if options.leafnodes.remotes else "")

    def next_cid(self) -> int:
        """Return a new connection id, shared by clients and leaf links as in nats-server; starts at 1."""
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
        store = self.turn_store if len(self._dirty) > 1 else None
        if store is None:
            self._flush_all()
            return
        store.hold()
        try:
            self._flush_all()
        finally:
            store.release()

    def _flush_all(self) -> None:
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            at = send_out(dirty, 0)
            while at < len(dirty):
                try:
                    dirty[at].flush()
                except Exception:
                    # A failing destination must not prevent the others from sending.
                    log.exception("flush of %r failed", dirty[at])
                at = send_out(dirty, at + 1)

    def ask_to_stall(self, seconds: float) -> None:
        """Pause the publisher of this turn before its next read: a destination is far behind."""
        if not self.options.no_fast_producer_stall:
            self._stall_s = max(self._stall_s, seconds)

    def take_stall_s(self) -> float:
        """Return and reset the pause of the connection whose turn just ended."""
        stall_s, self._stall_s = self._stall_s, 0.0
        if stall_s:
            self.stalled_clients += 1
        return stall_s

    def hold_back(self, gate: Gate) -> None:
        """Pause the publisher of this turn at a gate: a destination has accepted more than it can process."""
        self._gate = gate

    def take_gate(self) -> Gate | None:
        """Return and reset the gate for the connection whose turn just ended; None: no gate."""
        gate, self._gate = self._gate, None
        return gate

    def end_own_turn(self) -> None:
        """End a turn without a read connection: nothing is paused."""
        self.flush()
        self._stall_s, self._gate = 0.0, None

    def due_in_s(self) -> float:
        """Return the time until the next timer is due; infinity without one."""
        deadline = self.timers.next_deadline
        return math.inf if deadline is None else deadline - self.clock.monotonic()


def _random_server_id() -> str:
    """Return a server id of nats-server's form (56 characters starting with N), for brokers without a given one."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return "N" + "".join(secrets.choice(alphabet) for _ in range(55))
