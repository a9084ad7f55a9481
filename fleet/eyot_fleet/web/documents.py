"""The files of the page, as browsers get them: compressed once, with a policy that allows this origin alone."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from eyot_fleet.web.answers import refusal
from eyot_serving.http_messages import HttpResponse

if TYPE_CHECKING:
    from eyot_serving.http_messages import HttpRequest

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("Cache-Control", "no-cache"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Content-Security-Policy", POLICY),
    ("X-Frame-Options", "DENY"),
    ("Vary", "Accept-Encoding"),
)
#: A year: browsers come back by https alone.
_STRICT: Final = ("Strict-Transport-Security", "max-age=31536000")


class _File(Struct, frozen=True):
    kind: str
    plain: bytes
    packed: bytes
    tag: str


@cache
def files() -> dict[str, _File]:
    """Return the page's files by their addresses."""
    found = {}
    for each in (resources.files(__package__) / "page").iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            plain = each.read_bytes()
            address = "/" if each.name == "index.html" else f"/{each.name}"
            tag = f'"{sha256(plain).hexdigest()[:20]}"'
            found[address] = _File(kind, plain, gzip.compress(plain, mtime=0), tag)
    return found


def document(request: HttpRequest, *, secure: bool) -> HttpResponse:
    """Answer with a file of the page."""
    file = files().get(request.path)
    if file is None:
        return refusal(404, "there is no such page")
    headers = (*_HEADERS, ("ETag", file.tag), *((_STRICT,) if secure else ()))
    if request.headers.get("if-none-match") == file.tag:
        return HttpResponse(b"", file.kind, 304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return HttpResponse(file.packed, file.kind, 200, (*headers, ("Content-Encoding", "gzip")))
    return HttpResponse(file.plain, file.kind, 200, headers)
