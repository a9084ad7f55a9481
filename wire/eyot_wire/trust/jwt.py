"""NATS JWTs: decoding, signature, and the claims of users, accounts and operators.

A token has three base64url parts: header, payload, signature by the issuer's nkey. Version 2 signs `header.payload`,
version 1 the payload part alone. `decode()` checks these and the roles of issuer and subject. The caller checks whether
the issuer is trusted, and the times. Source: NATS ADR-14 and nats-io/jwt.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec
from msgspec import Struct

from eyot_wire.trust import nkey
from eyot_wire.untrusted import decode_json

#: Roles of the keys that may sign a kind of token.
ISSUER_ROLES: Final = {
    "operator": "O",
    "account": "OA",
    "user": "A",
    "activation": "OA",
    "authorization_response": "A",
}
#: Roles of the keys that a kind of token is about.
SUBJECT_ROLES: Final = {"operator": "O", "account": "A", "user": "U", "activation": "A", "authorization_response": "U"}


#: The largest token, bytes; nats-io/jwt's. It bounds the exports, imports and mappings that a push makes a server look at.
TOKEN_BYTES_MAX: Final = 1024 * 1024


class JwtError(ValueError):
    """An invalid token; the text gives the reason and never contains the token."""


class _Header(Struct):
    typ: str = ""
    alg: str = ""


class SubjectRules(Struct, omit_defaults=True, frozen=True):
    """`pub` or `sub` of a user's permissions."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class ResponseRule(Struct, omit_defaults=True, frozen=True):
    """`resp`: `max` messages within `ttl` nanoseconds."""

    max: int = 0
    ttl: int = 0


class TimeRange(Struct, omit_defaults=True, frozen=True):
    """A range of a day, both ends `HH:MM:SS`; an end before the start is on the next day."""

    start: str = ""
    end: str = ""


class UserGrant(Struct, omit_defaults=True, frozen=True):
    """A user's permissions and limits: in the user's own token, or as the template of a scoped signing key.

    `subs`: subscriptions; `payload`: bytes of a message; -1: no limit of its own. `src`: addresses in CIDR notation.
    """

    pub: SubjectRules = SubjectRules()
    sub: SubjectRules = SubjectRules()
    resp: ResponseRule | None = None
    subs: int = 0
    data: int = 0
    payload: int = 0
    src: tuple[str, ...] | str | None = None  # version 1: one string, separated by commas
    times: tuple[TimeRange, ...] | None = None
    times_location: str = ""
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: tuple[str, ...] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """`src` as a tuple, whichever form the token has."""
        if isinstance(self.src, str):
            return tuple(part.strip() for part in self.src.split(",") if part.strip())
        return self.src or ()

    @property
    def is_empty(self) -> bool:
        """Whether the token grants and limits nothing, as tokens of scoped users must."""
        empty = UserGrant()
        return all(getattr(self, name) in (getattr(empty, name), ()) for name in UserGrant.__struct_fields__)


class NatsClaims(UserGrant, omit_defaults=True, frozen=True):
    """The `nats` object: the common fields of users, accounts and operators, and the fields of users."""

    type: str = ""
    version: int = 1
    tags: tuple[str, ...] = ()
    issuer_account: str = ""
    signing_keys: tuple[msgspec.Raw, ...] | None = None
    jwt: str = ""  # authorization responses: the user's token
    error: str = ""  # authorization responses: why there is no token

    def __repr__(self) -> str:
        return f"NatsClaims(type={self.type!r})"  # a token within a token stays out of logs


