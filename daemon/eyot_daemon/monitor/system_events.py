"""Events of the system account: connections opened, closed or refused, figures of the server, its shutdown.

    $SYS.ACCOUNT.<acc>.CONNECT, .DISCONNECT            a client or leaf node connected, its connection ended
    $SYS.ACCOUNT.<acc>.SERVER.CONNS                    the account's number of connections (and its older name)
    $SYS.SERVER.<id>.CLIENT.AUTH.ERR                   a client failed to authenticate
    $SYS.ACCOUNT.CLIENT.AUTH.ERR                       the same in the account of auth callout, else of the client, else in $G
    $SYS.SERVER.<id>.STATSZ                            the server's figures, periodically
    $SYS.SERVER.<id>.LAMEDUCK, .SHUTDOWN               the server is about to stop

Events without a subscriber are not created.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from eyot_daemon.auth.login import UserToken
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.served import ServedClient
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.monitor import accounts as monitor_accounts
from eyot_daemon.router.account import Account
from eyot_daemon.router.providers import Json
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.nuid import nuid

_TYPE = "io.nats.server.advisory.v1."
#: The first figures soon after the start, then ever more rarely, as nats-server.
STATSZ_FIRST_S = 0.25
STATSZ_MAX_S = 30.0
#: Published in an account of clients, where its users may listen.
ACCOUNT_AUTH_ERR = b"$SYS.ACCOUNT.CLIENT.AUTH.ERR"


class SystemEvents:
    """Publishes in the system account; does nothing without one. `server_info` and `statsz` are the services' own."""

    def __init__(self, clients: Clients, server_info: Callable[[], Json], statsz: Callable[[], Json]) -> None:
        self._clients = clients
        self._broker = clients.broker
        self._server_info = server_info
        self._statsz = statsz
        self._rng: random.Random = clients.broker.ids
        self._interval_s = STATSZ_FIRST_S

    def start(self) -> None:
        """Listen to the clients from now on; the figures begin once the timers run."""
        if self._broker.system_account is None:
            return
        self._clients.arrival_listeners.append(self._arrived)
        self._clients.departure_listeners.append(self._departed)
        self._clients.refusal_listeners.append(self._refused)
        self._clients.count_listeners.append(self._connections)
        links = self._broker.links
        links.arrival_listeners.append(self._link_arrived)
        links.departure_listeners.append(self._link_departed)

    def begin_figures(self) -> None:
        """Publish STATSZ again and again. Needs the clock of a running daemon."""
        if self._broker.system_account is not None:
            self._broker.timers.call_later(self._interval_s, self._figures)

    def shutting_down(self) -> None:
        self._publish(f"$SYS.SERVER.{self._broker.server_id}.SHUTDOWN", lambda: {"server": self._server_info()})

    def lame_duck(self) -> None:
        self._publish(f"$SYS.SERVER.{self._broker.server_id}.LAMEDUCK", lambda: {"server": self._server_info()})

    def announce(self) -> None:
        """Publish STATSZ now."""
        subject = f"$SYS.SERVER.{self._broker.server_id}.STATSZ"
        self._publish(subject, lambda: {"server": self._server_info(), "statsz": self._statsz()})

    def _figures(self) -> None:
        self.announce()
        self._interval_s = min(STATSZ_MAX_S, self._interval_s * 2)
        self._broker.timers.call_later(self._interval_s, self._figures)

    def _arrived(self, client: ServedClient) -> None:
        if client.account is not None:
            self._connections(client.account)
        name = client.account_name
        self._publish(
            f"$SYS.ACCOUNT.{name}.CONNECT", lambda: self._event("client_connect") | {"client": self._describe(client)}
        )

    def _departed(self, client: ServedClient) -> None:
        """Publish the end of a connection; one that never logged in ends in the global account, as with nats-server."""
        name = client.account_name or GLOBAL_ACCOUNT
        account = self._broker.accounts.get(client.account_name)
        if account is None and client.account_name:
            return  # the account is gone
        if account is not None and client.was_counted:
            self._connections(account)
        self._publish(f"$SYS.ACCOUNT.{name}.DISCONNECT", lambda: self._end(client, client.close_reason))

    def _link_arrived(self, link: LeafConnection) -> None:
        if link.account is not None:
            self._connections(link.account)
        self._publish(
            f"$SYS.ACCOUNT.{link.account_name}.CONNECT",
            lambda: self._event("client_connect") | {"client": self._describe_link(link)},
        )

    def _link_departed(self, link: LeafConnection) -> None:
        if link.account is not None:
            self._connections(link.account)
        self._publish(f"$SYS.ACCOUNT.{link.account_name}.DISCONNECT", lambda: self._link_end(link))

    def _refused(self, client: ServedClient) -> None:
        reason = "Authentication Failure"
        subject = f"$SYS.SERVER.{self._broker.server_id}.CLIENT.AUTH.ERR"
        self._publish(subject, lambda: self._end(client, reason))
        callout = self._broker.options.authorization.auth_callout
        # A connected client that a reload turns away still has its account, and that account hears of it.
        own = client.account_name or GLOBAL_ACCOUNT
        name = own if callout is None else callout.account or own
        account = self._broker.accounts.get(name)
        if account is not None and account.has_interest(ACCOUNT_AUTH_ERR):
            account.publish(ACCOUNT_AUTH_ERR, payload=msgspec.json.encode(self._end(client, reason)))

    def _connections(self, account: Account) -> None:
        for subject in (f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"):
            self._publish(
                subject,
                lambda: self.account_connections(account),
            )

    def account_connections(self, account: Account) -> Json:
        """Return how many connections an account has, and its traffic."""
        return self._event("account_connections") | monitor_accounts.account_stat(self._broker, account)

    def _event(self, kind: str) -> Json:
        return {
            "type": _TYPE + kind,
            "id": nuid(self._rng),
            "timestamp": ns_to_rfc3339(self._broker.clock.now_ns()),
            "server": self._server_info(),
        }

    def _describe(self, client: ServedClient) -> Json:
        account = client.account_name or GLOBAL_ACCOUNT
        presented = client.presented
        told: Json = {
            "start": ns_to_rfc3339(client.started_ns),
            "host": client.peer.host,
            "id": client.cid,
            "acc": account,
            "user": client.user or ("" if presented is None else presented.user or presented.nkey),
            "name": client.name,
            "lang": client.lang,
            "ver": client.version,
            "rtt": int(client.rtt_s * 1e9),
        }
        kind = {"kind": "Client", "client_type": client.peer.client_type}
        if client.mqtt_client:
            kind["client_id"] = client.mqtt_client
        return _known(told) | _from_token(client.token) | {"name_tag": self._name_tag(account)} | kind

    def _describe_link(self, link: LeafConnection) -> Json:
        """Describe a leaf connection. Name, user and version are the leaf node's: a hub's are left out, as by nats-server."""
        state, is_accepted = link.state, not link.state.solicited
        told: Json = {
            "start": ns_to_rfc3339(link.started_ns),
            "host": link.peer.host,
            "id": link.cid,
            "acc": link.account_name,
            "user": link.user if is_accepted else "",
            "name": state.peer_name if is_accepted else "",
            "ver": state.peer_version if is_accepted else "",
        }
        tag = {"name_tag": self._name_tag(link.account_name), "kind": "Leafnode"}
        return _known(told) | _from_token(link.token) | tag

    def _link_end(self, link: LeafConnection) -> Json:
        told: Json = {"stop": ns_to_rfc3339(self._broker.clock.now_ns())}
        if link.state.rtt_s:
            told["rtt"] = int(link.state.rtt_s * 1e9)
        traffic, start = link.state.traffic, link.counts_at_start
        return self._event("client_disconnect") | {
            "client": self._describe_link(link) | told,
            "sent": {"msgs": traffic.in_msgs - start.in_msgs, "bytes": traffic.in_bytes - start.in_bytes},
            "received": {"msgs": traffic.out_msgs - start.out_msgs, "bytes": traffic.out_bytes - start.out_bytes},
            "reason": link.end.reason,
        }

    def _end(self, client: ServedClient, reason: str) -> Json:
        stopped_ns = client.stopped_ns or self._broker.clock.now_ns()
        return self._event("client_disconnect") | {
            "client": self._describe(client) | {"stop": ns_to_rfc3339(stopped_ns)},
            "sent": {"msgs": client.in_msgs, "bytes": client.in_bytes},
            "received": {"msgs": client.out_msgs, "bytes": client.out_bytes},
            "reason": reason,
        }

    def _name_tag(self, name: str) -> str:
        """Return the tag of an account, which a closed connection has left."""
        account = self._broker.accounts.get(name)
        return name if account is None else account.name_tag

    def _publish(self, subject: str, make: Callable[[], Json]) -> None:
        system = self._broker.system_account
        where = subject.encode()
        if system is not None and system.has_interest(where):
            system.publish(where, payload=msgspec.json.encode(make()))


def _known(told: Json) -> Json:
    return {name: value for name, value in told.items() if value}


def _from_token(token: UserToken | None) -> Json:
    """Return what the token of a user tells of it; the text of a bearer token is equivalent to a password, and left out."""
    if token is None:
        return {}
    claims = token.claims
    told = {
        "jwt": "" if token.grant.bearer_token else token.text,
        "issuer_key": claims.iss,
        "tags": list(claims.all_tags),
    }
    return _known(told)
