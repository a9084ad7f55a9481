"""Applies changed account tokens to the running broker: an update, a deletion, an expiry.

Accounts follow their tokens. Connections are authorized again without a new signature: revoked users, users of a
removed or rescoped signing key, and all users of an expired account are informed and disconnected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from eyot_daemon.auth.login import UserToken
from eyot_daemon.auth.operator import ACCOUNT_EXPIRED, OperatorAuthenticator, Refused
from eyot_daemon.auth.trust import Trust
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.served import AUTHORIZATION_VIOLATION, ServedClient
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.reload.apply import keep_within_account
from eyot_daemon.router.access import Access
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import remove_accounts, update_accounts
from eyot_daemon.turn.timers import TimerHandle
from eyot_daemon.turn.wall_timers import LOOK_S

log = logging.getLogger("eyot.auth")

#: The longest interval between checks where no token changes with time.
LOOK_S_MAX = 3600.0


class ClaimsKeeper:
    """Keeps the broker true to the tokens. `accounts_changed` is called when the broker's options are what the tokens say."""

    def __init__(
        self,
        clients: Clients,
        trust: Callable[[], Trust],
        authenticator: Callable[[], OperatorAuthenticator],
        accounts_changed: Callable[[], None],
    ) -> None:
        self._clients = clients
        self._trust = trust
        self._authenticator = authenticator
        self._accounts_changed = accounts_changed
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._set_timer()

    def changed(self, names: Iterable[str]) -> None:
        """Apply changes of these accounts' tokens: replaced, removed, or expired."""
        broker = self._clients.broker
        old = broker.options
        new = broker.options = self._trust().options(old)
        update_accounts(broker, old, new)
        for name in names:
            account = broker.accounts.get(name)
            if account is not None:
                self._reauthorize(account)
        remove_accounts(broker, new)
        # Behind the removal, as at a reload: else a service keeps a removed account, and not the one that a later token makes.
        self._accounts_changed()
        self._set_timer()

    def _reauthorize(self, account: Account) -> None:
        for connection in tuple(account.connections):
            if not isinstance(connection, ServedClient):
                continue
            if connection.token is not None:
                self._reauthorize_client(connection, connection.token)
            elif connection.external and self._trust().usable(account.name) is None:
                connection.fail(ACCOUNT_EXPIRED)
        for link in tuple(account.leafnodes):
            if not isinstance(link, LeafConnection):
                continue
            link.limits_changed()
            if link.token is not None:
                self._reauthorize_leaf_node(link, link.token)
            elif link.external and self._trust().usable(account.name) is None:
                link.close(ACCOUNT_EXPIRED)
            elif link.state.solicited and account.name not in self._trust().accounts:
                link.end_for_now("its account was deleted")
        keep_within_account(account)

    def _reauthorize_client(self, client: ServedClient, before: UserToken) -> None:
        try:
            login = self._authenticator().authorize(before, client.peer)
        except Refused as refused:
            log.info("%r - %s", client, refused)
            if refused.text == AUTHORIZATION_VIOLATION:
                self._clients.refused(client)
            client.fail(refused.text)
            return
        if login.token is None or login.token.scope != before.scope:
            client.fail(AUTHORIZATION_VIOLATION)
            return
        permissions = login.permissions
        if permissions != (None if client.access is None else client.access.permissions):
            client.reauthorized(None if permissions is None else Access(permissions))
        client.set_limits(self._clients.options.max_control_line, self._clients.max_payload_of(client))

    def _reauthorize_leaf_node(self, link: LeafConnection, before: UserToken) -> None:
        try:
            login = self._authenticator().authorize(before, link.peer)
        except Refused as refused:
            log.info("%r - %s", link, refused)
            link.close(refused.text)
            return
        if login.token is None or login.token.scope != before.scope:
            link.close(AUTHORIZATION_VIOLATION)

    # -- time ------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        trust = self._trust()
        soonest = trust.next_change_s()
        wait_s = LOOK_S if trust.changes_with_time else LOOK_S_MAX
        if soonest is not None:
            wait_s = min(max(0.0, soonest - trust.now_s), wait_s)
        self._timer = self._clients.broker.timers.call_later(wait_s, self._look)

    def _look(self) -> None:
        """Apply what time changes, or a clock that was set."""
        trust = self._trust()
        changed = trust.changed_by_time()
        for name in changed:
            if trust.usable(name) is None:
                log.warning("Account %s has expired", name)
            else:
                log.warning("An activation that account %s has, or its JWT, began or expired", name)
        if changed:
            self.changed(changed)
        else:
            self._set_timer()
