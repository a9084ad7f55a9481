"""nkeys: Ed25519 keys in NATS's text form (base32 of a prefix byte, the key, and a CRC-16).

Public keys start with a letter for their role: O operator, A account, U user, N server, C cluster, X curve. Seeds start
with S and the role's letter. The nkeys library signs and verifies; it is imported on first use.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, Protocol

_PREFIXES: Final = {"O": 14 << 3, "A": 0, "U": 20 << 3, "N": 13 << 3, "C": 2 << 3, "X": 23 << 3}
_SEED_PREFIX: Final = 18 << 3
_KEY_BYTES: Final = 32
_PUBLIC_CHARS: Final = 56


class NkeyError(ValueError):
    """An invalid key, seed or signature."""


def decode_public(key: str) -> tuple[str, bytes]:
    """Return role letter and raw 32 bytes of a public key. Raises NkeyError."""
    if len(key) != _PUBLIC_CHARS or not key.isascii():
        raise NkeyError("not a public nkey")
    try:
        raw = base64.b32decode(key)
    except binascii.Error:
        raise NkeyError("not a public nkey") from None
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError("not a public nkey: wrong checksum")
    for role, prefix in _PREFIXES.items():
        if raw[0] == prefix:
            return role, raw[1:-2]
    raise NkeyError("not a public nkey: unknown role")


def is_public(key: str, role: str) -> bool:
    """Return whether `key` is a well-formed public key of this role."""
    try:
        return decode_public(key)[0] == role
    except NkeyError:
        return False


def encode_public(role: str, raw: bytes) -> str:
    """Return the text form of 32 raw bytes; also for ids that only look like keys. Raises NkeyError."""
    if len(raw) != _KEY_BYTES:
        raise NkeyError("a public key has 32 bytes")
    body = bytes([_PREFIXES[role]]) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode()


def encode_seed(role: str, raw: bytes) -> str:
    """Return the seed text of 32 secret random bytes. Raises NkeyError."""
    if len(raw) != _KEY_BYTES:
        raise NkeyError("a seed has 32 bytes")
    prefix = _PREFIXES[role]
    body = bytes([_SEED_PREFIX | prefix >> 5, (prefix & 31) << 3]) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).rstrip(b"=").decode()


def raw_seed(seed: str) -> bytes:
    """Return the 32 secret bytes of a seed. Raises NkeyError."""
    text = seed.strip().encode()
    _check_seed(text)
    return base64.b32decode(text + b"=" * (-len(text) % 8))[2:-2]


def curve_public(seed: str) -> str:
    """Return the public key (`X...`) of a curve key's seed (`SX...`), with which no signature is made. Raises NkeyError."""
    from nacl.public import PrivateKey

    text = seed.strip().encode()
    _check_seed(text)
    raw = base64.b32decode(text + b"=" * (-len(text) % 8))
    if raw[0] & 0xF8 != _SEED_PREFIX or (raw[0] & 7) << 5 | raw[1] >> 3 != _PREFIXES["X"]:
        raise NkeyError("not the seed of a curve key")
    return encode_public("X", bytes(PrivateKey(raw[2:-2]).public_key))


class KeySigner(Protocol):
    """Whatever signs with one key."""

    @property
    def public_key(self) -> str:
        """Return the public key in text form."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 raw bytes."""
        ...


class Signer:
    """A key pair made from a seed. repr() leaves the secret out."""

    def __init__(self, seed: str) -> None:
        import nkeys

        text = seed.strip().encode()
        _check_seed(text)
        try:
            self._pair = nkeys.from_seed(bytearray(text))
            self.public_key: str = bytes(self._pair.public_key).decode()
        except (nkeys.NkeysError, ValueError):
            raise NkeyError("not an nkey seed") from None

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 raw bytes."""
        return bytes(self._pair.sign(data))

    def __repr__(self) -> str:
        return f"Signer({self.public_key})"


def _check_seed(text: bytes) -> None:
    """Check length and checksum of a seed; the library checks neither."""
    try:
        raw = base64.b32decode(text + b"=" * (-len(text) % 8))
    except binascii.Error:
        raise NkeyError("not an nkey seed") from None
    if len(raw) != _KEY_BYTES + 4 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError("not an nkey seed")


def verify(public_key: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is this key's over `data`; False for a malformed key or signature."""
    import nacl.exceptions
    import nacl.signing

    try:
        _, raw = decode_public(public_key)
        nacl.signing.VerifyKey(raw).verify(data, signature)
    except (NkeyError, nacl.exceptions.CryptoError, ValueError, TypeError):
        return False
    return True


def encode_signature(signature: bytes) -> str:
    """Encode `sig` of a CONNECT: base64 in the URL alphabet without padding."""
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()


def decode_signature(text: str) -> bytes:
    """Decode `sig` of a CONNECT in either base64 alphabet, padded or not. Raises NkeyError."""
    body = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise NkeyError("not a signature") from None
