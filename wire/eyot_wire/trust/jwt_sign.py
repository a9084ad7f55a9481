"""Signing of NATS JWTs: version 2 tokens as nats-io/jwt writes them, from claims as JSON members.

Claims are dictionaries, so a token that another tool wrote keeps the members that Eyot does not know when Eyot signs
the token again. Source: NATS ADR-14 and nats-io/jwt v2 (`ClaimsData.encode`, `ActivationClaims.HashID`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import ISSUER_ROLES, SUBJECT_ROLES, JwtError, open_token
from eyot_wire.trust.jwt_account import decode_account, decode_activation, decode_operator
from eyot_wire.untrusted import decode_json

#: Claims of a token: `sub`, `name`, `exp`, ..., and `nats` with the members of its kind.
ClaimMembers = dict[str, Any]
_HEAD: Final = b'{"typ":"JWT","alg":"ed25519-nkey"}'
#: The members outside `nats`, in the library's order.
_OUTER: Final = ("aud", "exp", "iat", "iss", "name", "nbf", "sub")
VERSION: Final = 2
#: What checks the members of a kind; `open_token` checks those of users.
_DECODERS: Final[dict[str, Callable[[str], Any]]] = {
    "operator": decode_operator,
    "account": decode_account,
    "activation": decode_activation,
}


def decode_members(token: str) -> ClaimMembers:
    """Decode a token to all its members, and check roles, signature, and the form of all known members. Raises JwtError."""
    claims, payload = open_token(token)
    if claims.type:
        raise JwtError("a token of version 1: upgrade the store with `nsc upgrade-jwt`")
    if claims.kind in _DECODERS:
        _DECODERS[claims.kind](token)
    members: ClaimMembers = decode_json(payload)
    return members


def sign_members(members: ClaimMembers, signer: nkey.KeySigner, issued_s: int) -> str:
    """Return the signed token of these claims. `iss`, `iat`, `jti` and the version are set here. Raises JwtError.

    `issued_s`: seconds since the epoch. Members whose value is 0, "" or None outside `nats` are left out, as in the
    library.
    """
    body = dict(members.get("nats") or {})
    kind = str(body.get("type", ""))
    _check_role(signer.public_key, ISSUER_ROLES.get(kind, ""), f"the key that signs a token of kind {kind}")
    _check_role(str(members.get("sub", "")), SUBJECT_ROLES.get(kind, ""), f"the subject of a token of kind {kind}")
    outer = {name: members[name] for name in _OUTER if members.get(name)}
    outer |= {"iat": issued_s, "iss": signer.public_key}
    outer = {name: outer[name] for name in _OUTER if name in outer}
    further = {name: value for name, value in members.items() if name not in (*_OUTER, "nats", "jti")}
    whole = {"jti": token_id(outer), **outer, **further}
    whole["nats"] = body | {"version": VERSION}
    signed = _part(_HEAD) + b"." + _part(msgspec.json.encode(whole))
    return (signed + b"." + _part(signer.sign(signed))).decode()


def token_id(outer: ClaimMembers) -> str:
    """Return `jti`: the hash of a token's other members outside `nats`, which are in the library's order."""
    text = msgspec.json.encode(outer)
    for char in b"<>&":  # Go's encoder escapes these
        text = text.replace(bytes([char]), b"\\u%04x" % char)
    digest = hashlib.new("sha512_256", text).digest()
    return base64.b32encode(digest).rstrip(b"=").decode()


def activation_hash(issuer: str, importer: str, subject: str) -> str:
    """Return the identifier of an activation: SHA-256 of issuer, importing account and the subject before its wildcards.

    Base32 with padding; an activation for a subject that begins with a wildcard has `_` for the subject.
    """
    tokens: list[str] = []
    for token in subject.split("."):
        if token in ("*", ">"):
            break
        tokens.append(token)
    text = f"{issuer}.{importer}.{'.'.join(tokens) or '_'}"
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()


def decorate(token: str, kind: str) -> str:
    """Return a token between the lines of dashes with which the tools write it into a file; `kind`: `account`, `activation`..."""
    label = f"NATS {kind.upper()} JWT"
    return f"-----BEGIN {label}-----\n{token}\n------END {label}------\n"


def _check_role(key: str, roles: str, what: str) -> None:
    try:
        role, _ = nkey.decode_public(key)
    except nkey.NkeyError:
        raise JwtError(f"{what} is not a public nkey") from None
    if roles and role not in roles:
        raise JwtError(f"{what} has the role {role}, not {' or '.join(roles)}")


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
