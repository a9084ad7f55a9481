"""The rules for an auth callout's answer, and the login that it grants.

A configuration, or in operator mode the account's token, configures the callout.

The rules are nats-server's (`auth_callout.go`). The answer is a token about the user in the request, for this server,
and contains the user's token. With a configuration, the configured issuer signs both, and the user's `aud` names the
account. In operator mode the callout's account signs the answer, and the user's issuer names the account, which
`allowed_accounts` must contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from eyot_daemon.auth.claims_permissions import permissions_of
from eyot_daemon.auth.configured import AuthResult
from eyot_daemon.auth.login import Peer
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.check import account_names
from eyot_daemon.config.options import Options
from eyot_daemon.config.permissions import Permissions
from eyot_daemon.config.users_read import CONNECTION_TYPES
from eyot_wire.trust.auth_callout import SUBJECT
from eyot_wire.trust.jwt import Claims, JwtError, UserGrant, decode
from eyot_wire.trust.jwt_account import AccountClaims
from eyot_wire.trust.jwt_rules import Templates, seconds_allowed, source_allowed
from eyot_wire.trust.jwt_user_check import user_mistakes

if TYPE_CHECKING:
    from eyot_daemon.auth.trust import Trust

#: `allowed_accounts`: all of them.
_ANY_ACCOUNT = "*"


class Answer(Struct, frozen=True, kw_only=True):
    """A received answer with its request. `user`: the connection's name for itself."""

    token: str
    user_nkey: str
    user: str
    server_id: str
    peer: Peer
    now_s: float


class CalloutRules(Protocol):
    """One callout. `account`: the service's account; `issuer`: addressee of the request; `xkey`: "" for no encryption.

    `takes_tokens`: whether a user's own token means anything here.
    """

    account: str
    issuer: str
    xkey: str
    takes_tokens: bool

    def grant(self, answer: Answer) -> AuthResult:
        """Return the login that an answer grants. Raises JwtError."""
        ...


class ConfiguredRules:
    """The rules of `authorization { auth_callout { } }`."""

    takes_tokens = False

    def __init__(self, options: Options) -> None:
        configured = options.authorization.auth_callout
        assert configured is not None
        self.account, self.issuer, self.xkey = configured.account, configured.issuer, configured.xkey
        self._allowed = configured.allowed_accounts
        self._accounts = account_names(options)
        self._defaults = {account.name: account.default_permissions for account in options.accounts}
        self._defaults.setdefault(GLOBAL_ACCOUNT, options.authorization.default_permissions)

    def grant(self, answer: Answer) -> AuthResult:
        response, user = _opened(answer)
        for token in (response, user):
            if token.iss != self.issuer:
                raise JwtError(
                    f'wrong issuer for auth callout response on account "{self.account}", '
                    f'expected "{self.issuer}" got "{token.iss}"'
                )
        if user.signed_for:
            raise JwtError(f'error non operator mode account "{self.account}": attempted to use issuer_account')
        if user.aud not in self._accounts:
            raise JwtError(f'no valid account "{user.aud}" for auth callout response on account "{self.account}"')
        if self._allowed and user.aud not in self._allowed:
            raise JwtError(f'account "{user.aud}" is not allowed for the auth callout')
        return _login(answer, user, user.nats, user.aud, self._defaults.get(user.aud), self.account)


