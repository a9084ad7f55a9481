"""Authentication in operator mode: a user is a JWT signed by an account's key, and a nonce signed by the user.

The order of the checks is nats-server's: the token and its times, the account and its signer, the signer's scope,
bearer tokens, connection types, the nonce, revocations, source addresses, times of day.
"""

from __future__ import annotations

import logging

import msgspec

from eyot_daemon.auth.claims_permissions import permissions_of
from eyot_daemon.auth.configured import AuthResult, Presented, signed
from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer, UserToken
from eyot_daemon.auth.trust import Trust
from eyot_daemon.config.permissions import Permissions
from eyot_daemon.config.users_read import CONNECTION_TYPES
from eyot_wire.info import ClientConnect, LeafConnect
from eyot_wire.trust.jwt import Claims, JwtError, UserGrant, decode
from eyot_wire.trust.jwt_account import AccountClaims, ScopedKey
from eyot_wire.trust.jwt_rules import Templates, seconds_allowed, source_allowed
from eyot_wire.trust.jwt_user_check import user_mistakes

log = logging.getLogger("eyot.auth")

REVOKED = "User Authentication Revoked"
ACCOUNT_EXPIRED = "Account Authentication Expired"
VIOLATION = "Authorization Violation"


class Refused(Exception):
    """The reason of a refusal, for the log; `text` is for a connected client."""

    def __init__(self, why: str, text: str = VIOLATION) -> None:
        super().__init__(why)
        self.text = text


class OperatorAuthenticator:
    """Authentication by tokens; a `login.Authenticator`, and `leaf()` for leaf listeners."""

    auth_required = True
    wants_nonce = True

    def __init__(self, trust: Trust) -> None:
        self.trust = trust

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        """Authenticate a client; None: Authorization Violation."""
        return self._admit(connect, nonce, peer)

    def anonymous(self, peer: Peer) -> Login | None:
        """Refuse a connection without credentials, unless a default sentinel stands in."""
        return self._admit(ClientConnect(), "", peer) if self.trust.operator.default_sentinel else None

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> AuthResult | None:
        """Authenticate a leaf node."""
        return self._admit(connect, nonce, peer)

    def _admit(self, connect: Presented, nonce: str, peer: Peer) -> AuthResult | None:
        try:
            token = self._token(connect.jwt)
            result = self.authorize(token, peer)
            grant = msgspec.structs.replace(token, grant=result.token.grant) if result.token is not None else token
            if not grant.grant.bearer_token and not signed(token.claims.sub, connect, nonce):
                raise Refused("signature not verified")
        except Refused as refused:
            log.debug("User JWT refused: %s", refused)
            return None
        return result

    def _token(self, text: str) -> UserToken:
        sentinel = self.trust.operator.default_sentinel
        if not text:
            text = sentinel
        if not text:
            raise Refused("authentication requires a user JWT")
        try:
            claims = decode(text)
        except JwtError as error:
            raise Refused(f"user JWT not valid: {error}") from None
        if claims.kind != "user":
            raise Refused("not a user JWT")
        return UserToken(text=text, claims=claims, grant=claims.nats)

    def authorize(self, token: UserToken, peer: Peer) -> AuthResult:
        """Return what a decoded token grants now, its holder's signature aside. Raises Refused."""
        trust, user = self.trust, token.claims
        now_s = trust.now_s
        if not user.valid_at(now_s):
            raise Refused("user JWT no longer valid", "User Authentication Expired")
        wrong = user_mistakes(user)
        if wrong:
            raise Refused(f"user JWT not valid: {wrong[0]}")
        account = trust.usable(user.account)
        if account is None:
            raise Refused("account is not known or its JWT has expired", ACCOUNT_EXPIRED)
        if user.iss not in trust.signers(account):
            raise Refused("user JWT issuer is not known")
        scope = account.scope(user.iss)
        grant = _granted(user, account, scope)
        _check(user, grant, account, peer)
        left_s = seconds_allowed(grant.times or (), grant.times_location, now_s)
        if left_s is None:
            raise Refused("outside connect times")
        if user.exp:
            left_s = min(left_s, user.exp - now_s) if left_s else user.exp - now_s
        return AuthResult(
            account=account.name,
            user=user.sub,
            permissions=_permissions(grant, account),
            expires_in_s=left_s,
            token=msgspec.structs.replace(token, grant=grant, scope=scope),
        )


def _granted(user: Claims, account: AccountClaims, scope: ScopedKey | None) -> UserGrant:
    if scope is None:
        return user.nats
    if not user.nats.is_empty:
        raise Refused("scoped users require no permissions or limits set")
    try:
        return Templates(user, account.claims.name, account.claims.all_tags).grant(scope.template)
    except JwtError as error:
        raise Refused(f"user JWT generated invalid permissions: {error}") from None


def _check(user: Claims, grant: UserGrant, account: AccountClaims, peer: Peer) -> None:
    if grant.bearer_token and account.body.limits.disallow_bearer:
        raise Refused("account does not allow bearer tokens")
    if grant.proxy_required:
        raise Refused("user has to come through a trusted proxy, which are not offered")
    types = grant.allowed_connection_types
    if types:
        # Unknown types are ignored; if no type is left, no connection here is allowed.
        allowed = {one.upper() for one in types} & CONNECTION_TYPES
        if peer.connection_type not in allowed:
            raise Refused("connection type not allowed")
    if account.revoked(user.sub, user.iat):
        raise Refused("user authentication revoked", REVOKED)
    if not source_allowed(grant.sources, peer.host):
        raise Refused(f"bad src IP {peer.host}")


def _permissions(grant: UserGrant, account: AccountClaims) -> Permissions | None:
    """Return a user's permissions; the account's defaults apply to tokens without any."""
    own = permissions_of(grant.pub, grant.sub, grant.resp)
    if own is not None:
        return own
    defaults = account.body.default_permissions
    return permissions_of(defaults.pub, defaults.sub, defaults.resp)
