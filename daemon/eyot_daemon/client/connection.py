"""One client connection: nats-server's client protocol as a state machine without I/O.

Bytes arrive in `received`, output gathers in `out`, and the transport sends at the end of the turn. A
`ClientConnection` is a `Destination` of its own subscriptions and the `Origin` of what it publishes
(client/publish.py).

Errors follow nats-server: some send `-ERR '...'` and keep the connection (permissions, invalid subjects, too many
subscriptions), some send it and close, malformed arguments and bad JSON close without a word.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import islice
from typing import Protocol

import msgspec

from eyot_daemon.auth.login import WEBSOCKET, Deferred, Login, Peer
from eyot_daemon.client import interest as client_interest
from eyot_daemon.client.close_reasons import close_reason
from eyot_daemon.client.context import ClientContext
from eyot_daemon.client.publish import publish
from eyot_daemon.client.state import ClientState
from eyot_daemon.net.transport import Transport
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Origin, Subscription
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.timers import TimerHandle
from eyot_wire.frames import (
    MAX_PAYLOAD,
    OK,
    PING,
    PONG,
    Connect,
    Err,
    Info,
    Op,
    Ping,
    Pong,
    ProtocolError,
    Sub,
    Unsub,
    encode_msg,
)
from eyot_wire.info import ClientConnect, ServerInfo, decode, decode_connect
from eyot_wire.native import Publishes
from eyot_wire.scanner import Scanner

log = logging.getLogger("eyot.client")

#: Of how many subscriptions a closed connection is remembered.
CLOSED_SUBJECTS_MAX = 32
AUTHORIZATION_VIOLATION = "Authorization Violation"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
USER_EXPIRED = "User Authentication Expired"
STALE_CONNECTION = "Stale Connection"
MAX_CONNECTIONS = "maximum connections exceeded"
MAX_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"

#: The first PING comes this soon, so that the round trip is known early; later ones follow every `ping_interval`.
FIRST_PING_S = 2.0
FIRST_PING_JITTER = 0.2
#: The round trip is measured this often, be the peer busy or not.
ROUND_TRIP_S = 3600.0
#: The most bytes kept from a client while it is authenticated again.
HELD_BYTES_MAX = 4 * 1024 * 1024
#: The same for a peer that is not authenticated yet. Meanwhile a little is read every `HOLD_S`.
EARLY_BYTES_MAX = 48 * 1024


class Registry(Protocol):
    """The owner of the list of connections."""

    def log_in(self, client: ClientConnection, login: Login) -> bool:
        """Put an authenticated connection into its account. False: the connection was closed."""
        ...

    def refused(self, client: ClientConnection, reason: str) -> None:
        """Report a failed authentication, in the words of `-ERR`."""
        ...

    def forget(self, client: ClientConnection) -> None:
        """Forget a closed connection."""
        ...


class ClientConnection(ClientState):
    """A client as the broker sees it."""

    __slots__ = (
        "__weakref__",
        "_decision",
        "_door",
        "_early",
        "_expiry",
        "_first_pong",
        "_held",
        "_held_bytes",
        "_ping_sent",
        "_registry",
        "_scanner",
        "_timer",
        "account_name",
        "close_reason",
        "connected",
        "expires_ns",
        "external",
        "last_in",
        "pings_out",
        "presented",
        "protocol",
        "stopped_ns",
        "subjects_at_close",
        "subs_at_close",
        "transport",
    )

    def __init__(self, clients: ClientContext, registry: Registry, transport: Transport, peer: Peer, cid: int) -> None:
        broker = clients.broker
        options = clients.options
        super().__init__(clients, peer, cid)
        self._registry = registry
        self.transport = transport
        self.account_name = ""  # stays when the account is left
        self.protocol = 0
        self.connected = False
        self.close_reason = ""
        self.pings_out = 0
        self.last_in = broker.clock.monotonic()
        self.stopped_ns = 0
        self.subs_at_close = 0
        self.subjects_at_close: tuple[bytes, ...] = ()
        self.presented: ClientConnect | None = None  # its CONNECT, for a later check of its credentials
        self.external = False
        self._expiry: TimerHandle | None = None
        #: when the login ends, in whole seconds (as nanoseconds since the epoch); 0: never
        self.expires_ns = 0
        self._decision: Deferred | None = None  # a pending authentication; meanwhile everything waits
        self._door: Gate | None = None  # where the peer waits for that
        self._early = bytearray()  # bytes after CONNECT from a peer that is not authenticated yet
        self._held: list[Op] = []
        self._held_bytes = 0
        self._ping_sent = -math.inf
        self._first_pong = False
        self._scanner = Scanner(
            "server", batches=True, max_control_line=options.max_control_line, max_payload=options.max_payload
        )
        self._timer: TimerHandle | None = None

    def __repr__(self) -> str:
        text = f"{self.peer.host}:{self.peer.port} - {'wid' if self.peer.connection_type == WEBSOCKET else 'cid'}:{self.cid}"
        described = ":".join(
            part for part in (f"v{self.version}" if self.version else "", self.lang, self.name) if part
        )
        if described:
            text += f' - "{described}"'
        return f'{text} - "{self.account_name}/user:{self.user}"' if self.user else text

    @property
    def last_activity_ns(self) -> int:
        """Wall time of the last bytes from the peer."""
        clock = self.clients.broker.clock
        return clock.now_ns() - int((clock.monotonic() - self.last_in) * 1e9)

    # -- life cycle ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Greet the peer with INFO and set the clock for authentication or the first PING."""
        log.debug("%r - Client connection created", self)
        self.queue_output(self.clients.info_line(self))
        clients = self.clients
        if clients.authenticator_for(self.peer).auth_required:
            self._set_timer(clients.options.authorization.timeout_s, self._authentication_timeout)
        else:
            self._join(clients.broker.global_account)
            self.transport.admit(clients.options.max_payload)
            self._set_first_ping()

    def move_to(self, transport: Transport) -> None:
        """Continue over another transport: TLS has begun."""
        self.transport = transport
        if self.account is not None:
            transport.admit(self._scanner.max_payload)

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Handle the bytes of one read of the socket, all of them before the turn ends."""
        if self.closed:
            return
        self.last_in = self.clients.broker.clock.monotonic()
        if self.account is None:
            self._received_early(bytes(data))
        else:
            self._scan(data)

    def _received_early(self, data: bytes) -> None:
        """Process bytes of an unauthenticated peer: only CONNECT is handled, and what follows waits for the result."""
        at = 0
        while at < len(data) and not self.closed:
            if self.account is not None:
                self._scan(data[at:])
                return
            if self._decision is not None:
                self._early += data[at:]
                if len(self._early) > EARLY_BYTES_MAX:
                    self.fail(AUTHORIZATION_VIOLATION)
                elif self._door is not None:
                    self.transport.hold(self._door)
                return
            if not self._scanner.pending and data[at] not in b"Cc":
                self._admit_unknown()
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._scan(data[at:end])
            at = end

    def _scan(self, data: bytes | bytearray | memoryview) -> None:
        failed: tuple[str, str] | None = None  # not the error: that holds this frame, and all it was sent
        try:
            ops = self._scanner.feed(data)
        except ProtocolError as error:
            failed, ops = (error.text, error.detail), error.ops
        if self._decision is None:
            self._handle(ops)
        else:
            self._hold(ops)
            self._held_bytes += len(data)
            if self._held_bytes > HELD_BYTES_MAX:
                self.fail(AUTHORIZATION_VIOLATION)
        if failed is not None and not self.closed:
            text, detail = failed
            if text:
                self.send_error(text)
            parsing = "" if text == MAX_PAYLOAD else "Client parser ERROR: "
            log.error("%r - %s%s", self, parsing, detail)
            self.close(close_reason(text), linger=True)

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer that were read and not dealt with yet."""
        return self._scanner.pending + len(self._early) + self._held_bytes

    def lost(self, reason: str) -> None:
        """Handle the end of the transport."""
        self.close(reason, linger=False)

    def refill(self) -> bool:
        """Clients keep nothing back: all there is to send is in `out`."""
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

    def fail(self, text: str) -> None:
        """Send `-ERR 'text'` and close."""
        if not self.closed:
            self.send_error(text)
            self.close(close_reason(text), linger=True)

    def close(self, reason: str, *, linger: bool) -> None:
        """End the connection: subscriptions go at once, `out` is sent if the peer may `linger`."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        self.stopped_ns = self.clients.broker.clock.now_ns()
        self.subs_at_close = len(self.subs)
        self.subjects_at_close = tuple(sub.subject for sub in islice(self.subs.values(), CLOSED_SUBJECTS_MAX))
        if self._timer is not None:
            self._timer.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._decision is not None:
            self._decision.abandoned = True
            self._held.clear()
        self._early = bytearray()
        self._leave()
        self.transport.close(linger=linger)
        if self._door is not None:
            self._door.open()
        log.debug("%r - Client connection closed: %s", self, reason)
        self._registry.forget(self)

    # -- output --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.dirty = False
        if self.out and not self.closed:
            self.transport.send()

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Deliver one message to one of this client's subscriptions; see `Destination.deliver`."""
        if self.closed:
            return False
        if sub.slow and not self._let_through(sub, subject, reply, origin):
            return False
        self.queue_output(encode_msg(subject, sub.sid, reply, header if self.headers else b"", payload))
        self.out_msgs += 1
        self.out_bytes += len(header) + len(payload)
        sub.delivered += 1
        if sub.max_msgs and sub.delivered >= sub.max_msgs:
            client_interest.remove(self, sub)
        return True

    def _let_through(self, sub: Subscription, subject: bytes, reply: bytes, origin: Origin | None) -> bool:
        if origin is self and not self.echo:
            return False
        access = self.access
        if access is not None:
            if sub.deny_filter and not access.may_receive(subject, sub.queue):
                return False
            if reply and access.replies is not None:
                access.replies.delivered(reply, self.clients.broker.clock.monotonic())
        return True

    # -- operations ----------------------------------------------------------------------------------------------

    def _handle(self, ops: list[Op]) -> None:
        trace = self.clients.trace
        for index, op in enumerate(ops):
            if self.closed:
                return
            if self._decision is not None:
                self._hold(ops[index:])
                return
            if trace is not None:
                trace.received(self, op)
            if type(op) is Publishes:
                if self.account is not None or self._admit_unknown():
                    publish(self, op)
            elif type(op) is Connect:
                self._connect(op.json)
            elif self.account is None and not self._admit_unknown():
                return
            elif type(op) is Sub:
                client_interest.subscribe(self, op)
            elif type(op) is Unsub:
                client_interest.unsubscribe(self, op)
            elif type(op) is Ping:
                self._ping()
            elif type(op) is Pong:
                self._pong()
            elif type(op) is Err:
                # Only servers send -ERR; nats-server closes a client that does.
                self.close("Client Error", linger=True)
            elif type(op) is Info:
                self._told_about_itself(op.json)

    def _hold(self, ops: list[Op]) -> None:
        """Keep operations for later, copied out of the read buffer."""
        for op in ops:
            if type(op) is Publishes:
                op.detach()
        self._held += ops

    def _admit_unknown(self) -> bool:
        """Admit an operation before CONNECT where authentication is required, if `no_auth_user` applies."""
        login = self.clients.authenticator_for(self.peer).anonymous(self.peer)
        if login is None:
            self.fail(AUTHORIZATION_VIOLATION)
            return False
        return self._registry.log_in(self, login)

    def _told_about_itself(self, json: bytes) -> None:
        """INFO is a server's word: of a client, nats-server passes it over as long as it can be read."""
        try:
            decode(json, ServerInfo)
        except msgspec.DecodeError:
            self.close("Protocol Violation", linger=True)

    def _connect(self, json: bytes) -> None:
        try:
            connect = decode_connect(json, self.presented)
        except msgspec.DecodeError:
            self.close("Protocol Violation", linger=True)
            return
        self.verbose = connect.verbose
        self.pedantic = connect.pedantic
        self.echo = connect.echo
        self.name = connect.name
        self.lang = connect.lang
        self.version = connect.version
        self.protocol = connect.protocol
        if connect.protocol not in (0, 1):
            self.fail("invalid client protocol")
            return
        self.headers = connect.headers and not self.clients.options.no_header_support
        if connect.account:
            self.fail(AUTHORIZATION_VIOLATION)
            return
        if connect.no_responders and not self.headers:
            self.fail("no responders requires headers support")
            return
        self.no_responders = connect.no_responders
        cookies = self.peer.cookies
        if cookies is not None:
            connect.user = connect.user or cookies.user
            connect.password = connect.password or cookies.password
            connect.auth_token = connect.auth_token or cookies.token
            connect.jwt = connect.jwt or cookies.jwt
        self.presented = connect
        # an estimate until the first PONG
        self.rtt_s = max(self.clients.broker.clock.now_ns() - self.started_ns, 1) / 1e9
        authenticator = self.clients.authenticator_for(self.peer)
        decision = authenticator.client(connect, self.nonce, self.peer, self)
        if isinstance(decision, Deferred):
            self._decision = decision
            decision.when_done(self._decided)
            if self._decision is not None and not self.closed:
                self._wait_for_decision()
        else:
            self._decided(decision)

    def _wait_for_decision(self) -> None:
        """Stop reading the peer until the decision."""
        self._door = Gate(self.clients.broker.timers, lambda: self._decision is not None)
        self.transport.hold(self._door)

    def _decided(self, login: Login | None) -> None:
        self._decision = None
        door, self._door = self._door, None
        if door is not None:
            door.open()
        if self.closed:
            return
        if login is None:
            user = self.presented.user if self.presented is not None else ""
            log.error("%r - authentication error%s", self, f' - User "{user}"' if user else "")
            self._registry.refused(self, AUTHORIZATION_VIOLATION)
            self.fail(AUTHORIZATION_VIOLATION)
            return
        if self._registry.log_in(self, login):
            self.connected = True
            if self.verbose:
                self.queue_output(OK)
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._handle(held)
        early, self._early = self._early, bytearray()
        if early and not self.closed:
            self._received_early(bytes(early))

    def _ping(self) -> None:
        self.queue_output(PONG)
        if not self._first_pong:
            self._first_pong = True
            if self.protocol >= 1 and self.account is not None:
                self.queue_output(self.clients.connect_info_line(self))

    def _pong(self) -> None:
        if self.pings_out:
            self.rtt_s = max(self.last_in - self._ping_sent, 1e-9)  # 0 stands for unknown
        self.pings_out = 0

    # -- account -------------------------------------------------------------------------------------------------

    def _join(self, account: Account) -> None:
        self.account = account
        self.account_name = account.name
        account.connections.add(self)
        account.connections_total += 1

    def enter(self, account: Account, access: Access | None, user: str, max_payload: int) -> None:
        """Enter `account` after authentication; a change of account drops all subscriptions."""
        if account is not self.account:
            self._leave()
            self._join(account)
        self.transport.admit(max_payload)
        self.access = access
        self.user = user
        self._scanner.max_payload = max_payload
        for sub in self.subs.values():
            sub.slow = client_interest.is_slow(self, sub)
        if not self.connected:
            self._set_first_ping()

    def _leave(self) -> None:
        for sub in tuple(self.subs.values()):
            sub.account.unsubscribe(sub)
        self.subs.clear()
        if self.account is not None:
            self.account.connections.discard(self)
            self.account = None

    # -- clocks --------------------------------------------------------------------------------------------------

    def _set_timer(self, delay_s: float, fn: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clients.broker.timers.call_later(delay_s, fn)

    @property
    def _ping_interval_s(self) -> float:
        options = self.clients.options
        if options.websocket is not None and self.peer.connection_type == WEBSOCKET:
            return options.websocket.ping_interval_s or options.ping_interval_s
        return options.ping_interval_s

    def _set_first_ping(self) -> None:
        interval = self._ping_interval_s
        delay_s = min(FIRST_PING_S, interval) * (1 + FIRST_PING_JITTER * self.clients.broker.random())
        self._set_timer(delay_s, self._ping_timer)

    def _authentication_timeout(self) -> None:
        self._registry.refused(self, AUTHENTICATION_TIMEOUT)
        self.fail(AUTHENTICATION_TIMEOUT)

    def reauthorized(self, access: Access | None) -> None:
        """Apply changed permissions after a reload: subscriptions that are no longer allowed end, and the client is informed."""
        self.access = access
        client_interest.look_again(self)

    def expire_in(self, seconds: float) -> None:
        """Limit the login's duration; 0: unlimited."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.expires_ns = 0
        if seconds:
            self.expires_ns = (self.clients.broker.clock.now_ns() // 10**9 + int(seconds)) * 10**9
            self._expiry = self.clients.broker.timers.call_later(seconds, lambda: self.fail(USER_EXPIRED))

    def set_scan_limits(self, max_control_line: int, max_payload: int) -> None:
        """Apply a reload's limits of frames."""
        self._scanner.max_control_line = max_control_line
        self._scanner.max_payload = max_payload

    def _ping_timer(self) -> None:
        options = self.clients.options
        now = self.clients.broker.clock.monotonic()
        interval = self._ping_interval_s
        if now - self.last_in >= interval or now - self._ping_sent > ROUND_TRIP_S:
            if self.pings_out < options.ping_max:
                self.pings_out += 1
                self._ping_sent = now
                self.queue_output(PING)
            elif not self.transport.input_waits():  # otherwise this process lags: the answer may be among unread bytes
                self.clients.broker.stale_connections += 1
                self.fail(STALE_CONNECTION)
                return
        self._set_timer(interval, self._ping_timer)
