"""Where the hub is, and who logs in there."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from eyot_fleet.errors import ConfigError
from eyot_wire.host_name import can_be_host
from eyot_wire.info import ClientConnect
from eyot_wire.trust.creds import Credentials, parse_creds
from eyot_wire.trust.nkey import NkeyError
from eyot_wire.trust.tls import verifying_context

if TYPE_CHECKING:
    from eyot_wire.info import ServerInfo

DEFAULT_PORT: Final = 4222


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers, tried one after the other, and a login. Files are read at each dial, so that renewed ones take effect.

    repr() leaves secrets out.
    """

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    creds: str = ""
    nkey: str = ""
    user: str = ""
    password: str = ""
    #: a file with the password, in place of `password`
    password_file: str = ""
    token: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    #: the TLS handshake comes before INFO
    tls_first: bool = False

    def __repr__(self) -> str:
        return f"Login({', '.join(self.servers)})"

    def check(self) -> None:
        """Check addresses and files. Raises ConfigError."""
        if not self.servers:
            raise ConfigError("servers: at least one address of the hub is needed")
        for server in self.servers:
            split_server(server)
        given = [name for name in ("creds", "nkey", "user", "token") if getattr(self, name)]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} are given: one login is enough")
        self._credentials()
        self._password()
        if self.wants_tls:
            self.context()

    @property
    def wants_tls(self) -> bool:
        """Whether a setting requests TLS, whatever the address says."""
        return self.tls_first or bool(self.ca or self.cert)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client. Raises ConfigError."""
        try:
            context = verifying_context(self.ca or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except OSError as error:
            named = self.ca if not self.cert else f"{self.ca or 'the system'} and {self.cert}"
            raise ConfigError(f"TLS: {named}: {error.strerror or error}") from error
        return context

    def connect(self, info: ServerInfo, name: str, *, tls: bool) -> ClientConnect:
        """Return the CONNECT that answers a server's INFO. Raises ConfigError."""
        connect = ClientConnect(
            verbose=False,
            pedantic=False,
            tls_required=tls,
            name=name,
            lang="python",
            version="1",
            protocol=1,
            headers=True,
            no_responders=True,
            user=self.user,
            password=self._password(),
            auth_token=self.token,
        )
        credentials = self._credentials()
        if credentials is not None:
            connect.jwt = credentials.jwt
            connect.nkey = "" if credentials.jwt else credentials.public_key()
            connect.sig = credentials.sign(info.nonce) if info.nonce else ""
        return connect

    def _credentials(self) -> Credentials | None:
        name, path = ("creds", self.creds) if self.creds else ("nkey", self.nkey)
        if not path:
            return None
        try:
            return parse_creds(Path(path).read_text())
        except OSError as error:
            raise ConfigError(f"{name}: {path}: {error.strerror}") from error
        except (NkeyError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: {path}: no usable credentials") from error

    def _password(self) -> str:
        if not self.password_file:
            return self.password
        try:
            return Path(self.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"password_file: {self.password_file}: {said}") from error


def split_server(server: str) -> tuple[str, str, int]:
    """Return scheme, host and port of `nats://host:port`, `tls://host` or `host:port`. Raises ConfigError."""
    try:
        url = urlsplit(server if "://" in server else f"nats://{server}")
        port = url.port
    except ValueError:
        raise ConfigError("servers: an address is no URL of the form nats://HOST:PORT") from None
    if url.username or url.password:
        raise ConfigError("servers: a login does not belong into the address: use user and password, or creds")
    if url.scheme not in ("nats", "tls") or not can_be_host(unquote(url.hostname or "")):
        raise ConfigError(f"servers: {server!r}: expected nats://HOST:PORT or tls://HOST:PORT")
    return url.scheme, unquote(url.hostname or ""), port or DEFAULT_PORT
