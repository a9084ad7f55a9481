"""Files and addresses that say who logs in."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from eyot_cli.terminal.failure import Failure
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.nkey import NkeyError, is_public


def home_file(name: str) -> Path | None:
    """Return a file that a context names, from the home folder where it begins with ~."""
    return Path(os.path.expanduser(name)) if name else None


def without_login(url: str) -> str:
    """Return the URL without user and password."""
    try:
        parts = urlsplit(url.strip())
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    except ValueError:
        return url


def check_creds(path: Path) -> None:
    """Check a credentials file, since nats-py ignores a file without credentials. Raises Failure."""
    try:
        parse_creds(path.read_text(errors="replace"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except NkeyError as error:
        raise Failure(f"{path}: {error}") from error


def read_seed(path: Path) -> str:
    """Read the seed of a user's nkey, bare or between lines of dashes. Raises Failure."""
    try:
        credentials = parse_creds(path.read_text(errors="replace"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except NkeyError:
        raise Failure(f"{path}: not an nkey seed") from None
    if not is_public(credentials.public_key(), "U"):
        raise Failure(f"{path}: not the seed of a user's nkey, which begins with SU")
    return credentials.seed
