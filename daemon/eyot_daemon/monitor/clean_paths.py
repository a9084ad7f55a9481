"""Paths of the monitoring pages as Go's ServeMux takes them: one that is not clean is redirected to the one that is.

Exporters put an address that ends in a slash before `/varz`, and follow the redirect of `//varz`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def clean(path: str) -> str:
    """Without empty, `.` and `..` elements (Go's `path.Clean`); the slash at the end stays."""
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned


class CleanPaths:
    """ASGI middleware: 307 to the clean path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or clean(scope["path"]) == scope["path"]:
            await self._app(scope, receive, send)
            return
        from starlette.datastructures import URL
        from starlette.responses import RedirectResponse

        where = URL(path=clean(scope["path"]), query=scope["query_string"].decode("latin-1"))
        await RedirectResponse(str(where), status_code=307)(scope, receive, send)
