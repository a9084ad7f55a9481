"""What connections of clients have in common, whatever protocol they speak: login, account, end.

`ServedClient` is a session of a transport (`net/transport.py`) and a destination of the router. A subclass speaks the
protocol:

- It provides `start`, `received`, `deliver` and `fail`. `received` calls `log_in` with the peer's credentials.
- It reacts to the outcome of a login with `welcome` or `turned_away`, and then `go_on`.
- It may react to announcements to all clients (`info_changed`, `send_lame_duck`) and to a reload (`set_limits`,
  `reauthorized`, `trace_changed`). By itself a connection says nothing.
- The subscriptions of a protocol other than NATS's are `slow`: others are sent ready NATS frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from eyot_daemon.auth.login import WEBSOCKET, Deferred, Login, Peer
from eyot_daemon.client.context import ClientContext
from eyot_daemon.client.state import ClientState
from eyot_daemon.net.transport import Transport
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.retired import retire
from eyot_daemon.router.room import Room
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.timers import TimerHandle
from eyot_wire.info import ClientConnect
from eyot_wire.quoting import quoted

log = logging.getLogger("eyot.client")

#: Of how many subscriptions a closed connection is remembered.
CLOSED_SUBJECTS_MAX = 32
AUTHORIZATION_VIOLATION = "Authorization Violation"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
USER_EXPIRED = "User Authentication Expired"
STALE_CONNECTION = "Stale Connection"
MAX_CONNECTIONS = "maximum connections exceeded"
MAX_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"


class Registry(Protocol):
    """The owner of the list of connections."""

    def log_in(self, client: ServedClient, login: Login) -> bool:
        """Put an authenticated connection into its account. False: the connection was closed."""
        ...

    def refused(self, client: ServedClient) -> None:
        """Report a failed authentication."""
        ...

    def step_out(self, client: ServedClient) -> None:
        """Take a client that logs in once more out of the count of its account."""
        ...

    def forget(self, client: ServedClient) -> None:
        """Forget a closed connection."""
        ...


class ServedClient(ClientState):
    """A connection of a client. `connected`: its own credentials were accepted."""

    __slots__ = (
        "__weakref__",
        "_expiry",
        "_registry",
        "_room",
        "_timer",
        "account_name",
        "close_reason",
        "connected",
        "decision",
        "door",
        "expires_ns",
        "external",
        "last_in",
        "mqtt_client",
        "presented",
        "protocol",
        "stopped_ns",
        "subjects_at_close",
        "subs_at_close",
        "transport",
        "was_counted",
    )

    def __init__(self, clients: ClientContext, registry: Registry, transport: Transport, peer: Peer, cid: int) -> None:
        super().__init__(clients, peer, cid)
        self._registry = registry
        self.transport = transport
        self.account_name = ""  # stays when the account is left
        self.protocol = 0
        self.connected = False
        self.close_reason = ""
        self.last_in = clients.broker.clock.monotonic()
        self.stopped_ns = 0
        self.subs_at_close = 0
        #: closed while its account counted it
        self.was_counted = False
        self.subjects_at_close: tuple[bytes, ...] = ()
        self.presented: ClientConnect | None = None  # its credentials, for a later check
        self.external = False
        self.mqtt_client = ""  # the client id of MQTT
        #: when the login ends, in whole seconds (as nanoseconds since the epoch); 0: never
        self.expires_ns = 0
        self.decision: Deferred | None = None  # a pending authentication; meanwhile everything waits
        self.door: Gate | None = None  # where the peer waits for that
        self._expiry: TimerHandle | None = None
        self._timer: TimerHandle | None = None
        self._room: Room | None = None

    @property
    def room(self) -> Room:
        """Who waits until `out` is sent, or the connection has ended."""
        if self._room is None:
            self._room = Room()
        self.waited_for = True  # from now on `flush` sends, which tells them
        return self._room

    def _tell_room(self) -> None:
        self.waited_for = False
        if self._room:
            self._room.made()

    @property
    def log_id(self) -> str:
        """The kind and number of the connection in log lines, as nats-server writes them."""
        if self.peer.is_mqtt:
            return f"mid:{self.cid}"
        return f"{'wid' if self.peer.connection_type == WEBSOCKET else 'cid'}:{self.cid}"

    def __repr__(self) -> str:
        text = f"{self.peer.host}:{self.peer.port} - {self.log_id}"
        return f"{text} - {quoted(self.mqtt_client.encode())}" if self.mqtt_client else text

    @property
    def last_activity_ns(self) -> int:
        """Wall time of the last bytes from the peer."""
        clock = self.clients.broker.clock
        return clock.now_ns() - int((clock.monotonic() - self.last_in) * 1e9)

    # -- what a protocol provides ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: greet the peer if the protocol does, and set the clock for authentication."""
        raise NotImplementedError

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Handle the bytes of one read of the socket, all of them before the turn ends."""
        raise NotImplementedError

    def fail(self, text: str) -> None:
        """Tell the client why, in the words of `-ERR` or the protocol's own, and close."""
        raise NotImplementedError

    def welcome(self) -> None:
        """Go on after a successful login."""
        raise NotImplementedError

    def turned_away(self) -> None:
        """Answer a failed login, and close."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Handle what waited for the decision on a login; called after `welcome` and `turned_away`."""

    def info_changed(self) -> None:
        """Tell the client of changed options, where the protocol has words for that."""

    def send_lame_duck(self) -> None:
        """Ask the client to move to another server, where the protocol has words for that."""

    def set_limits(self, max_control_line: int, max_payload: int) -> None:
        """Apply changed limits of what the client may send."""

    def trace_changed(self) -> None:
        """Adapt to a protocol trace (`clients.trace`) that began, changed or ended."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer that were read and not dealt with yet."""
        return 0

    # -- life cycle ------------------------------------------------------------------------------------------------

    def move_to(self, transport: Transport) -> None:
        """Continue over another transport: TLS has begun."""
        self.transport = transport
        if self.account is not None:
            transport.admit(self.clients.max_payload_of(self))

    def lost(self, reason: str) -> None:
        """Handle the end of the transport."""
        self.close(reason, linger=False)

    def refill(self) -> bool:
        """Tell consumers that `out` was sent. Clients keep nothing back: return False."""
        self._tell_room()
        return False

    def slow_consumer(self, reason: str) -> None:
        """Close a client that does not read; nats-server sends it no error."""
        if self.closed:
            return
        log.info("%r - %s: %d bytes pending", self, reason, self.transport.backlog)
        self.clients.broker.slow_consumers += 1
        if self.account is not None:
            self.account.slow_consumers += 1
        self.close(reason, linger=False)

    def close(self, reason: str, *, linger: bool) -> None:
        """End the connection: subscriptions reach nobody from now on, `out` is sent if the peer may `linger`."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        self.stopped_ns = self.clients.broker.clock.now_ns()
        self.subs_at_close = len(self.subs)
        self.was_counted = self.account is not None
        self.subjects_at_close = tuple(sub.subject for sub in islice(self.subs.values(), CLOSED_SUBJECTS_MAX))
        if self._timer is not None:
            self._timer.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        if self.decision is not None:
            self.decision.abandoned = True
        self._leave()
        self._tell_room()
        self.transport.close(linger=linger)
        if self.door is not None:
            self.door.open()
        log.debug("%r - Client connection closed: %s", self, reason)
        self._registry.forget(self)

    def flush(self) -> None:
        self.dirty = False
        if self.out and not self.closed:
            self.transport.send()
            if self.waited_for and not self.transport.backlog:
                self._tell_room()  # all went at once: nothing is left whose end would tell

    # -- login -----------------------------------------------------------------------------------------------------

    def log_in(self, connect: ClientConnect) -> None:
        """Have credentials checked; `welcome` or `turned_away` follows, at once or in a later turn.

        The cookies of a WebSocket's upgrade fill in what `connect` leaves out. Nothing is read from the peer meanwhile.
        """
        cookies = self.peer.cookies
        if cookies is not None:
            connect.user = connect.user or cookies.user
            connect.password = connect.password or cookies.password
            connect.auth_token = connect.auth_token or cookies.token
            connect.jwt = connect.jwt or cookies.jwt
        self.presented = connect
        # an estimate until the first round trip
        self.rtt_s = max(self.clients.broker.clock.now_ns() - self.started_ns, 1) / 1e9
        authenticator = self.clients.authenticator_for(self.peer)
        decision = authenticator.client(connect, self.nonce, self.peer, self)
        if isinstance(decision, Deferred):
            self.decision = decision
            decision.when_done(self._decided)
            if self.decision is not None and not self.closed:
                self.wait_at_door(lambda: self.decision is not None)
        else:
            self._decided(decision)

    def wait_at_door(self, is_shut: Callable[[], bool]) -> None:
        """Stop reading the peer while `is_shut`; `open_door` lets it go on."""
        self.door = Gate(self.clients.broker.timers, is_shut)
        self.transport.hold(self.door)

    def open_door(self) -> None:
        """Read the peer again."""
        door, self.door = self.door, None
        if door is not None:
            door.open()

    def _decided(self, login: Login | None) -> None:
        self.decision = None
        self.open_door()
        if self.closed:
            return
        if login is None:
            user = self.presented.user if self.presented is not None else ""
            log.error("%r - authentication error%s", self, f' - User "{user}"' if user else "")
            if self.connected:
                self._registry.step_out(self)
                self.leave()
            self._registry.refused(self)
            self.turned_away()
            return
        if self._registry.log_in(self, login):
            self.connected = True
            self.welcome()
        self.go_on()

    def set_authentication_timer(self) -> None:
        """Close a peer that does not log in within the configured time; while its password is being checked, wait for that."""
        self.set_timer(self.clients.login_timeout_s(self.peer), self._authentication_timeout)

    def _authentication_timeout(self) -> None:
        if self.decision is not None and self.decision.at_work:
            self.set_authentication_timer()  # a slow processor needs seconds for what a password's hash costs
            return
        if self.decision is not None and self.decision.has_clock:
            return  # the credentials were in time
        self.fail(AUTHENTICATION_TIMEOUT)

    def set_timer(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Set the connection's one timer: authentication first, then what the protocol does at intervals."""
        self.cancel_timer()
        self._timer = self.clients.broker.timers.call_later(delay_s, fn)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- account -------------------------------------------------------------------------------------------------

    def join(self, account: Account) -> None:
        """Belong to `account` from now on."""
        self.account = account
        self.account_name = account.name
        account.connections.add(self)
        account.connections_total += 1

    def enter(self, account: Account, access: Access | None, user: str, max_payload: int) -> None:
        """Enter `account` after authentication; a change of account drops all subscriptions."""
        if account is not self.account:
            self._leave()
            self.join(account)
        if not self.connected:
            self.cancel_timer()  # it logged in in time
        self.transport.admit(max_payload)
        self.access = access
        self.user = user

    def leave(self) -> None:
        """Belong to no account any more, and have no name there."""
        self._leave()
        self.connected = False
        self.account_name = self.user = ""

    def _leave(self) -> None:
        retire(self.clients.broker.later_turns, self.subs.values())
        self.subs.clear()
        self.unreviewed.clear()
        if self.account is not None:
            self.account.connections.discard(self)
            self.account = None

    def reauthorized(self, access: Access | None) -> None:
        """Apply changed permissions after a reload; the subclass ends subscriptions that are no longer allowed."""
        self.access = access

    def expire_in(self, seconds: float) -> None:
        """Limit the login's duration, by the wall clock as a token does; 0: unlimited."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.expires_ns = 0
        if seconds:
            broker = self.clients.broker
            self.expires_ns = (broker.clock.now_ns() // 10**9 + int(seconds)) * 10**9
            self._expiry = broker.wall_timers.call_later(seconds, lambda: self.fail(USER_EXPIRED))
