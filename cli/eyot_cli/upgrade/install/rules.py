"""What root installs: the signature over a manifest, and the rules by which this device accepts it.

The rules are those of `eyot_cli.upgrade.manifest`, applied again by root to what an account without rights has fetched. A manifest that
withdraws another one is not looked for here: whoever can hide it from `eyot upgrade fetch` can hide it here, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eyot_cli.upgrade.install.files import read_trusted
from eyot_cli.upgrade.install.refusal import Refused

if TYPE_CHECKING:
    from eyot_cli.upgrade.install.dpkg import Dpkg

PACKAGE: Final = "eyot"
#: A signed manifest, and a public key, bytes at most.
SIGNED_MAX: Final = 64 * 1024
KEY_MAX: Final = 16 * 1024
_CONTEXT: Final = b"eyot upgrade manifest 1\n"
_CLOCK_SKEW: Final = timedelta(hours=1)
#: An Ed25519 public key in DER (RFC 8410) begins with this; 32 bytes follow.
_SPKI: Final = bytes.fromhex("302a300506032b6570032100")
_PEM: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*\Z")
_VERSION: Final = r"(?:[0-9]{1,9}:)?[0-9][A-Za-z0-9.+~:-]{0,99}"
_NAME: Final = r"[a-z0-9][a-z0-9._-]{0,63}"
#: Every member of a manifest with the form of its text. One that is not listed may be a condition: it is refused.
_TEXTS: Final = {"package": _NAME, "version": _VERSION, "architecture": _NAME, "release": _NAME, "sha256": "[0-9a-f]{64}",
                 "issued": ".+", "expires": ".+", "minimum": f"|{_VERSION}"}  # fmt: skip
_LISTS: Final = {"rings": _NAME, "rollback_from": _VERSION}
_OPTIONAL: Final = {"minimum": "", "rollback_from": []}


@dataclass(frozen=True)
class Offer:
    """A manifest whose signature is verified."""

    package: str
    version: str
    architecture: str
    release: str
    sha256: str
    size: int
    rings: list[str]
    issued: datetime
    expires: datetime
    minimum: str
    rollback_from: list[str]

    @property
    def file_name(self) -> str:
        return f"{self.package}_{self.version}_{self.architecture}.deb"


def pinned_keys(folder: Path) -> dict[str, bytes]:
    """Return the pinned public keys in PEM by their ids, as `eyot_cli.upgrade.signing.key_id` gives them. Raises Refused."""
    keys = {}
    for name, pem in read_trusted(folder, ".pub", KEY_MAX).items():
        found = _PEM.search(pem)
        try:
            der = b"" if found is None else base64.b64decode(found[1])
        except binascii.Error:
            der = b""
        if len(der) != len(_SPKI) + 32 or not der.startswith(_SPKI):
            raise Refused(f"{folder / name}: no Ed25519 public key in PEM")
        keys[hashlib.sha256(der[len(_SPKI) :]).hexdigest()[:16]] = pem
    if not keys:
        raise Refused(f"{folder} has no public key: put the signer's there, as NAME.pub")
    return keys


def open_signed(data: bytes, keys: dict[str, bytes]) -> Offer:
    """Verify a signed manifest, then decode it. Raises Refused."""
    try:
        signed = json.loads(data)
        manifest = base64.b64decode(signed["manifest"], validate=True)
        signature = base64.b64decode(signed["signature"], validate=True)
        key = keys.get(signed["key"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"it is no signed manifest: {error!r}") from None
    if key is None:
        raise Refused(f"it is signed by the key {str(signed['key'])[:80]!r}, which is not pinned here")
    if not _verifies(key, _CONTEXT + manifest, signature):
        raise Refused(f"its signature is not that of the key {signed['key']}")
    try:
        return _offer(json.loads(manifest))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"this release cannot read the manifest: {error!r}") from None


def _verifies(key: bytes, data: bytes, signature: bytes) -> bool:
    """Ask OpenSSL. Files without names hold what it reads, so that nobody can exchange them. Raises Refused."""
    with ExitStack() as stack:
        paths = []
        for content in (key, data, signature):
            file = stack.enter_context(os.fdopen(os.memfd_create("eyot-upgrade"), "r+b", buffering=0))
            file.write(content)
            paths.append(file.fileno())
        named = [f"/proc/self/fd/{number}" for number in paths]
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", named[0], "-rawin", "-in", named[1]]
        try:
            done = subprocess.run([*command, "-sigfile", named[2]], pass_fds=paths, capture_output=True, check=False)
        except OSError as error:
            raise Refused(f"openssl: {error.strerror}: apt-get install openssl") from error
    return done.returncode == 0 and b"Verified Successfully" in done.stdout


def _offer(members: dict[str, Any]) -> Offer:
    """Decode a manifest. Raises ValueError, TypeError, KeyError."""
    members = {**_OPTIONAL, **members}
    known = {"format", "size", *_TEXTS, *_LISTS}
    if members.keys() != known or members["format"] != 1 or type(members["size"]) is not int or members["size"] <= 0:
        raise ValueError(f"its members are {', '.join(sorted(members))}")
    texts = [(members[name], form) for name, form in _TEXTS.items()]
    texts += [(each, form) for name, form in _LISTS.items() for each in members[name]]
    for text, form in texts:
        if re.fullmatch(form, text) is None:
            raise ValueError(text)
    times = {name: datetime.fromisoformat(members[name]) for name in ("issued", "expires")}
    if any(each.tzinfo is None for each in times.values()):
        raise ValueError("a time without its zone")
    return Offer(**{name: members[name] for name in known - {"format"}} | times)


def check(offer: Offer, dpkg: Dpkg, installed: str, release: str, ring: str, refused: Iterable[str]) -> None:
    """Refuse a package that is not for this device now. `refused`: SHA-256 of packages not to be tried again. Raises Refused."""
    now = datetime.now(UTC)
    if offer.package != PACKAGE:
        raise Refused(f"it is for the package {offer.package}")
    if offer.architecture != dpkg.architecture():
        raise Refused(f"it is for {offer.architecture}, the device is {dpkg.architecture()}")
    if offer.release != release:
        raise Refused(f"it is for {offer.release}, the device runs {release}")
    if ring not in offer.rings:
        raise Refused(f"it is open to {', '.join(offer.rings)}, the device is in {ring}")
    if now + _CLOCK_SKEW < offer.issued:
        raise Refused(f"it was signed at {offer.issued:%Y-%m-%d %H:%M:%S %Z}, later than now: set the device's clock")
    if now >= offer.expires:
        raise Refused(f"it expired at {offer.expires:%Y-%m-%d %H:%M:%S %Z}: sign it again")
    if offer.sha256 in refused:
        raise Refused("this device went back from it")
    if dpkg.compare(offer.version, "eq", installed):
        raise Refused("it is installed")
    is_rollback = any(dpkg.compare(each, "eq", installed) for each in offer.rollback_from)
    if dpkg.compare(offer.version, "lt", installed) and not is_rollback:
        raise Refused(f"{installed} is installed, which is newer, and the manifest is no rollback from it")
    if offer.minimum and dpkg.compare(installed, "lt", offer.minimum):
        raise Refused(f"{installed} is installed, and it needs {offer.minimum} first")


def release_of(os_release: Path) -> str:
    """Return Debian's release as manifests name it: `deb12`. Raises Refused."""
    try:
        found = re.search(r'^VERSION_ID="?([0-9.]+)"?$', os_release.read_text(), re.MULTILINE)
    except OSError as error:
        raise Refused(f"{os_release}: {error.strerror}") from error
    if found is None:
        raise Refused(f"{os_release} names no VERSION_ID: packages are for Debian's stable releases")
    return f"deb{found[1]}"
