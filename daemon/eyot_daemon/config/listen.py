"""What all blocks that listen share: `listen: "host:port"`, `host` and `port`, and a login of their own."""

from __future__ import annotations

import re

from eyot_daemon.config.accounts import LOGIN_TIMEOUT_DEFAULT_S, AuthorizationOptions
from eyot_daemon.config.reader import PORT_MAX, Block, expect_integer, wrong_type
from eyot_wire.conf import ConfEntry, ConfError


def read_listen(block: Block) -> tuple[str | None, int | None]:
    """Host and port of a listener, each None if not given; `host` and `port` beat `listen`."""
    host: str | None = None
    port: int | None = None
    entry = block.entry("listen")
    if entry is not None:
        host, port = read_host_port(entry)
    if block.entry("host", "net") is not None:
        host = block.string("host", "net")
    if block.entry("port") is not None:
        port = block.port("port", default=0)
    return host, port


def read_listener_login(block: Block) -> AuthorizationOptions:
    """Return the single user or token of a listener's own `authorization { }`, which replaces the server's own."""
    return AuthorizationOptions(
        user=block.string("user", "username"),
        password=block.string("pass", "password"),
        token=block.string("token"),
        timeout_s=block.timeout("timeout", default=LOGIN_TIMEOUT_DEFAULT_S),
    )


def read_host_port(entry: ConfEntry) -> tuple[str | None, int]:
    """Read a port, or `host:port` (`[::1]:4222` for IPv6; an empty host is None)."""
    value = entry.value
    if isinstance(value.value, int) and not isinstance(value.value, bool):
        return None, expect_integer(value, entry.key, -1, PORT_MAX)
    if not isinstance(value.value, str):
        raise wrong_type("a port or host:port", value, entry.key)
    try:
        return split_host_port(value.value)
    except ValueError as error:
        raise ConfError(str(error), value.position, entry.key) from None


def split_host_port(text: str) -> tuple[str | None, int]:
    """Split `host:port`. Raises ValueError in nats-server's words."""
    host, separator, digits = text.rpartition(":")
    if not separator or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f'could not parse address string "{text}"')
    port = int(digits) if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", digits) else PORT_MAX + 1
    if not -1 <= port <= PORT_MAX:
        raise ValueError(f'could not parse port "{digits}"')
    return host.removeprefix("[").removesuffix("]") or None, port
