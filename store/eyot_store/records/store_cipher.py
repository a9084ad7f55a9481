"""Encryption at rest: the store's own data key, sealed under the operator's key.

The data key seals everything that reveals stored content. It is made with the store and never changes. The store holds
it sealed under a key derived (scrypt) from the operator's. Changing the operator's key rewrites one entry, whatever the
store holds. A nonce is eight random bytes, drawn when the store is opened, and a counter. See docs/format.md,
"Encryption".
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Literal

import msgspec

from eyot_store.errors import StoreError

Cipher = Literal["aes", "chacha"]

NONCE_BYTES = 12
SEALED_EXTRA = NONCE_BYTES + 16
"""Bytes that sealing adds: the nonce in front, the tag behind."""

_KEY_BYTES = _SALT_BYTES = 32
_SCRYPT_LOG2_N = 14  # 16 MiB and some 50 ms, once at a start
_WRAPPED_FOR = b"eyot: data key"
_CIPHERS = ("aes", "chacha")


class StoreKeys:
    """The operator's `key` (any bytes; 32 random ones are best), and the `previous` key during a change.

    `cipher`: for a new store. repr() leaves the keys out.
    """

    __slots__ = ("cipher", "key", "previous")

    def __init__(self, key: bytes, previous: bytes = b"", cipher: Cipher = "aes") -> None:
        if not key:
            raise ValueError("an empty key")
        self.key = key
        self.previous = previous
        self.cipher = cipher

    def __repr__(self) -> str:
        return f"<StoreKeys {self.cipher}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoreKeys):
            return NotImplemented
        return (self.key, self.previous, self.cipher) == (other.key, other.previous, other.cipher)

    def __hash__(self) -> int:
        return hash((self.key, self.previous, self.cipher))


class Wrapped(msgspec.Struct, array_like=True, frozen=True):
    """The entry `encryption`: the data key, sealed."""

    cipher: str
    salt: bytes
    scrypt_log2_n: int
    data_key: bytes


encode_wrapped = msgspec.msgpack.Encoder().encode
decode_wrapped = msgspec.msgpack.Decoder(Wrapped).decode


class StoreCipher:
    """Seals and opens with a data key. Not for two threads at once, but for opening."""

    def __init__(self, cipher: str, data_key: bytes) -> None:
        self.cipher = cipher
        self._data_key = data_key
        self._aead = _aead(cipher, data_key)
        self._prefix = os.urandom(8)
        self._count = 0

    def seal(self, about: bytes, content: bytes) -> bytes:
        """Encrypt `content`; `about` is associated data, which decryption must repeat."""
        count = self._count
        self._count = count + 1
        if count >> 32:
            self._prefix, count, self._count = os.urandom(8), 0, 1
        nonce = self._prefix + count.to_bytes(4, "big")
        sealed: bytes = nonce + self._aead.encrypt(nonce, content, about)
        return sealed

    def open(self, about: bytes, sealed: bytes | memoryview) -> bytes:
        """Inverse of `seal`. Raises StoreError("corrupt")."""
        try:
            content: bytes = self._aead.decrypt(bytes(sealed[:NONCE_BYTES]), sealed[NONCE_BYTES:], about)
        except (_invalid_tag(), ValueError):
            raise StoreError("corrupt", "decryption failed") from None
        return content

    def another(self) -> StoreCipher:
        """Return an instance with the same key, for another thread."""
        return StoreCipher(self.cipher, self._data_key)

    def wrapped(self, key: bytes) -> bytes:
        """Return the entry that holds the data key under the operator's."""
        salt = os.urandom(_SALT_BYTES)
        nonce = os.urandom(NONCE_BYTES)
        locked = _aead(self.cipher, _derived(key, salt, _SCRYPT_LOG2_N)).encrypt(nonce, self._data_key, _WRAPPED_FOR)
        return encode_wrapped(Wrapped(self.cipher, salt, _SCRYPT_LOG2_N, nonce + locked))


def _aead(cipher: str, key: bytes) -> Any:
    # Imported on use: a daemon with an unencrypted store starts faster.
    from cryptography.hazmat.primitives.ciphers import aead

    return aead.AESGCM(key) if cipher == "aes" else aead.ChaCha20Poly1305(key)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def new_store_cipher(cipher: Cipher) -> StoreCipher:
    """Return a cipher with a new data key."""
    return StoreCipher(cipher, os.urandom(_KEY_BYTES))


def unlock(entry: bytes, keys: StoreKeys) -> tuple[StoreCipher, bool]:
    """Return the cipher with the data key in `entry`, and whether the previous key was needed.

    Raises StoreError: "key" when neither key fits, "format" for an unknown cipher.
    """
    wrapped = decode_wrapped(entry)
    if wrapped.cipher not in _CIPHERS or wrapped.scrypt_log2_n > 20:
        raise StoreError("format", f"encrypted with {wrapped.cipher}, which this release does not know")
    for key in (keys.key, keys.previous):
        if key:
            aead = _aead(wrapped.cipher, _derived(key, wrapped.salt, wrapped.scrypt_log2_n))
            try:
                data_key = aead.decrypt(wrapped.data_key[:NONCE_BYTES], wrapped.data_key[NONCE_BYTES:], _WRAPPED_FOR)
            except _invalid_tag():
                continue
            return StoreCipher(wrapped.cipher, data_key), key is not keys.key
    raise StoreError("key", "encrypted, and not with the key given")


def _derived(key: bytes, salt: bytes, log2_n: int) -> bytes:
    return hashlib.scrypt(key, salt=salt, n=1 << log2_n, r=8, p=1, maxmem=(256 << log2_n) * 8, dklen=_KEY_BYTES)
