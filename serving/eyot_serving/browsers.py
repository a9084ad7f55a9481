"""What a request of a browser says: whether the page itself sent it, which cookie it has, which name it was sent to."""

from __future__ import annotations

import ipaddress
import json
import socket
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from eyot_serving.http_messages import HttpRequest

_NAME_CHARS_MAX = 64


def foreign_problem(request: HttpRequest) -> str:
    """Return why a POST does not come from the page itself, "" if it does or is no browser's."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "expected Content-Type: application/json"
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "the request comes from another site"
    origin = request.headers.get("origin")
    try:
        if origin is not None and (not request.host or urlsplit(origin).netloc.lower() != request.host.lower()):
            return "the request comes from another site"
    except ValueError:
        return "the request comes from another site"
    return ""


def cookie_of(request: HttpRequest, name: str) -> str:
    """Return the value of a cookie, "" without it."""
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def set_cookie(name: str, value: str, *, age_s: float, secure: bool, same_site: str = "Strict") -> tuple[str, str]:
    """Return the header that sets a cookie which no script reads; an age of 0 removes it."""
    flag = "; Secure" if secure else ""
    return "Set-Cookie", f"{name}={value}; Path=/; HttpOnly; SameSite={same_site}; Max-Age={age_s:.0f}{flag}"


def is_own_name(host: str, names: tuple[str, ...]) -> bool:
    """Return whether a Host header names this machine: an address, localhost, its host name, or one of `names`.

    Without the header the request is not a browser's.
    """
    if not host:
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower().rstrip(".")
    except ValueError:
        return False
    own = socket.gethostname().lower()
    if name in ("localhost", own, f"{own.partition('.')[0]}.local", *names) or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def quoted(name: str) -> str:
    """Return a name that somebody sent, fit for a line of the log: quoted, ASCII, bounded."""
    return json.dumps(name if len(name) <= _NAME_CHARS_MAX else name[:_NAME_CHARS_MAX] + "...")
