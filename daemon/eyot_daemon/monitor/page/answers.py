"""The addresses of the local page: `/eyot/page`, its JSON, the history and the support bundle.

The addresses of `access.py` log users in and act. A browser is answered only under a name of this machine: a foreign web site that lets its own name point
here (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from importlib import resources

import msgspec

from eyot_daemon.client.clients import Clients
from eyot_daemon.monitor.page.access import Access
from eyot_daemon.monitor.page.addresses import ACTIONS, BACKUP, BUNDLE
from eyot_daemon.monitor.page.history import History, HistoryReport
from eyot_daemon.monitor.page.report import PageReporter
from eyot_daemon.monitor.page.support_bundle import SupportBundle, as_response
from eyot_serving.browsers import is_own_name
from eyot_serving.http_messages import HttpRequest, HttpResponse, plain_text

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)
_MINUTE_NS = 60 * 10**9
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class PageAnswers:
    """What the page's addresses answer. The service owns `history`; `sample` adds the present to it."""

    def __init__(
        self, clients: Clients, history: History, bundle: SupportBundle, sample: Callable[[], None], access: Access
    ) -> None:
        self._clients = clients
        self._history = history
        self._support_bundle = bundle
        self._reporter = PageReporter(clients, bundle.recent)
        self._sample = sample
        self._access = access

    def answer(self, path: str, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer one of `addresses.PATHS`."""
        if not is_own_name(request.host, self._clients.broker.options.eyot.http.hosts):
            return plain_text("the page is not served under this name: see eyot { http { hosts } }", 421)
        if path in ACTIONS:
            return self._access.answer(path, request)
        if path == BACKUP:
            return self._access.backup(request)
        if request.method not in ("GET", "HEAD") and (path, request.method) != (BUNDLE, "POST"):
            return plain_text("Method Not Allowed", 405, [("Allow", "GET, HEAD")])
        if path == "/eyot/page":
            html, policy = document()
            headers = (*_HEADERS, ("Content-Security-Policy", policy), ("X-Frame-Options", "DENY"))
            return HttpResponse(html, "text/html; charset=utf-8", 200, headers)
        if path == "/eyot/page.json":
            return _json(self._reporter.report())
        if path == "/eyot/history.json":
            return _json(self.day())
        return self._access.may_have_bundle(request) or self._bundle()

    def day(self) -> HistoryReport:
        """Return the history up to now."""
        self._sample()
        return self._history.report(self._clients.broker.clock.now_ns() // _MINUTE_NS)

    def _bundle(self) -> HttpResponse:
        return as_response(*self._support_bundle.make(), _HEADERS)


@cache
def document() -> tuple[bytes, str]:
    """Return the document and its Content-Security-Policy, which allows the document's own style and script by their hashes."""
    html = resources.files(__package__).joinpath("page.html").read_bytes()
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(html):
        hashes[kind.decode()] = base64.b64encode(sha256(text).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _json(body: object) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(body), headers=_HEADERS)
