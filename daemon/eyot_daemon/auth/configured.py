"""Authentication of clients and leaf nodes against the configured users.

`ConfigAuthenticator` maps the credentials of a CONNECT and the nonce to an `AuthResult` (account, user, permissions) or
None. It keeps no connection and does no I/O. Order and rules are nats-server's. Without configured authorization every
connection is in the global account; otherwise nkey, then user and password, then the single user, then the token are
checked; `no_auth_user` applies to connections without credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from eyot_daemon.auth.login import Applicant, Deferred, Peer, UserToken
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, UserOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.passwords import PasswordChecker, TakesLong
from eyot_daemon.config.permissions import Permissions
from eyot_daemon.net.cert_names import find_user
from eyot_wire.info import ClientConnect, LeafConnect
from eyot_wire.trust import nkey


class Presented(Protocol):
    """The common fields of the CONNECT of clients and leaf nodes."""

    nkey: str
    sig: str
    jwt: str
    user: str
    password: str
    auth_token: str


class AuthResult(Struct, frozen=True, kw_only=True):
    """The identity of a connection. `user`: the user name or public nkey, "": no particular user.

    `permissions` None: unrestricted.
    """

    account: str
    user: str = ""
    permissions: Permissions | None = None
    external: bool = False  # decided by an auth callout
    expires_in_s: float = 0.0  # 0: never
    token: UserToken | None = None


#: Runs its first argument in a thread, then its second, with the result, in a turn of the broker.
Background = Callable[[Callable[[], bool], Callable[[bool], None]], None]


class ConfigAuthenticator:
    """Authentication by the configuration's users; implements `login.Authenticator`, and `leaf()` for leaf listeners.

    With a `background`, bcrypt checks run there; otherwise at once. `passwords` keeps known results over a reload.
    """

    def __init__(
        self, options: Options, *, background: Background | None = None, passwords: PasswordChecker | None = None
    ) -> None:
        self._options = options
        self._background = background
        self.passwords = passwords or PasswordChecker()
        self._users = {user.user: user for user in options.users if user.user}
        self._nkeys = {user.nkey: user for user in options.users if user.nkey}
        self._account_permissions = {account.name: account.default_permissions for account in options.accounts}
        authorization = options.authorization
        self._open = not (authorization.user or authorization.token or self._users or self._nkeys)

    @property
    def auth_required(self) -> bool:
        return self._options.auth_required

    @property
    def wants_nonce(self) -> bool:
        return bool(self._nkeys)

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> AuthResult | Deferred | None:
        """Authenticate a client; None: Authorization Violation."""
        return self._decide(lambda: self._ordinary(connect, nonce, peer))

    def _decide(self, decide: Callable[[], AuthResult | None]) -> AuthResult | Deferred | None:
        """Return the result of `decide`; deferred, when it needs a bcrypt check and there is a background to run it."""
        background = self._background
        if background is None:
            return decide()
        self.passwords.may_take_long = False
        try:
            return decide()
        except TakesLong as long:
            deferred, known = Deferred(), long

            def check() -> bool:
                deferred.at_work = not deferred.abandoned
                return deferred.at_work and known.check()

            def checked(outcome: bool) -> None:
                if not deferred.abandoned:
                    self.passwords.learn(known.identity, outcome)
                    deferred.settle(decide())

            background(check, checked)
            return deferred
        finally:
            self.passwords.may_take_long = True

    def anonymous(self, peer: Peer) -> AuthResult | None:
        """Return the identity of a connection without credentials; None: it must present some."""
        if self._open:
            return AuthResult(account=GLOBAL_ACCOUNT)
        if self._maps_certificates(peer) and self._users:
            return None
        name = self._options.no_auth_user
        user = self._users.get(name) or self._nkeys.get(name)
        return None if user is None else self._as_user(user, peer)

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> AuthResult | Deferred | None:
        """Authenticate a leaf node; `leafnodes { authorization { } }` precedes the server's own users."""
        return self._decide(lambda: self._leaf(connect, nonce, peer))

    def _leaf(self, connect: LeafConnect, nonce: str, peer: Peer) -> AuthResult | None:
        authorization = self._options.leafnodes.authorization
        if authorization is None:
            return self._ordinary(connect, nonce, peer)
        account = authorization.account or GLOBAL_ACCOUNT
        if authorization.user:
            matches = connect.user == authorization.user and self._matches(authorization.password, connect)
            return AuthResult(account=account, user=authorization.user) if matches else None
        if authorization.nkey:
            matches = connect.nkey == authorization.nkey and signed(connect.nkey, connect, nonce)
            return AuthResult(account=account, user=authorization.nkey) if matches else None
        if authorization.users:
            return self._leaf_user(authorization.users, connect, nonce, peer)
        found = self._ordinary(connect, nonce, peer)
        if found is not None and self._open and authorization.account:
            return AuthResult(account=account)
        return found

    def _ordinary(self, connect: Presented, nonce: str, peer: Peer) -> AuthResult | None:
        """Authenticate by the server's own users, in nats-server's order."""
        if self._open:
            return AuthResult(account=GLOBAL_ACCOUNT)
        if connect.nkey and self._nkeys:
            user = self._nkeys.get(connect.nkey)
            return self._as_user(user, peer) if user is not None and signed(connect.nkey, connect, nonce) else None
        if self._maps_certificates(peer) and self._users:
            return self._by_certificate(peer)
        if not (connect.user or connect.password or connect.auth_token):
            return self.anonymous(peer)
        if self._users:
            user = self._users.get(connect.user)
            return self._as_user(user, peer) if user is not None and self._matches(user.password, connect) else None
        authorization = self._options.authorization
        if authorization.user:
            matches = connect.user == authorization.user and self._matches(authorization.password, connect)
            return self._as_single(authorization.user) if matches else None
        if authorization.token:
            return self._as_single("") if self.passwords.matches(authorization.token, connect.auth_token) else None
        return None

    def _maps_certificates(self, peer: Peer) -> bool:
        """Return whether the listener's `verify_and_map` lets the certificate name the user."""
        options = self._options
        if peer.connection_type.startswith("LEAFNODE"):
            tls = options.leafnodes.tls
        elif peer.is_mqtt:  # also over a WebSocket, whose listener verified the certificate
            tls = None if options.mqtt is None else options.mqtt.tls
        elif peer.connection_type == "WEBSOCKET":
            tls = None if options.websocket is None else options.websocket.tls
        else:
            tls = options.tls
        return tls is not None and tls.verify_and_map and bool(peer.tls_version)

    def _by_certificate(self, peer: Peer) -> AuthResult | None:
        if not peer.certificate:
            return None
        allowed = {name: user for name, user in self._users.items() if _may_come(user, peer)}
        name = find_user(peer.certificate, allowed)
        return None if name is None else self._as_user(allowed[name], peer)

    def _leaf_user(
        self, users: tuple[UserOptions, ...], connect: LeafConnect, nonce: str, peer: Peer
    ) -> AuthResult | None:
        for user in users:
            if user.nkey:
                matches = connect.nkey == user.nkey and signed(connect.nkey, connect, nonce)
            else:
                matches = connect.user == user.user and self._matches(user.password, connect)
            if matches:
                return self._as_user(user, peer)
        return None

    def _matches(self, configured: str, connect: Presented) -> bool:
        return self.passwords.matches(configured, connect.password)

    def _as_user(self, user: UserOptions, peer: Peer) -> AuthResult | None:
        if not _may_come(user, peer):
            return None
        permissions = user.permissions or self._account_permissions.get(user.account)
        if permissions is None and user.account == GLOBAL_ACCOUNT:
            permissions = self._options.authorization.default_permissions
        return AuthResult(account=user.account, user=user.user or user.nkey, permissions=permissions)

    def _as_single(self, name: str) -> AuthResult:
        permissions = self._options.authorization.default_permissions
        return AuthResult(account=GLOBAL_ACCOUNT, user=name, permissions=permissions)


def signed(key: str, connect: Presented, nonce: str) -> bool:
    """Return whether `sig` is the signature of the nonce's text by this nkey."""
    if not nonce or not connect.sig:
        return False
    try:
        signature = nkey.decode_signature(connect.sig)
    except nkey.NkeyError:
        return False
    return nkey.verify(key, nonce.encode(), signature)


def _may_come(user: UserOptions, peer: Peer) -> bool:
    return not user.connection_types or peer.connection_type in user.connection_types
