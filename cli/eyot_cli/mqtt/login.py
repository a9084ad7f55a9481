"""Where `eyot mqtt pub` and `sub` connect, and as whom; the options that both have."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from eyot_cli.connection.target import TIMEOUT_S, Target, TlsFiles
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.paths import FilePath
from eyot_wire.host_name import can_be_host
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.trust.creds import Credentials, parse_creds
from eyot_wire.trust.nkey import NkeyError

FILE: Final = FilePath(exists=True, dir_okay=False)
PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
LEVELS: Final = {"5": 5, "mqttv5": 5, "311": 4, "mqttv311": 4}
F = TypeVar("F", bound=Callable[..., Any])


class Listener(NamedTuple):
    """The MQTT listener of a server. `context` None: plain TCP. `shown`: its URL without a password."""

    host: str
    port: int
    context: ssl.SSLContext | None
    shown: str

    def connect(self) -> socket.socket:
        """Return a connected socket. Raises OSError."""
        raw = socket.create_connection((self.host, self.port), timeout=TIMEOUT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is None:
            return raw
        try:
            return self.context.wrap_socket(raw, server_hostname=self.host)
        except BaseException:
            raw.close()
            raise


class Login(NamedTuple):
    """What CONNECT says of the user; None: nothing. `credentials`: they sign the server's nonce (MQTT 5)."""

    username: str | None
    password: bytes | None
    credentials: Credentials | None = None


class Options(NamedTuple):
    """The options that publishing and subscribing have in common."""

    url: str
    host: str | None
    port: int | None
    client_id: str
    username: str | None
    password: str | None
    cafile: Path | None
    cert: Path | None
    key: Path | None
    level: int
    keep_alive_s: int

    def listener(self, target: Target) -> Listener:
        """Return the listener that `--url`, `--host` and `--port` name. Raises Failure."""
        url = self.url if "://" in self.url else f"mqtt://{self.url}"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in PORTS or host is None or not can_be_host(host):
            raise Failure("--url: expected mqtt://HOST:PORT or mqtts://HOST:PORT")
        if self.host is not None and not can_be_host(self.host):
            raise Failure("--host: expected a host name or an address")
        host, port = self.host or host, self.port or port
        files = TlsFiles(self.cafile or target.tls.ca, self.cert or target.tls.cert, self.key or target.tls.key)
        secure = parts.scheme == "mqtts" or files.are_given
        port = port or PORTS["mqtts" if secure else "mqtt"]
        named = f"[{host}]" if ":" in host else host
        shown = f"{'mqtts' if secure else 'mqtt'}://{named}:{port}"
        return Listener(host, port, files.context() if secure else None, shown)

    def login(self, target: Target) -> Login:
        """Return user and password: `-u` and `-P`, else those of `--url`, else those of `eyot` itself."""
        file = target.creds or target.nkey
        if file is not None:
            if self.level != V5:
                raise Failure("--creds and --nkey need MQTT 5: leave -V out")
            return Login(None, None, _read_credentials(file))
        if self.username is not None or self.password is not None:
            return _login(self.username, self.password)
        parts = urlsplit(self.url if "://" in self.url else f"mqtt://{self.url}")
        if parts.username is not None:
            return _login(parts.username, parts.password)
        if target.user is not None and target.password is None:
            return _login("token", target.user)  # MQTT carries a token in the password's place
        return _login(target.user, target.password)


def _read_credentials(path: Path) -> Credentials:
    try:
        return parse_creds(path.read_text(errors="replace"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except NkeyError as error:
        raise Failure(f"{path}: {error}") from error


def _login(username: str | None, password: str | None) -> Login:
    return Login(username, None if password is None else password.encode())


def _level(_context: click.Context, _option: click.Parameter, text: str) -> int:
    return LEVELS[text]


_OPTIONS: Final = (
    click.option(
        "--url",
        default="mqtt://127.0.0.1:1883",
        envvar="EYOT_MQTT_URL",
        metavar="URL",
        help="the MQTT listener: mqtt://HOST:PORT or mqtts://HOST:PORT",
    ),
    click.option("--host", metavar="HOST", help="its host, instead of that in --url"),
    click.option("--port", "-p", type=click.IntRange(1, 65_535), metavar="PORT", help="its port, likewise"),
    click.option("--id", "-i", "client_id", default="", metavar="ID", help="client id; the server gives one without"),
    click.option("--username", "-u", metavar="NAME", help="user name; --user of eyot itself without"),
    click.option("--pw", "-P", "pw", metavar="TEXT", help="password; better in the environment (NATS_PASSWORD)"),
    click.option("--cafile", type=FILE, metavar="FILE", help="authority of the server's certificate; --tlsca without"),
    click.option("--cert", type=FILE, metavar="FILE", help="certificate to show to the server; --tlscert without"),
    click.option("--key", type=FILE, metavar="FILE", help="its key; --tlskey without"),
    click.option(
        "--protocol-version",
        "-V",
        "level",
        type=click.Choice(list(LEVELS)),
        default="5",
        callback=_level,
        help="version of MQTT",
    ),
    click.option(
        "--keepalive",
        "-k",
        type=click.IntRange(0, 65_535),
        default=60,
        metavar="SECONDS",
        help="longest silence; 0: none",
    ),
)


def connection_options(command: F) -> F:
    """Give a command the options of `Options`; `options_of` collects their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def options_of(values: dict[str, Any]) -> Options:
    """Return the options from a command's keyword arguments."""
    return Options(
        values["url"],
        values["host"],
        values["port"],
        values["client_id"],
        values["username"],
        values["pw"],
        values["cafile"],
        values["cert"],
        values["key"],
        values["level"],
        values["keepalive"],
    )


def user_properties(given: tuple[str, ...]) -> list[tuple[str, str]]:
    """Parse user properties of the command line. Raises BadParameter."""
    found: list[tuple[str, str]] = []
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{each!r} is not NAME:VALUE", param_hint="'--header'")
        found.append((name.strip(), value.strip()))
    return found
