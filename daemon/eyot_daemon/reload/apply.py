"""Effects of a reload on accounts and connections: connections stay open, and their permissions are computed again.

The order is nats-server's: options first, then accounts, then connections: those of removed users end with `Authorization
Violation`, those whose user is now in another account are closed, subscriptions that are no longer allowed end. The first two
steps can be rolled back, by the same function; the third waits until no service can refuse the reload.
"""

from __future__ import annotations

import logging

from eyot_daemon.auth.login import Authenticator, Deferred, Login
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.served import (
    AUTHORIZATION_VIOLATION,
    MAX_ACCOUNT_CONNECTIONS,
    MAX_CONNECTIONS,
    ServedClient,
)
from eyot_daemon.config.check import account_names
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import remove_accounts, update_accounts
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_wire.info import ClientConnect

log = logging.getLogger("eyot")

CLIENT_CLOSED = "Client Closed"


def change_options(clients: Clients, authenticator: Authenticator, options: Options) -> None:
    """Make `options` those of the broker, its limits and its accounts. No client is notified, and no connection is closed.

    Accounts that `options` does not have any more are still there (`settle_connections`). Raises TransformError.
    """
    broker, old = clients.broker, clients.broker.options
    broker.options = options
    clients.authenticator = authenticator
    clients.limits.max_pending = options.max_pending
    clients.limits.max_pending_total = options.eyot.max_pending_total
    clients.limits.write_deadline_s = options.write_deadline_s
    update_accounts(broker, old, options)


def settle_connections(clients: Clients, old: Options) -> None:
    """Apply the broker's new options to the connections, which adapt or are closed. The caller ends the turn."""
    broker, new = clients.broker, clients.broker.options
    changed = (old.max_control_line, old.max_payload) != (new.max_control_line, new.max_payload)
    for client in clients.connections.values():
        if changed or client.account is not None:  # the account's own limit may have changed
            client.set_limits(new.max_control_line, clients.max_payload_of(client))
    clients.set_trace(new)
    _reauthorize_clients(clients)
    _reauthorize_leaf_nodes(broker.links, old, new)
    for account in broker.each_account():
        keep_within_account(account)
    _keep_within(clients, new.max_connections)
    remove_accounts(broker, new)
    clients.info_changed()


def _reauthorize_clients(clients: Clients) -> None:
    users = frozenset(user.nkey or user.user for user in clients.options.users)
    for client in tuple(clients.connections.values()):
        if client.account is None:
            continue  # not authenticated yet
        if client.external:
            if client.account.name not in account_names(clients.options):
                client.fail(AUTHORIZATION_VIOLATION)
            continue
        if not client.connected:
            decision: Login | Deferred | None = clients.authenticator_for(client.peer).anonymous(client.peer)
        else:
            presented = client.presented or ClientConnect()
            authenticator = clients.authenticator_for(client.peer)
            decision = authenticator.client(presented, client.nonce, client.peer, client)
        if isinstance(decision, Deferred):
            decision.when_done(lambda login, client=client: _authenticated(clients, client, login, users))  # type: ignore[misc]
        else:
            _authenticated(clients, client, decision, users)


def _authenticated(clients: Clients, client: ServedClient, login: Login | None, users: frozenset[str]) -> None:
    if client.closed or client.account is None:
        return
    if login is None:
        if _names_user(client, users):
            clients.refused(client)  # nats-server has no event about users that are gone
        client.fail(AUTHORIZATION_VIOLATION)
    elif login.account != client.account.name:
        client.close(CLIENT_CLOSED, linger=True)
    else:
        permissions = login.permissions
        before = None if client.access is None else client.access.permissions
        if permissions is not None and permissions.unrestricted:
            permissions = None
        if permissions != before:
            client.reauthorized(None if permissions is None else Access(permissions))


def _names_user(client: ServedClient, users: frozenset[str]) -> bool:
    """Return whether the user that the client said it is still exists, if only with another password."""
    presented = client.presented
    name = "" if presented is None else presented.nkey or presented.user
    return not name or name in users


def _reauthorize_leaf_nodes(links: LeafLinks[LeafConnection], old: Options, options: Options) -> None:
    """Close accepted links whose user or account was removed. Users of `leafnodes { authorization }` do not change at a reload.

    Those that needed no credentials end when credentials are needed. (In nats-server they stay, and would be let in again.)
    """
    accounts = account_names(options)
    own = options.leafnodes.authorization
    own_users = own is not None
    closes = options.auth_required and not old.auth_required and not (own and (own.user or own.nkey or own.users))
    users = {user.user or user.nkey: user.account for user in options.users}
    for link in tuple(links.connections.values()):
        if link.account is None:
            continue
        link.limits_changed()
        gone = link.account_name not in accounts
        if not link.state.solicited and link.user and users and not own_users and not link.external:
            gone = gone or users.get(link.user) != link.account_name
        if gone or (closes and not link.state.solicited):
            link.close(AUTHORIZATION_VIOLATION)


def keep_within_account(account: Account) -> None:
    """Close the newest connections beyond an account's lowered `max_connections`."""
    most = account.connections_max
    if 0 <= most < len(account.connections):
        clients = [one for one in account.connections if isinstance(one, ServedClient)]
        for client in sorted(clients, key=lambda one: one.cid)[most:]:
            client.fail(MAX_ACCOUNT_CONNECTIONS)


def _keep_within(clients: Clients, most: int) -> None:
    """`max_connections` went down: the newest go."""
    surplus = len(clients.connections) - most if most > 0 else 0
    if surplus <= 0:
        return
    for client in list(clients.connections.values())[-surplus:]:
        client.fail(MAX_CONNECTIONS)
    log.info("Closed %d connections to fall within max_connections", surplus)
