"""`[web]` of fleet.toml: where the page is, who may log in, and what operators may do."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from eyot_fleet.errors import ConfigError
from eyot_wire.digits import parse_uint

VIEWER: Final = "viewer"
OPERATOR: Final = "operator"
#: What an operator may do; `[web] actions` names the ones that are offered.
ACTIONS: Final = ("ask", "connect", "label", "configure", "rollout", "revoke", "forget", "withdraw")
#: In a list of names: everybody that can log in.
ANYBODY: Final = "*"
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class NatsOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web.nats]`: users of the hub that may log in with their password. A name, a user's public key, or `*`."""

    #: the account that the users must belong to
    account: str = "$G"
    viewers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class OidcOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web.oidc]`: an OpenID provider that users log in with."""

    issuer: str
    client_id: str
    #: a file with the client's secret; "": a public client, protected by PKCE alone
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile")
    #: claim of the id_token that is shown, and written to the audit stream beside `sub`
    name_claim: str = "preferred_username"
    #: claim with the user's roles or groups; dots lead into objects (`realm_access.roles`)
    role_claim: str = "groups"
    viewers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    #: certificates that sign the provider's, "": the system's
    ca: str = ""
    #: what the button says
    label: str = "Log in with single sign-on"


class TrustOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web.trust]`: how revocations and withdrawals reach the store of `eyot trust`."""

    account: str
    #: the operator's tool up to the group `fleet` and its options, as in ["eyot", "-s", "tls://hub:4222", "fleet"]
    command: tuple[str, ...] = ("eyot", "fleet")


class WebOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web]`."""

    listen: str = "127.0.0.1:8300"
    cert: str = ""
    key: str = ""
    #: names under which the page is served, besides this machine's own
    hosts: tuple[str, ...] = ()
    #: the page's address as browsers see it; needed for OIDC, and behind a proxy that speaks https
    url: str = ""
    #: the addresses of proxies in front of the page that add their client's address to X-Forwarded-For
    proxies: tuple[str, ...] = ()
    actions: tuple[str, ...] = ACTIONS
    nats: NatsOptions | None = None
    oidc: OidcOptions | None = None
    trust: TrustOptions | None = None

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the page by https."""
        return bool(self.cert) or self.url.startswith("https://")

    def address(self) -> tuple[str, int]:
        """Return host and port to listen on. Raises ConfigError."""
        host, colon, port = self.listen.rpartition(":")
        number = parse_uint(port)
        if not colon or number is None or number > 65535:
            raise ConfigError(f"web.listen: {self.listen!r}: expected HOST:PORT")
        return host.strip("[]") or "0.0.0.0", number

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what the page is served with; None without a certificate. Raises ConfigError."""
        if not self.cert:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for name, file in (("web.cert", self.cert), ("web.key", self.key)):
            try:
                Path(file).read_bytes()
            except OSError as error:
                raise ConfigError(f"{name}: {file}: {error.strerror}") from None
        try:
            context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise ConfigError(f"web.cert and web.key: {error.strerror or error}") from None
        return context

    def check(self) -> None:
        """Check what can be checked before the service starts. Raises ConfigError."""
        self.address()
        if bool(self.cert) != bool(self.key):
            raise ConfigError("web.cert and web.key go together")
        if unknown := sorted(set(self.actions) - set(ACTIONS)):
            raise ConfigError(f"web.actions: {unknown[0]!r} is none of {', '.join(ACTIONS)}")
        if self.nats is None and self.oidc is None:
            raise ConfigError("web: nobody could log in: add [web.nats] or [web.oidc]")
        if self.url:
            _check_url("web.url", self.url)
            if urlsplit(self.url).path not in ("", "/"):
                raise ConfigError("web.url: the page is served at the root of its host: the address has no path")
        if self.oidc is not None:
            self._check_oidc(self.oidc)
        if self.nats is not None and not (self.nats.viewers or self.nats.operators):
            raise ConfigError("web.nats: nobody could log in: name viewers or operators")

    def _check_oidc(self, oidc: OidcOptions) -> None:
        if not self.url:
            raise ConfigError("web.url is needed for [web.oidc]: the provider sends browsers back there")
        _check_url("web.oidc.issuer", oidc.issuer)
        if not (oidc.viewers or oidc.operators):
            raise ConfigError("web.oidc: nobody could log in: name viewers or operators")
        if "openid" not in oidc.scopes:
            raise ConfigError("web.oidc.scopes must have openid")
        client_secret(oidc)


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
    except ValueError:
        raise ConfigError(f"{name}: no URL") from None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{name}: expected https://HOST")
    if not secure and host not in _LOCAL_HOSTS:
        raise ConfigError(f"{name}: plain http is for this machine alone: use https")


def client_secret(oidc: OidcOptions) -> str:
    """Return the secret of the client at the provider, "" for a public client. Raises ConfigError."""
    if not oidc.client_secret_file:
        return ""
    path = oidc.client_secret_file
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"web.oidc.client_secret_file: {path}: {said}") from error
    if not secret:
        raise ConfigError(f"web.oidc.client_secret_file: {path}: the file is empty")
    return secret


def role_of(names: tuple[str, ...], viewers: tuple[str, ...], operators: tuple[str, ...]) -> str:
    """Return the highest role that any of a user's names has, "" for none."""
    for role, allowed in ((OPERATOR, operators), (VIEWER, viewers)):
        if ANYBODY in allowed or any(name in allowed for name in names if name):
            return role
    return ""
