"""Binds the sockets for clients before the daemon is loaded; they listen when the daemon is ready.

A port in use is detected at once, and no other process can take this server's port while the daemon loads. Clients
cannot connect before the daemon serves: a health check sees a server only when it is ready, and a second daemon on the
same store fails without having accepted any client.

Some launchers wait a tenth of a second and then connect once (the one of the Java client's tests, for example); loading
is slower. With `EYOT_LISTEN_EARLY` in the environment the sockets listen from the start, and early clients wait in
the kernel's queue.

`listen_early` never fails and prints nothing: an error in the command line, the file or a port is found again, and
reported, by the code responsible for it. `take` returns the bound sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from eyot_daemon.config.flags import UsageError, parse_flags
from eyot_daemon.net.binding import bind

#: Connections the kernel holds until they are accepted; a burst beyond it waits a second for its SYN to be repeated.
BACKLOG = 4096
CLIENT_PORT_DEFAULT = 4222
LISTEN_EARLY = "EYOT_LISTEN_EARLY"
HOST_DEFAULT = "0.0.0.0"
#: Commands that start no server.
_NO_SERVER = ("help", "help_tls", "version", "test_config", "signal")

_held: dict[tuple[str, int], socket.socket] = {}


def take(host: str, port: int) -> socket.socket:
    """Return a bound socket, the held one for this address if there is one; `port` 0: any free one. Raises OSError."""
    held = _held.pop((host, port), None)
    return held if held is not None else bind(host, port)


def release() -> None:
    """Close sockets that were not used."""
    while _held:
        _held.popitem()[1].close()


def listen_early(argv: Sequence[str]) -> None:
    """Bind and hold the ports of this command line and its configuration file."""
    with suppress(UsageError, OSError, ValueError, RecursionError):
        for host, port in addresses(argv):
            _held[host, port] = bind(host, port)
            if os.environ.get(LISTEN_EARLY):
                _held[host, port].listen(BACKLOG)


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
    mqtt = conf.get("mqtt")
    if isinstance(mqtt, dict):
        found.append(_listener({key.lower(): value for key, value in mqtt.items()}, 0))
    return [(host, port) for host, port in found if 0 < port < 65_536]


def _plain_file(path: str) -> dict[str, object]:
    # Not needed without a file.
    from eyot_wire.conf import ConfError, parse_file

    try:
        conf = parse_file(path).plain()
    except ConfError as error:
        raise ValueError(str(error)) from None
    return {key.lower(): value for key, value in conf.items()}


def _listener(block: dict[str, object], default: int) -> tuple[str, int]:
    """Return host and port of a block as `config/listen.py` reads them; UsageError or ValueError for invalid values."""
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
