"""The messages of an auth callout: the server's request, the service's answer, and their encryption with curve keys.

A request is a JWT of type `authorization_request`, signed by the server's key. The answer is a JWT of type
`authorization_response`, signed by the configured issuer, with a user's JWT or an error. With an `xkey` both are
encrypted: `xkv1`, a 24-byte nonce, a NaCl box. Source: NATS ADR-26.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

import msgspec
from msgspec import Struct

from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError

SUBJECT: Final = b"$SYS.REQ.USER.AUTH"
AUDIENCE: Final = "nats-authorization-request"
XKEY_HEADER: Final = b"Nats-Server-Xkey"
_SEALED: Final = b"xkv1"
_NONCE_BYTES: Final = 24


class ServerIdentity(Struct, omit_defaults=True, kw_only=True):
    """`server_id` of a request."""

    name: str
    host: str
    id: str
    version: str
    tags: tuple[str, ...] = ()
    xkey: str = ""


class ClientInformation(Struct, omit_defaults=True, kw_only=True):
    """`client_info` of a request."""

    host: str = ""
    id: int = 0
    user: str = ""
    name: str = ""
    kind: str = ""
    type: str = ""
    mqtt_id: str = ""
    nonce: str = ""


class ConnectOptions(Struct, omit_defaults=True, kw_only=True):
    """`connect_opts` of a request: what the client presented."""

    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int  # always there, as in nats-server

    def __repr__(self) -> str:
        return "ConnectOptions(***)"


class ClientTls(Struct, omit_defaults=True, kw_only=True):
    """`client_tls` of a request; certificates in PEM."""

    version: str = ""
    cipher: str = ""
    certs: tuple[str, ...] = ()
    verified_chains: tuple[tuple[str, ...], ...] = ()


class CalloutRequest(Struct, omit_defaults=True, kw_only=True):
    """The `nats` object of a request."""

    server_id: ServerIdentity
    user_nkey: str
    client_info: ClientInformation
    connect_opts: ConnectOptions
    client_tls: ClientTls | None = None
    type: str = ""
    version: int = 0


def encode_request(
    request: CalloutRequest, signer: nkey.Signer, *, receiver: str, issued_s: int, expires_s: int
) -> bytes:
    """Return the signed request. Times are seconds since the epoch."""
    request = msgspec.structs.replace(request, type="authorization_request", version=2)
    claims: dict[str, Any] = {
        "aud": AUDIENCE,
        "exp": expires_s,
        "iat": issued_s,
        "iss": signer.public_key,
        "nats": request,
        "sub": receiver,
    }
    digest = hashlib.new("sha512_256", msgspec.json.encode(claims)).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    head = _part(b'{"typ":"JWT","alg":"ed25519-nkey"}') + b"." + _part(msgspec.json.encode(claims))
    return head + b"." + _part(signer.sign(head))


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class CurveKey:
    """The server's curve key pair, for services with an `xkey`."""

    def __init__(self, seed: bytes) -> None:
        from nacl.public import PrivateKey

        self._key = PrivateKey(seed)
        self.public_key = nkey.encode_public("X", bytes(self._key.public_key))

    def __repr__(self) -> str:
        return f"CurveKey({self.public_key})"

    def seal(self, data: bytes, receiver: str) -> bytes:
        """Encrypt `data` for the holder of the public curve key `receiver` (`X...`)."""
        return _SEALED + bytes(self._box(receiver).encrypt(data))

    def open(self, data: bytes, sender: str) -> bytes:
        """Decrypt what `sender` encrypted for this server. Raises JwtError."""
        from nacl.exceptions import CryptoError

        if not data.startswith(_SEALED) or len(data) < len(_SEALED) + _NONCE_BYTES:
            raise JwtError("response is not sealed")
        try:
            return bytes(self._box(sender).decrypt(data[len(_SEALED) :]))
        except (CryptoError, ValueError):
            raise JwtError("response cannot be unsealed") from None

    def _box(self, other: str) -> Any:
        from nacl.public import Box, PublicKey

        return Box(self._key, PublicKey(nkey.decode_public(other)[1]))
