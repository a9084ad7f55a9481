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

import msgspec

from eyot_daemon.auth.login import WEBSOCKET, Peer
from eyot_daemon.client import interest as client_interest
from eyot_daemon.client.close_reasons import close_reason
from eyot_daemon.client.context import ClientContext
from eyot_daemon.client.publish import publish
from eyot_daemon.client.served import AUTHORIZATION_VIOLATION, STALE_CONNECTION, Registry, ServedClient
from eyot_daemon.net.transport import INTERNAL_ERROR, Transport
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Origin, Subscription
from eyot_daemon.turn.backpressure import Gate
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
from eyot_wire.info import ServerInfo, decode, decode_connect
from eyot_wire.native import Publishes, detach_all
from eyot_wire.scanner import Scanner

log = logging.getLogger("eyot.client")

#: The first PING comes this soon, so that the round trip is known early; later ones follow every `ping_interval`.
FIRST_PING_S = 2.0
FIRST_PING_JITTER = 0.2
#: The round trip is measured this often, be the peer busy or not.
ROUND_TRIP_S = 3600.0
#: The most bytes kept from a client while it is authenticated again, or goes on in later turns.
HELD_BYTES_MAX = 4 * 1024 * 1024
#: The same for a peer that is not authenticated yet. Meanwhile a little is read every `HOLD_S`.
EARLY_BYTES_MAX = 48 * 1024
#: Operations of one client in one turn, consecutive publishes counting as one: 512 take 2 to 5 ms, and others wait meanwhile.
OPS_MAX = 512


