"""The files with the key that encrypts the store: of the configuration, or credentials of systemd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eyot_daemon.config.jetstream import EyotStoreOptions

#: Names of the credentials, for `LoadCredentialEncrypted=`.
KEY_CREDENTIAL, PREV_KEY_CREDENTIAL = "eyot-store-key", "eyot-store-prev-key"


def key_files(options: EyotStoreOptions, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the files of the key and of the previous one; "": none."""
    file, previous = options.key_file, options.prev_key_file
    credentials = env.get("CREDENTIALS_DIRECTORY", "")
    if not file and credentials:
        named = Path(credentials)
        file = str(named / KEY_CREDENTIAL) if (named / KEY_CREDENTIAL).exists() else ""
        previous = str(named / PREV_KEY_CREDENTIAL) if (named / PREV_KEY_CREDENTIAL).exists() else ""
    return file, previous


def key_in(file: str) -> bytes:
    """Return the key in a file, without its line end. Raises OSError."""
    key = Path(file).read_bytes().rstrip(b"\r\n")
    if not key:
        raise OSError(f"{file} holds no key")
    return key