class OperatorRules:
    """The rules of an account's token (`authorization`)."""

    takes_tokens = True

    def __init__(self, trust: Trust, account: AccountClaims) -> None:
        self._trust = trust
        self.account = self.issuer = account.name
        self.xkey = account.body.authorization.xkey

    def grant(self, answer: Answer) -> AuthResult:
        trust = self._trust
        asked = trust.usable(self.account)
        if asked is None:
            raise JwtError(f'account "{self.account}" is not known any more')
        response, user = _opened(answer)
        if response.iss not in trust.signers(asked) or response.signed_for not in ("", asked.name):
            raise JwtError("auth callout signing key is unknown")
        target = self._target(asked, user)
        if user.iss not in trust.signers(target):
            raise JwtError(f'user JWT issuer "{user.iss}" is not known')
        grant: UserGrant = user.nats
        scope = target.scope(user.iss)
        if scope is not None:
            if not user.nats.is_empty:
                raise JwtError("user JWT is not valid: scoped users require no permissions or limits set")
            grant = Templates(user, target.claims.name, target.claims.all_tags).grant(scope.template)
        defaults = target.body.default_permissions
        return _login(
            answer, user, grant, target.name, permissions_of(defaults.pub, defaults.sub, defaults.resp), self.account
        )

    def _target(self, asked: AccountClaims, user: Claims) -> AccountClaims:
        name = user.account
        allowed = asked.body.authorization.allowed_accounts or ()
        if name != asked.name and name not in allowed and allowed != (_ANY_ACCOUNT,):
            raise JwtError(
                f'account "{user.iss}" not permitted as valid account option for auth callout for account "{asked.name}"'
            )
        target = self._trust.usable(name)
        if target is None:
            raise JwtError(f'no valid account "{name}" for auth callout response on account "{asked.name}"')
        return target


def _opened(answer: Answer) -> tuple[Claims, Claims]:
    """Return the answer and the user in it, after checking that both are about the request's user, for this server, in time.

    Raises JwtError.
    """
    response = decode(answer.token)
    if response.kind != "authorization_response":
        raise JwtError("not authorization response claim")
    if not response.valid_at(answer.now_s):
        raise JwtError("authorization response had validation errors: claim is expired")
    if response.sub != answer.user_nkey:
        raise JwtError("auth callout violation: auth callout response is not for expected user")
    if response.aud != answer.server_id:
        raise JwtError("auth callout violation: auth callout response is not for server")
    if response.nats.error:
        raise JwtError(f"auth callout service returned an error: {response.nats.error}")
    user = decode(response.nats.jwt)
    if user.kind != "user":
        raise JwtError("not user claim")
    if not user.valid_at(answer.now_s):
        raise JwtError("error validating user JWT: claim is expired")
    wrong = user_mistakes(user)
    if wrong:
        raise JwtError(f"error validating user JWT: {wrong[0]}")
    if user.sub != answer.user_nkey:
        raise JwtError(f'expected authorized user of "{answer.user_nkey}" but got "{user.sub}"')
    return response, user


def _login(
    answer: Answer, user: Claims, grant: UserGrant, account: str, defaults: Permissions | None, asked: str
) -> AuthResult:
    """Return the login; `defaults`: the account's permissions, `asked`: the account of the service."""
    if grant.proxy_required:
        raise JwtError("user has to come through a trusted proxy, which are not offered")
    types = grant.allowed_connection_types
    if types and answer.peer.connection_type not in {one.upper() for one in types} & CONNECTION_TYPES:
        raise JwtError("connection type is not allowed")
    if not source_allowed(grant.sources, answer.peer.host):
        raise JwtError(f"bad src IP {answer.peer.host}")
    left_s = seconds_allowed(grant.times or (), grant.times_location, answer.now_s)
    if left_s is None:
        raise JwtError(f'authorized user on account "{account}" outside of valid connect times')
    if user.exp:
        left_s = min(left_s, user.exp - answer.now_s) if left_s else user.exp - answer.now_s
    permissions = permissions_of(grant.pub, grant.sub, grant.resp)
    return AuthResult(
        account=account,
        user=user.name or answer.user or answer.user_nkey,
        permissions=without_questions(permissions or defaults) if account == asked else permissions or defaults,
        external=True,
        expires_in_s=left_s,
    )


def without_questions(permissions: Permissions | None) -> Permissions:
    """Return permissions for a user in the service's account, where only the server sends requests."""
    permissions = permissions or Permissions()
    publish = msgspec.structs.replace(permissions.publish, deny=(*permissions.publish.deny, SUBJECT))
    return msgspec.structs.replace(permissions, publish=publish)
