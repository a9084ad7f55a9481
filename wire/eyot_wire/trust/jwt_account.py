"""JWTs of operators and accounts.

An account's token is signed by an operator's key (or one of its signing keys). It holds what the configuration
otherwise says about an account: limits, exports, imports, mappings, keys that may sign users, revoked users. Version 1
tokens are read, too. `jwt_account_check` validates an account's token.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import Claims, JwtError, ResponseRule, SubjectRules, UserGrant, open_token
from eyot_wire.untrusted import decode_json

#: Key of `revocations` that stands for all users.
EVERYBODY: Final = "*"


class ServiceLatency(Struct, omit_defaults=True, frozen=True):
    """Latency sampling of a service: `sampling` in percent, or "headers"."""

    sampling: int | str = 0
    results: str = ""


class Export(Struct, omit_defaults=True, frozen=True):
    """One export. `response_threshold` in nanoseconds; `revocations`: importing account to seconds since the epoch."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] | None = None
    response_type: str = ""
    response_threshold: int = 0
    service_latency: ServiceLatency | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class Import(Struct, omit_defaults=True, frozen=True):
    """One import. `to` is the old form: a stream's prefix, or the exporter's subject of a service."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False


class JetStreamLimits(Struct, omit_defaults=True, frozen=True):
    """JetStream limits in bytes and counts; -1: unlimited."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class OperatorLimits(JetStreamLimits, omit_defaults=True, frozen=True):
    """`limits` of an account; -1: unlimited. `tiered_limits`: JetStream limits per number of replicas; `R1` applies here."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamLimits] | None = None


class ScopedKey(Struct, omit_defaults=True, frozen=True):
    """A signing key whose users get exactly the grants of `template`."""

    key: str = ""
    kind: str = ""
    role: str = ""
    template: UserGrant = UserGrant()


class DefaultPermissions(Struct, omit_defaults=True, frozen=True):
    """Permissions of users whose tokens define none."""

    pub: SubjectRules = SubjectRules()
    sub: SubjectRules = SubjectRules()
    resp: ResponseRule | None = None


class WeightedSubject(Struct, omit_defaults=True, frozen=True):
    """One destination of a mapping; weight 0 means 100 percent."""

    subject: str = ""
    weight: int = 0
    cluster: str = ""


class ExternalAuthorization(Struct, omit_defaults=True, frozen=True):
    """The auth callout of an account."""

    auth_users: tuple[str, ...] | None = None
    allowed_accounts: tuple[str, ...] | None = None
    xkey: str = ""


class Trace(Struct, omit_defaults=True, frozen=True):
    """Message tracing: destination subject and percent."""

    dest: str = ""
    sampling: int = 0


class AccountBody(Struct, omit_defaults=True, frozen=True):
    """`nats` of an account's token."""

    imports: tuple[Import, ...] | None = None
    exports: tuple[Export, ...] | None = None
    limits: OperatorLimits = OperatorLimits()
    signing_keys: tuple[str | ScopedKey, ...] | None = None
    revocations: dict[str, int] | None = None
    default_permissions: DefaultPermissions = DefaultPermissions()
    mappings: dict[str, tuple[WeightedSubject, ...]] | None = None
    authorization: ExternalAuthorization = ExternalAuthorization()
    trace: Trace | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""


class AccountClaims(Struct, frozen=True):
    """A decoded account token."""

    token: str
    claims: Claims
    body: AccountBody

    @property
    def name(self) -> str:
        """The account's public key, which identifies it."""
        return self.claims.sub

    def scope(self, issuer: str) -> ScopedKey | None:
        """Return the scope of one of its signing keys, None for keys without a scope."""
        for key in self.body.signing_keys or ():
            if isinstance(key, ScopedKey) and key.key == issuer:
                return key
        return None

    def signing_keys(self) -> tuple[str, ...]:
        return tuple(key if isinstance(key, str) else key.key for key in self.body.signing_keys or ())

    def revoked(self, user: str, issued_at: int) -> bool:
        """Return whether a user's token issued at that second is revoked, by name or with all users."""
        revocations = self.body.revocations or {}
        return any(name in revocations and revocations[name] >= issued_at for name in (user, EVERYBODY))

    def __repr__(self) -> str:
        return f"AccountClaims({self.name})"


class OperatorBody(Struct, omit_defaults=True, frozen=True):
    """`nats` of an operator's token."""

    signing_keys: tuple[str, ...] | None = None
    account_server_url: str = ""
    operator_service_urls: tuple[str, ...] | None = None
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


class OperatorClaims(Struct, frozen=True):
    """A decoded operator token."""

    claims: Claims
    body: OperatorBody

    @property
    def trusted_keys(self) -> tuple[str, ...]:
        """The keys whose signature on an account's token is valid."""
        own = () if self.body.strict_signing_key_usage else (self.claims.sub,)
        return own + (self.body.signing_keys or ())


class ActivationBody(Struct, omit_defaults=True, frozen=True):
    """`nats` of an activation: what the importing account may import."""

    subject: str = ""
    kind: str = ""


_Body = TypeVar("_Body", bound=Struct)


def _body(token: str, kind: str, form: type[_Body]) -> tuple[Claims, _Body]:
    claims, payload = open_token(token)
    if claims.kind != kind:
        raise JwtError(f"not {'an' if kind[0] in 'ao' else 'a'} {kind} claim")
    try:
        raw: dict[str, Any] = decode_json(payload).get("nats") or {}
        if kind == "account" and claims.type:
            raw = {name: value for name, value in raw.items() if name in _V1_MEMBERS}
        return claims, msgspec.convert(raw, form)
    except msgspec.DecodeError as error:
        raise JwtError(f"malformed {kind} JWT: {error}") from None


#: The members of a version 1 account that are read.
_V1_MEMBERS: Final = ("imports", "exports", "limits", "signing_keys", "revocations")


def decode_account(token: str) -> AccountClaims:
    """Decode an account's token and check its signature, not whether its issuer is trusted. Raises JwtError."""
    return AccountClaims(token.strip(), *_body(token, "account", AccountBody))


def decode_operator(token: str) -> OperatorClaims:
    """Decode an operator's token, which the operator signs itself. Raises JwtError."""
    claims, body = _body(token, "operator", OperatorBody)
    for key in body.signing_keys or ():
        if not nkey.is_public(key, "O"):
            raise JwtError(f"{key} is not an operator public key")
    return OperatorClaims(claims, body)


def decode_activation(token: str) -> tuple[Claims, ActivationBody]:
    """Decode what an exporter grants an importer. Raises JwtError."""
    claims, body = _body(token, "activation", ActivationBody)
    if claims.type:  # version 1 has the subject elsewhere, too, and the kind as `type` of the body
        body = msgspec.structs.replace(body, kind=body.kind or claims.nats.type)
    return claims, body


class _DeleteBody(Struct):
    accounts: tuple[str, ...]


def decode_deletion(token: str) -> tuple[Claims, tuple[str, ...]]:
    """Decode a generic token: the accounts that an operator wants deleted. Raises JwtError."""
    claims, payload = open_token(token)
    try:
        wanted = msgspec.convert(decode_json(payload).get("nats"), _DeleteBody).accounts
    except msgspec.DecodeError:
        raise JwtError("malformed request") from None
    return claims, wanted
