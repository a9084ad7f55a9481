"""Encryption of seeds in the keystore by a passphrase: scrypt makes the key, AES-256-GCM seals each seed.

`encrypted.json` in the keystore's folder holds the salt, scrypt's cost and a sealed constant that tells a wrong
passphrase. A sealed file holds a mark and base64 of nonce and sealed seed. The public key is authenticated with it, so a
file under another key's name is noticed.
"""

from __future__ import annotations

import base64
import binascii
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private

FILE: Final = "encrypted.json"
VARIABLE: Final = "EYOT_TRUST_PASSPHRASE_FILE"
_MARK: Final = "eyot-sealed-1."
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
#: scrypt's cost: 64 MiB of memory for r = 8.
_COST: Final = 1 << 16
#: The highest cost that a keystore's file may ask for: 1 GiB.
_COST_MAX: Final = 1 << 20
_CHECKED: Final = "keystore"
PASSPHRASE_MIN: Final = 8


class CipherFile(Struct, kw_only=True):
    """The content of `encrypted.json`."""

    version: int = 1
    kdf: str = "scrypt"
    cost: int
    salt: str
    #: `_CHECKED` sealed with the key
    check: str


class KeyCipher:
    """Seals and opens seeds. repr() leaves the key out."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    def seal(self, text: str, name: str) -> str:
        """Encrypt a text that belongs to `name`, a public key."""
        nonce = os.urandom(_NONCE_BYTES)
        return _MARK + base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), name.encode())).decode()

    def open(self, sealed: str, name: str) -> str:
        """Decrypt what `seal` made for this name. Raises ValueError."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(sealed.strip().removeprefix(_MARK), validate=True)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise ValueError("sealed with another passphrase, or damaged") from None


def is_sealed(text: str) -> bool:
    return text.startswith(_MARK)


def make_cipher(root: Path, passphrase: str) -> KeyCipher:
    """Write `encrypted.json`, and return the cipher. Raises Failure."""
    if len(passphrase) < PASSPHRASE_MIN:
        raise Failure(f"the passphrase is shorter than {PASSPHRASE_MIN} characters: choose a longer one")
    salt = os.urandom(16)
    cipher = KeyCipher(_derive(passphrase, salt, _COST))
    content = CipherFile(cost=_COST, salt=base64.b64encode(salt).decode(), check=cipher.seal(_CHECKED, _CHECKED))
    write_private(root / FILE, msgspec.json.encode(content))
    return cipher


def open_cipher(root: Path, passphrase: Callable[[], str]) -> KeyCipher:
    """Return the cipher of an encrypted keystore. Raises Failure for a wrong passphrase."""
    try:
        found = msgspec.json.decode(read_text(root / FILE), type=CipherFile)
        salt = base64.b64decode(found.salt, validate=True)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise Failure(f"{root / FILE}: {error}: restore the file from a backup") from error
    usable = found.version == 1 and found.kdf == "scrypt" and 2 <= found.cost <= _COST_MAX
    if not usable or found.cost & (found.cost - 1):
        raise Failure(f"{root / FILE}: made by a later release: upgrade Eyot")
    cipher = KeyCipher(_derive(passphrase(), salt, found.cost))
    try:
        cipher.open(found.check, _CHECKED)
    except ValueError:
        raise Failure(f"the passphrase is wrong for the keystore {root}") from None
    return cipher


def ask_passphrase(*, confirm: bool = False) -> str:
    """Return the passphrase: from the file that EYOT_TRUST_PASSPHRASE_FILE names, else from the terminal. Raises Failure."""
    named = os.environ.get(VARIABLE)
    if named:
        return read_text(Path(named)).partition("\n")[0]
    if not sys.stdin.isatty():
        raise Failure(f"the keystore is encrypted: name a file with the passphrase in {VARIABLE}, or use a terminal")
    return str(click.prompt("Passphrase of the keystore", hide_input=True, confirmation_prompt=confirm, err=True))


def _derive(passphrase: str, salt: bytes, cost: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=8, p=1).derive(passphrase.encode())