class ClientConnection(ServedClient):
    """A client as the broker sees it."""

    __slots__ = (
        "_early",
        "_first_pong",
        "_held",
        "_held_bytes",
        "_pause",
        "_ping_sent",
        "_scanner",
        "pings_out",
    )

    def __init__(self, clients: ClientContext, registry: Registry, transport: Transport, peer: Peer, cid: int) -> None:
        options = clients.options
        super().__init__(clients, registry, transport, peer, cid)
        self.pings_out = 0
        self._early = bytearray()  # bytes after CONNECT from a peer that is not authenticated yet
        self._held: list[Op] = []
        self._held_bytes = 0
        #: where the peer waits while its operations go on in later turns
        self._pause: Gate | None = None
        self._ping_sent = -math.inf
        self._first_pong = False
        self._scanner = Scanner(
            "server", batches=True, max_control_line=options.max_control_line, max_payload=options.max_payload
        )

    def __repr__(self) -> str:
        text = f"{self.peer.host}:{self.peer.port} - {self.log_id}"
        described = ":".join(
            part for part in (f"v{self.version}" if self.version else "", self.lang, self.name) if part
        )
        if described:
            text += f' - "{described}"'
        return f'{text} - "{self.account_name}/user:{self.user}"' if self.user else text

    # -- life cycle ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Greet the peer with INFO and set the clock for authentication or the first PING."""
        log.debug("%r - Client connection created", self)
        self.queue_output(self.clients.info_line(self))
        clients = self.clients
        if clients.authenticator_for(self.peer).auth_required:
            self.set_authentication_timer()
        else:
            self.join(clients.broker.global_account)
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
            if self.decision is not None:
                self._early += data[at:]
                if len(self._early) > EARLY_BYTES_MAX:
                    self.fail(AUTHORIZATION_VIOLATION)
                elif self.door is not None:
                    self.transport.hold(self.door)
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
        if self.decision is None and not self._held:
            self._handle(ops)
        else:
            self._hold(ops)
            self._held_bytes += len(data)
            if self._pause is not None:
                self.transport.hold(self._pause)
            if self._held_bytes > HELD_BYTES_MAX:
                self._held_too_much()
        if failed is not None:
            self._finish()
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

    def fail(self, text: str) -> None:
        """Send `-ERR 'text'` and close."""
        if not self.closed:
            self.send_error(text)
            self.close(close_reason(text), linger=True)

    def lost(self, reason: str) -> None:
        """Handle the end of the transport, behind what came before it."""
        if reason != INTERNAL_ERROR:
            self._finish()
        super().lost(reason)

    def close(self, reason: str, *, linger: bool) -> None:
        """End the connection, and forget what waited for its login or for a later turn."""
        if not self.closed:
            self._held.clear()
            self._early = bytearray()
            super().close(reason, linger=linger)
            self._end_pause()

    # -- output --------------------------------------------------------------------------------------------------

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
        if sub in self.unreviewed:
            client_interest.review(self, sub)
            if not sub.active:
                return False
        access = self.access
        if access is not None:
            if sub.deny_filter and not access.may_receive(subject, sub.queue):
                return False
            if reply and access.replies is not None:
                access.replies.delivered(reply, self.clients.broker.clock.monotonic())
        return True

    # -- operations ----------------------------------------------------------------------------------------------

    def _handle(self, ops: list[Op], most: int = OPS_MAX) -> None:
        """Handle operations, those beyond `most` in later turns."""
        rest = ops[most:]
        if rest:
            ops = ops[:most]
        trace = self.clients.trace
        for index, op in enumerate(ops):
            if self.closed:
                return
            if self.decision is not None:
                self._hold(ops[index:] + rest)
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
        if rest and not self.closed:
            self._hold(rest)
            if self.decision is None:
                self._go_on_later()

    def _go_on_later(self) -> None:
        """Handle what is held in later turns; until then nothing is read from the peer."""
        if self._pause is None:
            self._pause = Gate(self.clients.broker.timers, lambda: bool(self._held) and not self.closed)
            self.transport.hold(self._pause)
        self.clients.broker.later_turns.add(self._handle_held)

    def _handle_held(self) -> None:
        try:
            if self.decision is None:  # else `go_on` comes
                held, self._held, self._held_bytes = self._held, [], 0
                self._handle(held)
                self._end_pause()
        except Exception:
            log.exception("connection failed")
            self.lost(INTERNAL_ERROR)

    def _end_pause(self) -> None:
        pause = self._pause
        if pause is not None and not pause.is_shut:
            self._pause = None
            pause.open()

    def _finish(self) -> None:
        """Handle what waits for later turns at once."""
        if self._held and self.decision is None:
            held, self._held, self._held_bytes = self._held, [], 0
            self._handle(held, len(held))

    def _held_too_much(self) -> None:
        if self.decision is None:
            self._finish()
        else:
            self.fail(AUTHORIZATION_VIOLATION)

    def _hold(self, ops: list[Op]) -> None:
        """Keep operations for later, copied out of the read buffer."""
        detach_all(ops)
        self._held += ops

    def _admit_unknown(self) -> bool:
        """Admit an operation before CONNECT where authentication is required, if `no_auth_user` applies."""
        login = self.clients.authenticator_for(self.peer).anonymous(self.peer)
        if login is None:
            self._registry.refused(self)
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
        self.headers = connect.headers and not self.clients.options.no_header_support
        if connect.account or connect.new_account:
            self.fail(AUTHORIZATION_VIOLATION)
            return
        self.no_responders = connect.no_responders
        self.log_in(connect)

    def welcome(self) -> None:
        """Answer CONNECT. What cannot be combined is refused only now: strangers learn nothing but that they are strangers."""
        if self.protocol not in (0, 1):
            self.fail("invalid client protocol")
        elif self.no_responders and not self.headers:
            self.fail("no responders requires headers support")
        elif self.verbose:
            self.queue_output(OK)

    def turned_away(self) -> None:
        self.fail(AUTHORIZATION_VIOLATION)

    def go_on(self) -> None:
        """Handle what came behind CONNECT."""
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._handle(held)
        early, self._early = self._early, bytearray()
        if early and not self.closed:
            self._received_early(bytes(early))
        self._end_pause()

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

    def enter(self, account: Account, access: Access | None, user: str, max_payload: int) -> None:
        """Enter `account` after authentication; a change of account drops all subscriptions."""
        super().enter(account, access, user, max_payload)
        self._scanner.max_payload = max_payload
        for sub in self.subs.values():
            sub.slow = client_interest.is_slow(self, sub)
        if not self.connected:
            self._set_first_ping()

    def reauthorized(self, access: Access | None) -> None:
        """Apply changed permissions: subscriptions that are no longer allowed end, and the client is informed."""
        super().reauthorized(access)
        client_interest.look_again(self)

    # -- what all clients are told -----------------------------------------------------------------------------------

    def info_changed(self) -> None:
        """Send INFO to a client that understands it behind the first."""
        if self.protocol >= 1 and self.connected:
            self.queue_output(self.clients.info_line(self))

    def send_lame_duck(self) -> None:
        self.queue_output(self.clients.lame_duck_line(self))

    def set_limits(self, max_control_line: int, max_payload: int) -> None:
        """Apply changed limits of frames."""
        self._scanner.max_control_line = max_control_line
        self._scanner.max_payload = max_payload

    def trace_changed(self) -> None:
        """Update the subscriptions: the trace decides the path of deliveries."""
        client_interest.trace_changed(self)

    # -- clocks --------------------------------------------------------------------------------------------------

    @property
    def _ping_interval_s(self) -> float:
        options = self.clients.options
        if options.websocket is not None and self.peer.connection_type == WEBSOCKET:
            return options.websocket.ping_interval_s or options.ping_interval_s
        return options.ping_interval_s

    def _set_first_ping(self) -> None:
        interval = self._ping_interval_s
        delay_s = min(FIRST_PING_S, interval) * (1 + FIRST_PING_JITTER * self.clients.broker.random())
        self.set_timer(delay_s, self._ping_timer)

    def _ping_timer(self) -> None:
        if not self._first_pong and self.transport.input_waits():
            # Client libraries take a PING before the answer to their own for a failed login, which is among unread bytes.
            self._set_first_ping()
            return
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
        self.set_timer(interval, self._ping_timer)