class Claims(Struct, omit_defaults=True, frozen=True):
    """A token's payload. `exp`, `nbf`, `iat` are seconds since the epoch, 0: not set."""

    sub: str = ""
    iss: str = ""
    jti: str = ""
    name: str = ""
    aud: str = ""
    iat: int = 0
    exp: int = 0
    nbf: int = 0
    nats: NatsClaims = NatsClaims()
    type: str = ""  # version 1 only; `kind` covers both
    tags: tuple[str, ...] = ()  # version 1 only
    issuer_account: str = ""  # version 1 only

    @property
    def kind(self) -> str:
        """Kind of the token: operator, account, user, activation, ..."""
        return self.nats.type or self.type

    @property
    def account(self) -> str:
        """The account a user belongs to: the one that a signing key signed for, else the issuer."""
        return self.nats.issuer_account or self.issuer_account or self.iss

    @property
    def signed_for(self) -> str:
        """`issuer_account`: the account that a signing key signed for, as the token says; "": the issuer itself."""
        return self.nats.issuer_account or self.issuer_account

    @property
    def all_tags(self) -> tuple[str, ...]:
        return self.nats.tags or self.tags

    def valid_at(self, now_s: float) -> bool:
        """Return whether `now_s` is between the token's begin and its expiry."""
        return self.nbf <= now_s and (self.exp == 0 or now_s < self.exp)


def decode(token: str) -> Claims:
    """Decode a token, and check its form, issuer role, subject role and signature. Raises JwtError."""
    return open_token(token)[0]


def open_token(token: str) -> tuple[Claims, bytes]:
    """Return what `decode` returns, and the payload's JSON for further members. Raises JwtError."""
    if len(token) > TOKEN_BYTES_MAX:
        raise JwtError(f"token size {len(token)} exceeds maximum of {TOKEN_BYTES_MAX} bytes: token too large")
    parts = token.strip().split(".")
    if len(parts) != 3:
        raise JwtError("expected 3 chunks")
    try:
        header = decode_json(_unbase64(parts[0]), _Header)
        payload = _unbase64(parts[1])
        claims = decode_json(payload, Claims)
    except msgspec.DecodeError as error:
        raise JwtError(f"malformed JWT: {type(error).__name__}") from None
    version = _version(header, claims)
    signed = f"{parts[0]}.{parts[1]}" if version == 2 else parts[1]
    if not nkey.verify(claims.iss, signed.encode(), _unbase64(parts[2])):
        raise JwtError("claim failed signature verification")
    _check_role(claims.iss, ISSUER_ROLES.get(claims.kind, ""), "issuer")
    _check_role(claims.sub, SUBJECT_ROLES.get(claims.kind, ""), "subject")
    return (_without_limits(claims, payload) if version == 1 else claims), payload


class _V1Limits(Struct):
    subs: int = -1
    data: int = -1
    payload: int = -1


class _V1Body(Struct):
    nats: _V1Limits = msgspec.field(default_factory=_V1Limits)


def _without_limits(claims: Claims, payload: bytes) -> Claims:
    """Apply version 1's defaults: a limit that is not named is unlimited."""
    if claims.kind != "user":
        return claims
    limits = msgspec.json.decode(payload, type=_V1Body).nats
    nats = msgspec.structs.replace(claims.nats, subs=limits.subs, data=limits.data, payload=limits.payload)
    return msgspec.structs.replace(claims, nats=nats)


def _version(header: _Header, claims: Claims) -> int:
    if header.typ.lower() != "jwt":
        raise JwtError(f'not supported type "{header.typ}"')
    version = 1 if claims.type else claims.nats.version
    expected = {1: "ed25519", 2: "ed25519-nkey"}.get(version)
    if expected is None:
        raise JwtError(f"unsupported claim version {version}")
    if header.alg.lower() != expected:
        raise JwtError(f'unexpected "{header.alg}" algorithm')
    return version


def _check_role(key: str, roles: str, what: str) -> None:
    try:
        role, _ = nkey.decode_public(key)
    except nkey.NkeyError:
        raise JwtError(f"unable to validate {what}: not a public nkey") from None
    if roles and role not in roles:
        raise JwtError(f"unable to validate expected prefixes of the {what}")


def _unbase64(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise JwtError("a chunk is not base64") from None
