"""All client connections of the server: shared data, limits, and the history of closed connections.

A listener passes every new transport to `accept`, and the transport serves the returned `ClientConnection`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

from eyot_daemon.auth.login import Authenticator, Login, Peer
from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.client.context import ClientContext
from eyot_daemon.client.served import MAX_ACCOUNT_CONNECTIONS, MAX_CONNECTIONS, Registry, ServedClient
from eyot_daemon.client.trace import ClientTrace
from eyot_daemon.config.options import Options
from eyot_daemon.net.transport import Transport, TransportLimits
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_wire.native import Traffic

log = logging.getLogger("eyot.client")

C = TypeVar("C", bound=ServedClient)


class ClosedClient(msgspec.Struct, frozen=True):
    """A closed connection, for `/connz?state=closed`."""

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
    jwt: str = ""  # empty for a bearer token, which is equivalent to a password
    issuer_key: str = ""
    tags: tuple[str, ...] = ()
    mqtt_client: str = ""


class Clients(ClientContext):
    """The client connections of one broker."""

    def __init__(self, broker: Broker, authenticator: Authenticator, *, port: int = 0) -> None:
        super().__init__(broker, authenticator, port)
        self.connections: dict[int, ServedClient] = {}
        self.closed: deque[ClosedClient] = deque(maxlen=max(0, self.options.max_closed_clients))
        self.limits = TransportLimits(
            self.options.max_pending,
            self.options.write_deadline_s,
            max_pending_total=self.options.eyot.max_pending_total,
        )
        self.arrival_listeners: list[Callable[[ServedClient], None]] = []
        self.departure_listeners: list[Callable[[ServedClient], None]] = []
        self.refusal_listeners: list[Callable[[ServedClient], None]] = []
        #: told of accounts that a client has left to log in once more
        self.count_listeners: list[Callable[[Account], None]] = []
        self._past = Traffic()  # of connections that have ended

    # -- coming and going ----------------------------------------------------------------------------------------

    def accept(self, transport: Transport, peer: Peer) -> ClientConnection:
        """Return a new connection, which was sent INFO, or INFO and a refusal at the limit."""
        return self.accept_as(ClientConnection, transport, peer)

    def accept_as(
        self, make: Callable[[ClientContext, Registry, Transport, Peer, int], C], transport: Transport, peer: Peer
    ) -> C:
        """Return a new connection that `make` made for its protocol; at the limit it is refused."""
        client = make(self, self, transport, peer, self.broker.next_cid())
        client.start()
        if len(self.connections) >= self.options.max_connections:  # 0 or less: nobody, as in nats-server
            log.error("%r - maximum connections exceeded", client)
            self.broker.connections_refused += 1
            client.fail(MAX_CONNECTIONS)
        else:
            self.connections[client.cid] = client
            self.broker.connections_total += 1
        return client

    def forget(self, client: ServedClient) -> None:
        """Forget a closed connection, except for its line of history."""
        if self.connections.pop(client.cid, None) is None:
            return
        _add(self._past, client)
        for listener in self.departure_listeners:
            listener(client)
        token = client.token
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
                jwt="" if token is None or token.grant.bearer_token else token.text,
                issuer_key="" if token is None else token.claims.iss,
                tags=() if token is None else tuple(token.claims.all_tags),
                mqtt_client=client.mqtt_client,
            )
        )

    def traffic(self) -> Traffic:
        """Return the totals of client traffic since the start, without leaf links."""
        total = Traffic()
        for one in (self._past, *self.connections.values()):
            _add(total, one)
        return total

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """Close every connection at shutdown, after an attempt to send its pending data."""
        for client in tuple(self.connections.values()):
            client.close(reason, linger=True)
        self.broker.flush()

    def set_trace(self, options: Options) -> None:
        """Begin, change or end the protocol trace."""
        self.trace = ClientTrace(options) if options.trace else None
        for client in self.connections.values():
            client.trace_changed()

    def refused(self, client: ServedClient) -> None:
        """Record a failed authentication."""
        for listener in self.refusal_listeners:
            listener(client)

    def step_out(self, client: ServedClient) -> None:
        """Take a client that logs in once more out of the count of its account."""
        account = client.account
        if account is not None:
            account.connections.discard(client)
            for listener in self.count_listeners:
                listener(account)

    # -- rules ---------------------------------------------------------------------------------------------------

    def log_in(self, client: ServedClient, login: Login) -> bool:
        """Put an authenticated connection into its account. False: the account is full, the connection was closed."""
        account = self.broker.add_account(login.account)
        if client.connected:
            self.step_out(client)
        most = account.connections_max
        if client not in account.connections and 0 <= most <= len(account.connections):
            self._turn_away(client, account, login)
            return False
        account.connections.add(client)
        permissions = login.permissions
        access = None if permissions is None or permissions.unrestricted else Access(permissions)
        client.external, client.token = login.external, login.token
        client.enter(account, access, login.user, self.max_payload_of(client, account))
        client.expire_in(login.expires_in_s)
        for listener in self.arrival_listeners:
            listener(client)
        return True

    def _turn_away(self, client: ServedClient, account: Account, login: Login) -> None:
        """Close a client whose account is full. As with nats-server the account is told, though it never counted the client.

        A user with a password comes and goes. One with an nkey or a token goes, and the nkey counts as refused.
        """
        client.leave()
        client.account_name, client.user, client.token = account.name, login.user, login.token
        has_nkey = client.presented is not None and client.presented.nkey == login.user
        if login.token is None and not has_nkey:
            for listener in self.arrival_listeners:
                listener(client)
        client.fail(MAX_ACCOUNT_CONNECTIONS)
        if login.token is None and has_nkey:
            self.refused(client)

    def info_changed(self) -> None:
        """Rebuild INFO after an option change or at lame duck, and send it to clients that support that."""
        self._info = None
        for client in self.connections.values():
            client.info_changed()


def _add(total: Traffic, one: Traffic) -> None:
    total.in_msgs += one.in_msgs
    total.out_msgs += one.out_msgs
    total.in_bytes += one.in_bytes
    total.out_bytes += one.out_bytes
