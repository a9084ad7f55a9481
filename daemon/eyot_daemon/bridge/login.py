"""What a bridge presents to its remote: user and password, of the configuration or of a file.

Files are read at each attempt, so that a renewed password applies without a restart. A file name without a directory
is looked for among systemd's credentials (`LoadCredential=`) first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from eyot_daemon.config.bridges import BridgeOptions

#: A password of MQTT has at most 65,535 bytes; a file may end with a line end.
_PASSWORD_BYTES_MAX = 65_535


class LoginError(Exception):
    """A file that cannot be used; the text names it and contains nothing of it."""


class Login(NamedTuple):
    """`user` None: none is sent."""

    user: str | None
    password: bytes | None


def login_of(bridge: BridgeOptions, env: Mapping[str, str]) -> Login:
    """Return what the bridge presents. Raises LoginError."""
    if bridge.tls is not None and bridge.tls.key_file:
        _check_private("key file", Path(bridge.tls.key_file))
    url = bridge.urls[0]
    user = bridge.user or url.user
    password: bytes | None = None
    if bridge.password_file:
        password = _read(_path_of(bridge.password_file, env))
    elif bridge.password is not None:
        password = bridge.password.encode()
    elif url.password is not None:
        password = url.password.encode()
    # MQTT 3.1.1 has no password without a user name.
    return Login(user if user or password is not None else None, password)


def _path_of(name: str, env: Mapping[str, str]) -> Path:
    directory = env.get("CREDENTIALS_DIRECTORY", "")
    if directory and "/" not in name and (Path(directory) / name).exists():
        return Path(directory) / name
    return Path(name)


def _read(path: Path) -> bytes:
    _check_private("password file", path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoginError(f"password file {path}: {error.strerror}") from None
    password = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(password) > _PASSWORD_BYTES_MAX:
        raise LoginError(f"password file {path}: longer than {_PASSWORD_BYTES_MAX} bytes")
    return password


def _check_private(what: str, path: Path) -> None:
    """Refuse a secret that anybody but its owner may read. One of root's may be for the daemon's group, too."""
    try:
        found = path.stat()
    except OSError as error:
        raise LoginError(f"{what} {path}: {error.strerror}") from None
    if found.st_uid not in (0, os.geteuid()):
        raise LoginError(f"{what} {path}: belongs to another user")
    for_group = found.st_uid == 0 and found.st_gid == os.getegid()
    if found.st_mode & (stat.S_IRWXO | (stat.S_IWGRP if for_group else stat.S_IRWXG)):
        raise LoginError(f"{what} {path}: others may read it (chmod 600 {path})")
