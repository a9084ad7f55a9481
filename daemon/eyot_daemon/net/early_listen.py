"""Listening sockets that are there before the daemon is loaded.

nats-server listens ten milliseconds after its start, and some launchers (that of the Java client's tests, for one) give a server
a tenth of a second and then connect once. Loading takes longer than that. So the ports of clients and of WebSocket clients are
bound first thing: who connects meanwhile waits in the kernel's queue for its INFO instead of being refused.

`listen_early` never fails and says nothing: whatever is wrong with the command line, the file or a port is found again, and
told, where it belongs. `bind` gives out what is held.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from eyot_daemon.config.flags import UsageError, parse_flags

#: Connections the kernel holds until they are accepted; a burst beyond it waits a second for its SYN to be repeated.
BACKLOG = 4096
CLIENT_PORT_DEFAULT = 4222
HOST_DEFAULT = "0.0.0.0"
#: Commands that start no server.
_NO_SERVER = ("help", "help_tls", "version", "test_config", "signal")

_held: dict[tuple[str, int], socket.socket] = {}


def bind(host: str, port: int) -> socket.socket:
    """A bound and listening socket, that held for this address if there is one; `port` 0: any free one. Raises OSError."""
    held = _held.pop((host, port), None)
    return held if held is not None else _bind(host, port)


def release() -> None:
    """Close what nobody asked for."""
    while _held:
        _held.popitem()[1].close()


def listen_early(argv: Sequence[str]) -> None:
    """Bind and hold the ports for which this command line and its configuration file ask."""
    with suppress(UsageError, OSError, ValueError, RecursionError):
        for host, port in addresses(argv):
            _held[host, port] = _bind(host, port)


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host in ("::", ""):
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def addresses(argv: Sequence[str]) -> list[tuple[str, int]]:
    """Hosts and ports of the listeners for clients, without those for which any port would do."""
    flags = parse_flags(argv)
    if any(flags.get(name) for name in _NO_SERVER):
        return []
    conf = _plain_file(str(flags["config"])) if flags.get("config") else {}
    host, port = _listener(conf, CLIENT_PORT_DEFAULT)
    found = [(str(flags.get("addr", host)), int(flags.get("port", port)))]
    websocket = conf.get("websocket", conf.get("ws"))
    if isinstance(websocket, dict):
        found.append(_listener({key.lower(): value for key, value in websocket.items()}, 0))
    return [(host, port) for host, port in found if 0 < port < 65_536]


def _plain_file(path: str) -> dict[str, object]:
    # Not needed where there is no file.
    from eyot_wire.conf import ConfError, parse_file

    try:
        conf = parse_file(path).plain()
    except ConfError as error:
        raise ValueError(str(error)) from None
    return {key.lower(): value for key, value in conf.items()}


def _listener(block: dict[str, object], default: int) -> tuple[str, int]:
    """Host and port of a block as `config/listen.py` reads them; UsageError or ValueError for what it would refuse."""
    host, port = HOST_DEFAULT, default
    listen = block.get("listen")
    if isinstance(listen, int):
        port = listen
    elif listen is not None:
        before, _, digits = str(listen).rpartition(":")
        host, port = before.removeprefix("[").removesuffix("]") or HOST_DEFAULT, int(digits)
    host = str(block.get("host", block.get("net", host)))
    chosen = block.get("port", port)
    if not isinstance(chosen, int):
        raise UsageError("not a port")
    return host, chosen
