"""The authenticators of a configuration: for clients, clients of the listeners for WebSocket and MQTT, and leaf nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.auth.callout import Callout, CalloutAuthenticator, OperatorCallout
from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Applicant, Authenticator, Deferred, Login, Peer
from eyot_daemon.config.options import Options
from eyot_daemon.config.passwords import PasswordChecker
from eyot_daemon.config.websocket import for_listener
from eyot_wire.info import LeafConnect

if TYPE_CHECKING:
    from eyot_daemon.auth.account_fetch import AccountFetcher, FetchingAuthenticator
    from eyot_daemon.auth.operator import OperatorAuthenticator
    from eyot_daemon.auth.trust import Trust
    from eyot_daemon.config.mqtt import MqttOptions
    from eyot_daemon.config.options import WebsocketOptions

InBackground = Callable[[Callable[[], bool], Callable[[bool], None]], None]


def trust_of(options: Options) -> Trust | None:
    """Return the trusted keys and accounts in operator mode, else None. Raises TokenStoreError."""
    if options.operator is None:
        return None
    # Loaded only where it is used, as everything of operator mode.
    from eyot_daemon.auth.trust import Trust

    return Trust(options.operator, time.time_ns)


class Authenticators:
    """The authenticators of one server; `take` rebuilds them after a reload.

    `callout`: asks the service of `auth_callout`, if configured at the start. `in_background`: runs a slow check
    (bcrypt) outside the loop, then a function with its result. `fetcher`: fetches unknown accounts, if the resolver
    does that.
    """

    def __init__(
        self,
        options: Options,
        trust: Trust | None,
        callout: Callout | None,
        in_background: InBackground,
        fetcher: AccountFetcher | None = None,
    ):
        self._callout = callout
        self._fetcher = fetcher
        self._in_background = in_background
        self._passwords = PasswordChecker()
        self.take(options, trust)

    def take(self, options: Options, trust: Trust | None) -> None:
        self._options = options
        self.trust = trust
        #: for clients, and for leaf nodes that connect here
        self.clients = self._with_callout(self._known_users(), options)
        #: about clients of the WebSocket listener, where that has credentials of its own
        self.websocket = self._own(options.websocket)
        #: about clients of MQTT, where that has credentials of its own
        self.mqtt = self._own(options.mqtt)

    def leaf(self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant) -> Login | Deferred | None:
        """About a leaf that dialled us."""
        return self.clients.leaf(connect, nonce, peer, applicant)

    def _known_users(self) -> ConfigAuthenticator | OperatorAuthenticator:
        if self.trust is None:
            return self._configured(self._options)
        from eyot_daemon.auth.operator import OperatorAuthenticator

        return OperatorAuthenticator(self.trust)

    def _configured(self, options: Options) -> ConfigAuthenticator:
        return ConfigAuthenticator(options, background=self._in_background, passwords=self._passwords)

    def _own(self, listener: WebsocketOptions | MqttOptions | None) -> Authenticator | None:
        """Return the authenticator of a listener; None: it has no credentials of its own."""
        own = for_listener(self._options, listener)
        if own is None or self.trust is not None:
            return None
        return self._with_callout(self._configured(own), own)

    def _with_callout(
        self, users: ConfigAuthenticator | OperatorAuthenticator, options: Options
    ) -> ConfigAuthenticator | OperatorAuthenticator | CalloutAuthenticator | OperatorCallout | FetchingAuthenticator:
        if self._callout is None:
            return users
        if isinstance(users, ConfigAuthenticator):
            configured = options.authorization.auth_callout is not None
            return CalloutAuthenticator(users, options, self._callout.ask) if configured else users
        assert self.trust is not None
        asking = OperatorCallout(users, self.trust, self._callout.ask)
        if self._fetcher is None:
            return asking
        from eyot_daemon.auth.account_fetch import FetchingAuthenticator

        return FetchingAuthenticator(asking, self.trust, self._fetcher)
