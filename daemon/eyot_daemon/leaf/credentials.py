"""The credentials that a remote presents to its hub: user and password of its URL, a credentials file, or an nkey seed.

Files are read at each attempt, so that renewed credentials apply without a restart.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from eyot_daemon.config.leaf import LeafUrl, RemoteOptions
from eyot_sync.leaf.events import LeafCredentials
from eyot_wire.trust.creds import parse_creds, token_of
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.nkey import NkeyError, Signer
from eyot_wire.trust.sealed_key import sealed_seed


class CredentialsError(Exception):
    """Unreadable credentials; the text names the file and contains nothing of it."""


def credentials_for(remote: RemoteOptions, url: LeafUrl) -> LeafCredentials:
    """Return the credentials for one attempt at `url`. Raises CredentialsError.

    For addresses that the hub announced, those of the first URL are used.
    """
    if remote.credentials:
        return _from_file(remote.credentials)
    if remote.nkey:
        return _from_seed(remote.nkey)
    first = remote.urls[0]
    source = url if url.user else first
    return LeafCredentials(user=source.user, password=source.password)


def _from_file(path: str) -> LeafCredentials:
    try:
        found = parse_creds(Path(path).read_text(), sealed_seed)
        signer = Signer(found.seed)
    except OSError as error:
        raise CredentialsError(f"credentials file {path}: {error.strerror}") from None
    except (NkeyError, UnicodeDecodeError) as error:
        raise CredentialsError(f"credentials file {path}: {error}") from None
    # nkey goes with seed-only credentials; a JWT names its own key.
    return LeafCredentials(jwt=found.jwt, nkey="" if found.jwt else signer.public_key, sign=signer.sign)


def out_of_date(remote: RemoteOptions, now_s: float) -> str:
    """Return the conflict between the local clock and the presented token; "" if there is none.

    The text accompanies a refusal and never prevents an attempt: a wrong clock must not keep a device away from its
    hub.
    """
    try:
        claims = decode(token_of(Path(remote.credentials).read_text())) if remote.credentials else None
    except (OSError, NkeyError, JwtError, UnicodeDecodeError):
        return ""
    if claims is None or claims.valid_at(now_s):
        return ""
    what, when = ("expired on", claims.exp) if claims.nbf <= now_s else ("begins on", claims.nbf)
    return f"the token in {remote.credentials} {what} {datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M} UTC by the clock here"


def token_expiry_s(file: str) -> int:
    """Return when the token of a credentials file expires, seconds since 1970; 0: never, or it cannot be read.

    A changed file is read again.
    """
    try:
        return _expiry_s(file, Path(file).stat().st_mtime_ns)
    except OSError:
        return 0


@lru_cache(maxsize=32)
def _expiry_s(file: str, _changed_ns: int) -> int:
    try:
        return decode(token_of(Path(file).read_text())).exp
    except (OSError, NkeyError, JwtError, UnicodeDecodeError):
        return 0


def _from_seed(value: str) -> LeafCredentials:
    """`nkey` of a remote is the seed itself or the path of a file with it."""
    seed = value.strip()
    where = "nkey"
    if not seed.startswith("SU"):
        where = f"nkey file {value}"
        try:
            seed = parse_creds(Path(value).read_text()).seed
        except OSError as error:
            raise CredentialsError(f"{where}: {error.strerror}") from None
        except (NkeyError, UnicodeDecodeError) as error:
            raise CredentialsError(f"{where}: {error}") from None
    try:
        signer = Signer(seed)
    except NkeyError as error:
        raise CredentialsError(f"{where}: {error}") from None
    return LeafCredentials(nkey=signer.public_key, sign=signer.sign)
