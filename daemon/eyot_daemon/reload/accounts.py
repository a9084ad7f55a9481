"""Accounts, and who may log in to them, as a service of the daemon.

The broker holds the options (`Broker.options`); all other parts read them there. In operator mode the accounts are what their tokens say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eyot_daemon.auth.authenticators import Authenticators, InBackground, trust_of
from eyot_daemon.auth.callout import Callout
from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.reload.apply import change_options, settle_connections
from eyot_daemon.reload.changes import ReloadError, changed_fields
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Json, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.auth.account_fetch import AccountFetcher
    from eyot_daemon.auth.trust import Trust
    from eyot_daemon.reload.claims_apply import ClaimsKeeper


class AccountConfiguration(NamedTuple):
    """Options that say which accounts there are, and which operators the server trusts."""

    options: Options
    trust: Trust | None


class AccountService:
    """Accounts and authentication of one daemon. `trust`: as the options of `broker` say; `callout`: None without one.

    `accounts_changed` is called when tokens have changed the accounts outside of a reload.
    """

    name = "accounts"

    def __init__(
        self,
        broker: Broker,
        trust: Trust | None,
        callout: Callout | None,
        in_background: InBackground,
        accounts_changed: Callable[[], None],
    ) -> None:
        self.broker = broker
        self._callout = callout
        self._in_background = in_background
        self._accounts_changed = accounts_changed
        set_up_accounts(broker, broker.options)
        self.authenticators = Authenticators(
            broker.options, trust, callout, in_background, self._account_fetcher(trust)
        )
        self.clients = Clients(broker, self.authenticators.clients)
        self.clients.websocket_authenticator = self.authenticators.websocket
        self.clients.mqtt_authenticator = self.authenticators.mqtt
        self._claims: ClaimsKeeper | None = None

    def keep_claims(self, server_info: Callable[[], Json]) -> None:
        """In operator mode, follow what becomes of the accounts' tokens."""
        if self.authenticators.trust is None:
            return
        # Loaded only where it is used, as everything of operator mode.
        from eyot_daemon.auth.claims_services import ClaimsServices
        from eyot_daemon.auth.operator import OperatorAuthenticator
        from eyot_daemon.reload.claims_apply import ClaimsKeeper

        trust = self._trust
        self.broker.providers.account_claims = lambda name: trust().accounts.get(name)
        self._claims = ClaimsKeeper(self.clients, trust, lambda: OperatorAuthenticator(trust()), self._accounts_changed)
        if self.broker.system_account is not None:
            ClaimsServices(trust, server_info, self._claims.changed).start(self.broker.system_account)

    def configure(self, options: Options) -> AccountConfiguration:
        """Check the options; at a reload also the changes. Raises ReloadError, TokenStoreError."""
        old = self.broker.options
        if options is old:  # at the start
            return AccountConfiguration(old, self.authenticators.trust)
        trust = trust_of(options)
        if trust is not None:
            if self.authenticators.trust is not None:
                trust.keep_fetched(self.authenticators.trust)
            options = trust.options(options)
        changed_fields(old, options)
        if options.authorization.auth_callout is not None and self._callout is None:
            raise ReloadError("config reload not supported for AuthCallout: it has to be there at the start")
        if options.port == -1:
            options = msgspec.structs.replace(options, port=old.port)
        return AccountConfiguration(options, trust)

    def start(self, prepared: AccountConfiguration, runtime: Runtime) -> None:
        """Start checking tokens for expiry; the broker already has the accounts."""
        if self._claims is not None:
            runtime.when_open(self._claims.start)

    def reload(self, prepared: AccountConfiguration, steps: ReloadSteps) -> None:
        """Accounts and users change; then connections that may not be here any more end. Raises TransformError."""
        clients, authenticators = self.clients, self.authenticators
        broker, names = self.broker, set(self.broker.accounts)
        old, old_trust = broker.options, authenticators.trust

        def undo() -> None:
            self._change(AccountConfiguration(old, old_trust))
            for name in [name for name in broker.accounts if name not in names]:
                broker.remove_account(name)

        steps.undo(undo)
        self._change(prepared)
        steps.last(lambda: settle_connections(clients, old))
        if self._claims is not None:
            steps.last(self._claims.start)

    def _change(self, wanted: AccountConfiguration) -> None:
        authenticators = self.authenticators
        authenticators.take(wanted.options, wanted.trust)
        self.clients.websocket_authenticator = authenticators.websocket
        self.clients.mqtt_authenticator = authenticators.mqtt
        change_options(self.clients, authenticators.clients, wanted.options)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Accounts end with the daemon."""

    # -- operator mode -------------------------------------------------------------------------------------------------

    def _trust(self) -> Trust:
        assert self.authenticators.trust is not None
        return self.authenticators.trust

    def _account_fetcher(self, trust: Trust | None) -> AccountFetcher | None:
        """Return the fetcher of unknown accounts, if the resolver has one. A reload does not change the resolver."""
        resolver = None if trust is None else trust.operator.resolver
        if resolver is None or not resolver.fetches:
            return None
        from eyot_daemon.auth.account_fetch import AccountFetcher, PeersAsk, UrlAsk

        def learned(names: list[str]) -> None:
            assert self._claims is not None
            self._claims.changed(names)

        ask = UrlAsk(resolver, self._in_background) if resolver.kind == "url" else PeersAsk(self.broker)
        return AccountFetcher(self._trust, ask, learned)
