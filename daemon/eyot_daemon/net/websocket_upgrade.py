"""The HTTP request that opens a WebSocket: which ones are accepted, and the answers.

`check_upgrade` checks a request (path, origin, headers) and returns a `Verdict`, without I/O. Any path is a client's,
except one that ends in `/leafnode` (a leaf node) or `/mqtt` (a client of MQTT).
"""

from __future__ import annotations

import base64
import re
from urllib.parse import urlsplit

from msgspec import Struct

from eyot_daemon.config.options import WebsocketOptions

LEAF_PATH = "/leafnode"
MQTT_PATH = "/mqtt"
#: What a Sec-WebSocket-Key is, decoded.
KEY_BYTES = 16
#: Headers with one required element, and that element.
_REQUIRED = {b"upgrade": b"websocket", b"connection": b"Upgrade", b"sec-websocket-version": b"13"}
#: Headers of which the first one counts.
_ONCE = (b"host", b"sec-websocket-key")
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_COOKIE_VALUE = re.compile(r"[ !#-:<-\[\]-~]*")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class UpgradeError(Exception):
    """The peer did not open a WebSocket. `status`: the HTTP status of the answer; 0: there is none to give."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Cookies(Struct, frozen=True, kw_only=True):
    """Credentials from the configured cookies; they fill in what CONNECT leaves out."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Cookies(***)"


class Verdict(Struct, frozen=True, kw_only=True):
    """`status` 101: welcome; otherwise the HTTP status and reason of the refusal."""

    status: int = 101
    reason: str = ""
    is_leaf: bool = False
    is_mqtt: bool = False
    is_browser: bool = False
    cookies: Cookies = Cookies()


def handshake_headers(method: bytes, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Check what RFC 6455 (4.2.1) asks of a request, in nats-server's order; names of `headers` are lower-case.

    Returns the headers with the required ones in their plainest form. Raises UpgradeError with the status of the answer.
    """
    if method != b"GET":
        raise UpgradeError("request method must be GET", 405)
    if not any(name == b"host" and value for name, value in headers):
        raise UpgradeError("'Host' missing in request", 400)
    for required in (b"upgrade", b"connection"):
        if _REQUIRED[required].lower() not in _tokens(headers, required):
            raise UpgradeError(f"invalid value for header '{required.decode().capitalize()}'", 400)
    key = next((value for name, value in headers if name == b"sec-websocket-key"), b"")
    if not key:
        raise UpgradeError("key missing", 400)
    try:
        size = len(base64.b64decode(key, validate=True))
    except ValueError:
        size = 0
    if size != KEY_BYTES:
        raise UpgradeError("invalid websocket key", 400)
    if _REQUIRED[b"sec-websocket-version"] not in _tokens(headers, b"sec-websocket-version"):
        raise UpgradeError("invalid version", 400)
    plain = [(name, value) for name, value in headers if name not in _REQUIRED and name not in _ONCE]
    once = [(name, value) for name in _ONCE for value in [v for n, v in headers if n == name][:1]]
    return [*plain, *once, *_REQUIRED.items()]


def _tokens(headers: list[tuple[bytes, bytes]], name: bytes) -> set[bytes]:
    """Return the elements of a header that is a list, which may be spread over several lines, in lower case."""
    return {token.strip(b" \t").lower() for n, value in headers if n == name for token in value.split(b",")}


def check_upgrade(target: str, headers: dict[str, str], options: WebsocketOptions, *, secure: bool) -> Verdict:
    """`headers`: lower-case names. `secure`: the connection runs over TLS."""
    try:
        path = urlsplit(target).path
    except ValueError:
        return Verdict(status=400, reason="invalid request target")
    wrong = _wrong_origin(headers, options, secure=secure)
    if wrong:
        return Verdict(status=403, reason=f"origin not allowed: {wrong}")
    return Verdict(
        is_leaf=path.endswith(LEAF_PATH),
        is_mqtt=path.endswith(MQTT_PATH),
        is_browser=headers.get("user-agent", "").startswith("Mozilla/"),
        cookies=_cookies(headers.get("cookie", ""), options),
    )


def _wrong_origin(headers: dict[str, str], options: WebsocketOptions, *, secure: bool) -> str:
    """Return why a browser's page may not open this connection; "": it may. Programs send no Origin."""
    if not options.same_origin and not options.allowed_origins:
        return ""
    origin = headers.get("origin") or headers.get("sec-websocket-origin", "")
    if not origin:
        return ""
    try:
        asked = _place(origin)
        if options.same_origin:
            own = _place(f"{'https' if secure else 'http'}://{headers.get('host', '')}")
            if asked[1:] != own[1:]:
                return "not same origin"
        allowed = [_place(one) for one in options.allowed_origins]
    except ValueError:
        return "invalid origin"
    return "" if not allowed or asked in allowed else "not in the allowed list"


def _place(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port. Raises ValueError without a host."""
    parts = urlsplit(url.strip().lower())
    if not parts.hostname:
        raise ValueError(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def _cookies(header: str, options: WebsocketOptions) -> Cookies:
    wanted = (options.jwt_cookie, options.user_cookie, options.pass_cookie, options.token_cookie)
    if not header or not any(wanted):
        return Cookies()
    jar = _jar(header)
    jwt, user, password, token = (jar.get(name, "") if name else "" for name in wanted)
    return Cookies(jwt=jwt, user=user, password=password, token=token)


def _jar(header: str) -> dict[str, str]:
    """Return the cookies of a header by Go's rules: a malformed one, which may be another application's, is passed over.

    The reader of Python's library forgets all cookies at the first malformed one.
    """
    jar: dict[str, str] = {}
    for part in header.split(";"):
        name, _, value = part.strip(" \t").partition("=")
        name = name.strip(" \t")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if _COOKIE_NAME.fullmatch(name) and _COOKIE_VALUE.fullmatch(value):
            jar[name] = value
    return jar
