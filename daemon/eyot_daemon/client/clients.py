"""All client connections of the server: what they share, how many there may be, and who was here lately.

A listener hands every new transport to `accept`; the `ClientConnection` it gets back is served by that transport. What
INFO says is made here, because most of it is the same for everybody.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable

import msgspec

from eyot_daemon.auth.login import WEBSOCKET, Authenticator, Login, Peer
from eyot_daemon.client import interest as client_interest
from eyot_daemon.client.connection import MAX_ACCOUNT_CONNECTIONS, MAX_CONNECTIONS, MAX_SUBSCRIPTIONS, ClientConnection
from eyot_daemon.client.trace import ClientTrace
from eyot_daemon.client.violations import ViolationLog
from eyot_daemon.config.options import Options
from eyot_daemon.net.transport import Transport, TransportLimits
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import CLIENT_PROTO, Broker
from eyot_daemon.version import API_LEVEL, VERSION
from eyot_wire.frames import encode_info
from eyot_wire.info import ServerInfo
from eyot_wire.native import Traffic
from eyot_wire.quoting import quoted

log = logging.getLogger("eyot.client")

#: How long the text of a nonce is, as nats-server's (11 random bytes in base64url).
NONCE_BYTES = 11


class ClosedClient(msgspec.Struct, frozen=True):
    """What is remembered of a connection that ended, for `/connz?state=closed`."""

    cid: int
    kind: str
    ip: str
    port: int
    started_ns: int
    last_activity_ns: int
    stopped_ns: int
    close_reason: str
    name: str
    lang: str
    version: str
    account: str
    user: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    rtt_s: float
    subscriptions: int = 0
    subjects: tuple[bytes, ...] = ()


class Clients:
    """The client connections of one broker."""

    def __init__(self, broker: Broker, authenticator: Authenticator, *, port: int = 0) -> None:
        self.broker = broker
        self.options = broker.options
        self.authenticator = authenticator
        self.websocket_authenticator: Authenticator | None = None  # None: the same
        self.websocket_port = 0  # known once that listener is bound
        self.port = port  # the port INFO names: known once the listener is bound
        self.connections: dict[int, ClientConnection] = {}
        self.closed: deque[ClosedClient] = deque(maxlen=max(0, self.options.max_closed_clients))
        self.limits = TransportLimits(self.options.max_pending, self.options.write_deadline_s)
        self.lame_duck = False
        self.trace = ClientTrace(self.options) if self.options.trace else None
        self.violations = ViolationLog(broker.clock)
        self.arrival_listeners: list[Callable[[ClientConnection], None]] = []
        self.departure_listeners: list[Callable[[ClientConnection], None]] = []
        self.refusal_listeners: list[Callable[[ClientConnection, str], None]] = []
        self._info: ServerInfo | None = None
        self._past = Traffic()  # of connections that have ended

    # -- coming and going ----------------------------------------------------------------------------------------

    def accept(self, transport: Transport, peer: Peer) -> ClientConnection:
        """A new connection: greeted with INFO, or with INFO and a refusal when there are too many."""
        client = ClientConnection(self, transport, peer, self.broker.next_cid())
        client.start()
        most = self.options.max_connections
        if most > 0 and len(self.connections) >= most:
            log.error("%r - maximum connections exceeded", client)
            client.fail(MAX_CONNECTIONS)
        else:
            self.connections[client.cid] = client
            self.broker.connections_total += 1
        return client

    def forget(self, client: ClientConnection) -> None:
        """The connection closed: kept only as a line of history."""
        if self.connections.pop(client.cid, None) is None:
            return
        _add(self._past, client)
        if client.account_name:
            for listener in self.departure_listeners:
                listener(client)
        self.closed.append(
            ClosedClient(
                cid=client.cid,
                kind=client.peer.connection_type,
                ip=client.peer.host,
                port=client.peer.port,
                started_ns=client.started_ns,
                last_activity_ns=client.last_activity_ns,
                stopped_ns=client.stopped_ns,
                close_reason=client.close_reason,
                name=client.name,
                lang=client.lang,
                version=client.version,
                account=client.account_name,
                user=client.user,
                in_msgs=client.in_msgs,
                out_msgs=client.out_msgs,
                in_bytes=client.in_bytes,
                out_bytes=client.out_bytes,
                rtt_s=client.rtt_s,
                subscriptions=client.subs_at_close,
                subjects=client.subjects_at_close,
            )
        )

    def traffic(self) -> Traffic:
        """What clients have sent and got since the start, leaf links left out."""
        total = Traffic()
        for one in (self._past, *self.connections.values()):
            _add(total, one)
        return total

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """The server stops: every connection is closed after it was offered what waits for it."""
        for client in tuple(self.connections.values()):
            client.close(reason, linger=True)
        self.broker.flush()

    def set_trace(self, options: Options) -> None:
        """Begin, change or end the protocol trace."""
        self.trace = ClientTrace(options) if options.trace else None
        for client in self.connections.values():
            client_interest.trace_changed(client)

    def refused(self, client: ClientConnection, reason: str) -> None:
        """A connection could not say who it is, in the words of `-ERR`."""
        for listener in self.refusal_listeners:
            listener(client, reason)

    # -- rules ---------------------------------------------------------------------------------------------------

    def log_in(self, client: ClientConnection, login: Login) -> bool:
        """Put an authenticated connection into its account. False: the account is full, the connection was closed."""
        account = self.broker.add_account(login.account)
        most = account.connections_max
        if account is not client.account and 0 <= most <= len(account.connections):
            client.fail(MAX_ACCOUNT_CONNECTIONS)
            return False
        permissions = login.permissions
        access = None if permissions is None or permissions.unrestricted else Access(permissions)
        client.external, client.token = login.external, login.token
        client.enter(account, access, login.user, self.max_payload_of(client, account))
        client.expire_in(login.expires_in_s)
        for listener in self.arrival_listeners:
            listener(client)
        return True

    def max_payload_of(self, client: ClientConnection, account: Account | None = None) -> int:
        """The largest message (header and payload, bytes) a client may send, in the account it is in or is to enter."""
        account = account or client.account
        limits = [self.options.max_payload]
        if account is not None:
            limits.append(account.payload_max)
        if client.token is not None:
            limits.append(client.token.grant.payload)
        return min(limit for limit in limits if limit >= 0)

    def may_add_subscription(self, client: ClientConnection, subject: bytes, sid: bytes) -> bool:
        """Keep a connection's subscriptions within the limits; says why not."""
        tokens_max = self.options.max_sub_tokens
        if tokens_max and subject.count(b".") >= tokens_max:
            client.send_error(f"Permissions Violation for Subscription to {quoted(subject)}, too many tokens")
            self.violations.subscribe(client, subject, b"", sid, " Too Many Tokens")
            return False
        limits = [self.options.max_subscriptions or -1]
        if client.account is not None:
            limits.append(client.account.subscriptions_max)
        if client.token is not None:
            limits.append(client.token.grant.subs)
        most = min((limit for limit in limits if limit >= 0), default=-1)
        if 0 <= most <= len(client.subs):
            client.send_error(MAX_SUBSCRIPTIONS)
            return False
        return True

    # -- INFO ----------------------------------------------------------------------------------------------------

    def new_nonce(self) -> str:
        """What a client signs with its nkey; "" when nobody needs it."""
        return secrets.token_urlsafe(NONCE_BYTES) if self.authenticator.wants_nonce else ""

    def authenticator_for(self, peer: Peer) -> Authenticator:
        """Who judges this connection: the WebSocket listener may have credentials of its own."""
        if peer.connection_type == WEBSOCKET and self.websocket_authenticator is not None:
            return self.websocket_authenticator
        return self.authenticator

    def info_line(self, client: ClientConnection) -> bytes:
        """INFO as the first line of a connection."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.nonce = client.nonce
        return encode_info(info)

    def connect_info_line(self, client: ClientConnection) -> bytes:
        """The asynchronous INFO after the first PONG: which account the connection is in."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.nonce = client.nonce
        info.connect_info = True
        if client.account is not None:
            info.remote_account = client.account.name
            info.acc_is_sys = client.account.is_system
        return encode_info(info)

    def send_lame_duck(self, client: ClientConnection) -> None:
        """Tell one client to look for another server."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.ldm = True
        client.queue_output(encode_info(info))

    def _common_info(self, client: ClientConnection) -> ServerInfo:
        if self._info is None:
            self._info = self._make_info(self.options)
        info = msgspec.structs.replace(self._info)
        if client.account is not None:
            info.max_payload = self.max_payload_of(client)
        if client.peer.connection_type == WEBSOCKET:
            self._as_websocket(info)
        return info

    def _as_websocket(self, info: ServerInfo) -> None:
        """What differs for clients of the WebSocket listener."""
        options = self.options.websocket
        assert options is not None
        info.host, info.port = advertised(options.advertise, options.host, self.websocket_port)
        info.tls_required, info.tls_available = options.tls is not None, False
        info.tls_verify = options.tls is not None and (options.tls.verify or options.tls.verify_and_map)
        if self.websocket_authenticator is not None:
            info.auth_required = self.websocket_authenticator.auth_required

    def _make_info(self, options: Options) -> ServerInfo:
        tls = options.tls
        host, port = advertised(options.client_advertise, options.host, self.port)
        return ServerInfo(
            server_id=self.broker.server_id,
            server_name=self.broker.server_name,
            version=VERSION,
            proto=CLIENT_PROTO,
            host=host,
            port=port,
            headers=not options.no_header_support,
            auth_required=self.authenticator.auth_required,
            tls_required=tls is not None and not options.allow_non_tls,
            tls_verify=tls is not None and (tls.verify or tls.verify_and_map),
            tls_available=tls is not None and options.allow_non_tls,
            max_payload=options.max_payload,
            jetstream=options.jetstream is not None,
            domain="" if options.jetstream is None else options.jetstream.domain,
            ldm=self.lame_duck,
            api_lvl=API_LEVEL,
        )

    def info_changed(self) -> None:
        """Options changed or lame duck began: INFO is made anew, clients that understand it are told."""
        self._info = None
        for client in self.connections.values():
            if client.protocol >= 1 and client.connected:
                client.queue_output(self.info_line(client))


def _add(total: Traffic, one: Traffic) -> None:
    total.in_msgs += one.in_msgs
    total.out_msgs += one.out_msgs
    total.in_bytes += one.in_bytes
    total.out_bytes += one.out_bytes


def advertised(advertise: str, host: str, port: int) -> tuple[str, int]:
    """Host and port that INFO names: the configured advertisement (its port may be missing), else the listener's."""
    if not advertise:
        return host, port
    named, separator, digits = advertise.rpartition(":")
    if not separator or advertise.endswith("]"):
        return advertise.strip("[]"), port
    number = int(digits)
    return named.strip("[]"), number if number > 0 else port
