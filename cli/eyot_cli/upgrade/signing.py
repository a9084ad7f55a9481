"""Signatures over manifests: Ed25519, with keys in PEM as OpenSSL writes them, and public keys pinned in a folder."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.upgrade.manifest import Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The folder of a device's pinned keys, which root alone may change.
PINNED: Final = Path("/etc/eyot/upgrade-keys")
PUBLIC_SUFFIX: Final = ".pub"
#: A signed manifest, bytes at most.
SIGNED_MAX: Final = 64 * 1024
_KEY_FILE_MAX: Final = 16 * 1024
#: What is signed begins with this, so that a signature made for anything else is none of a manifest.
_CONTEXT: Final = b"eyot upgrade manifest 1\n"


class RefusedManifest(Exception):
    """A signed manifest, or the package it names, must not be used; the text says why."""


class SignedManifest(msgspec.Struct, frozen=True):
    """A manifest's bytes, and the signature over exactly these. Binary members are base64 in JSON."""

    manifest: bytes
    #: which of several pinned keys is tried (`key_id`)
    key: str
    signature: bytes


@dataclass(frozen=True)
class OpenedManifest:
    """A manifest whose signature is verified, and the id of the key that signed it."""

    manifest: Manifest
    key: str


def make_key(path: Path) -> str:
    """Write a new private key and beside it, with `.pub`, its public key; return its id. Raises Failure."""
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public_path = path.with_name(path.name + PUBLIC_SUFFIX)
    for each in (path, public_path):
        if each.exists():
            raise Failure(f"{each} exists: name another file, so that no key is lost")
    key = Ed25519PrivateKey.generate()
    write_private(path, key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()))
    public = key.public_key()
    write_private(public_path, public.public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo), mode=0o644)
    return key_id(public)


def key_id(key: Ed25519PublicKey) -> str:
    """Return a public key's id: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key that only its owner can read, and ask for its passphrase if it has one. Raises Failure."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        with path.open("rb") as file:
            data = file.read(_KEY_FILE_MAX)
            if b" PUBLIC KEY-" in data:
                raise Failure(f"{path} is a public key: the private key of the pair signs")
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise Failure(f"{path}: others may read this key: chmod 600 {path}, or make a new key")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    try:
        try:
            key = load_pem_private_key(data, None)
        except TypeError:  # it is encrypted
            key = load_pem_private_key(data, click.prompt("Passphrase", hide_input=True, err=True).encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Failure(f"{path}: no private key in PEM, or the passphrase is wrong: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Failure(f"{path}: no Ed25519 key: eyot upgrade keygen FILE makes one")
    return key


def sign(manifest: Manifest, key: Ed25519PrivateKey) -> bytes:
    """Return the signed manifest as it stands in a bucket."""
    data = msgspec.json.encode(manifest)
    return msgspec.json.encode(SignedManifest(data, key_id(key.public_key()), key.sign(_CONTEXT + data)))


def pinned_keys(folder: Path) -> dict[str, Ed25519PublicKey]:
    """Return the public keys `*.pub` of a folder by their ids.

    The folder and the files belong to root, or to whoever runs this, and nobody else may write them. Raises Failure.
    """
    keys: dict[str, Ed25519PublicKey] = {}
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_owner(folder, os.fstat(handle))
            for name in sorted(os.listdir(handle)):
                if name.endswith(PUBLIC_SUFFIX):
                    key = _read_pinned(handle, folder / name)
                    keys[key_id(key)] = key
        finally:
            os.close(handle)
    except OSError as error:
        raise Failure(
            f"{error.filename or folder}: {error.strerror}: put the signer's public key there, as NAME.pub"
        ) from error
    if not keys:
        raise Failure(f"{folder} has no public key: put the signer's there, as NAME.pub")
    return keys


def _read_pinned(folder: int, path: Path) -> Ed25519PublicKey:
    """Read a public key of an open folder. Raises OSError, Failure."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    # A fifo must not stop the command, nor a symbolic link lead out of the folder that was checked.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path.name, flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Failure(f"{path} is no regular file: put the public key itself there")
        _check_owner(path, status)
        data = file.read(_KEY_FILE_MAX)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Failure(f"{path}: no public key in PEM: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Failure(f"{path}: no Ed25519 key")
    return key


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise Failure if somebody else than root and the caller can change a file or folder."""
    if status.st_uid not in (0, os.geteuid()):
        raise Failure(f"{path} belongs to user {status.st_uid}: chown root {path}")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise Failure(f"{path}: others may change it: chmod go-w {path}")


def open_signed(data: bytes, keys: dict[str, Ed25519PublicKey]) -> OpenedManifest:
    """Verify a signed manifest, then decode it. Raises RefusedManifest."""
    from cryptography.exceptions import InvalidSignature

    signed = _decode(data)
    key = keys.get(signed.key)
    if key is None:
        raise RefusedManifest(f"it is signed by the key {signed.key}, which is not pinned here")
    try:
        key.verify(signed.signature, _CONTEXT + signed.manifest)
    except InvalidSignature:
        raise RefusedManifest(f"its signature is not that of the key {signed.key}") from None
    return OpenedManifest(_manifest_of(signed), signed.key)


def read_unverified(data: bytes) -> OpenedManifest:
    """Decode a signed manifest and do not verify it: for its signer and for listings. Raises RefusedManifest."""
    signed = _decode(data)
    return OpenedManifest(_manifest_of(signed), signed.key)


def _decode(data: bytes) -> SignedManifest:
    try:
        return msgspec.json.decode(data, type=SignedManifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusedManifest(f"it is no signed manifest: {error}") from None


def _manifest_of(signed: SignedManifest) -> Manifest:
    try:
        return msgspec.json.decode(signed.manifest, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusedManifest(f"this release cannot read the manifest: {error}") from None
