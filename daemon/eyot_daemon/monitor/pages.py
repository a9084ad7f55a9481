"""The monitoring listener: nats-server's HTTP pages and Eyot's own, over TCP and over a Unix control socket.

`eyot_serving.http_server` serves them. The sockets are bound before it runs: early requests wait in their backlog.

`eyot status` shows `/eyot/status` (`eyot_wire.status.StatusReport`).
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec
import trio

from eyot_daemon.client.clients import Clients
from eyot_daemon.monitor import accounts as monitor_accounts
from eyot_daemon.monitor import connz as monitor_connz
from eyot_daemon.monitor import process as monitor_process
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.connz import BadQuery
from eyot_daemon.monitor.metrics import CONTENT_TYPE, exposition
from eyot_daemon.monitor.page.addresses import BUNDLE
from eyot_daemon.monitor.page.addresses import PATHS as PAGE_PATHS
from eyot_daemon.monitor.page.support_bundle import SupportBundle, as_response
from eyot_daemon.monitor.page_text import page_text
from eyot_daemon.monitor.queries import Query, connz_query, healthz_query, jsz_query, leafz_query, subsz_query
from eyot_daemon.net.binding import bind
from eyot_daemon.turn.slices import over_turns
from eyot_serving.http_messages import HttpRequest, HttpResponse, plain_text
from eyot_serving.http_server import serve

if TYPE_CHECKING:
    from eyot_daemon.monitor.page.answers import PageAnswers

log = logging.getLogger("eyot.monitor")

#: Requests that wait in the kernel until they are accepted.
BACKLOG = 128
#: Only the daemon's user and group may read and steer it through the control socket.
CONTROL_MODE = 0o660

#: Valid values of `?callback=`: a function's name, possibly qualified by object names.
_CALLBACK = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)

#: Returns the page, or `Slices` of it.
Page = Callable[[Query], object]


class Monitoring:
    """The pages of one server and the sockets they are served on."""

    def __init__(
        self,
        clients: Clients,
        page: Callable[[], PageAnswers | None] = lambda: None,
        bundle: SupportBundle | None = None,
    ) -> None:
        self.clients = clients
        self._page = page
        self._bundle = bundle
        self.broker = clients.broker
        self.requests: Counter[str] = Counter()
        self._cpu = monitor_server.CpuMeter()
        self._sockets: list[socket.socket] = []
        self._secure: list[socket.socket] = []
        #: of HTTPS connections accepted from now on
        self.tls: ssl.SSLContext | None = None
        self._control: Path | None = None
        self._opened = trio.Event()

    # -- sockets -------------------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Bind a TCP listener and open it; see `reserve`."""
        bound = self.reserve(host, port, tls)
        self.open()
        return bound

    def open(self) -> None:
        """Listen on the bound sockets. Raises OSError if another process was faster."""
        for sock in (*self._sockets, *self._secure):
            sock.listen(BACKLOG)
        self._opened.set()

    def reserve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Bind a TCP socket (`port` -1: any free one), with `tls` for HTTPS; return its address. Raises OSError."""
        sock = bind(host, max(port, 0))
        if tls is None:
            self._sockets.append(sock)
        else:
            self.tls = tls
            self._secure.append(sock)
        bound = sock.getsockname()
        return bound[0], bound[1]

    def listen_control(self, path: Path) -> None:
        """Bind the Unix control socket; one left over by a killed daemon is replaced. OSError if that is impossible."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                other.settimeout(1.0)
                if other.connect_ex(str(path)) == 0:
                    raise OSError(errno.EADDRINUSE, "another daemon answers there")
            path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(path))
            os.chmod(path, CONTROL_MODE)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        self._control = path
        self._sockets.append(sock)

    async def run(self) -> None:
        """Serve until cancelled; TCP from `open` on. May be called again when it has raised."""
        pages = self._table()

        def answer(request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
            return self._answer(pages, request)

        try:
            async with trio.open_nursery() as nursery:
                for sock in self._sockets:
                    if sock.family == socket.AF_UNIX:
                        nursery.start_soon(serve, sock.dup(), answer)
                await self._opened.wait()
                for sock in self._sockets:
                    if sock.family != socket.AF_UNIX:
                        nursery.start_soon(serve, sock.dup(), answer)
                for sock in self._secure:
                    nursery.start_soon(serve, sock.dup(), answer, lambda: self.tls)
        except Exception:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the control socket, and close sockets that were bound but never served."""
        for sock in (*self._sockets, *self._secure):
            sock.close()
        self._sockets.clear()
        self._secure.clear()
        if self._control is not None:
            self._control.unlink(missing_ok=True)
            self._control = None

    # -- pages ---------------------------------------------------------------------------------------------------

    def _pages(self) -> dict[str, Page]:
        clients, broker = self.clients, self.broker
        return {
            "/varz": lambda query: monitor_server.varz(clients, self._cpu, self.requests),
            "/connz": lambda query: monitor_connz.connz(clients, connz_query(query)),
            "/subsz": lambda query: monitor_accounts.subsz(broker, subsz_query(query)),
            "/subscriptionsz": lambda query: monitor_accounts.subsz(broker, subsz_query(query)),
            "/routez": lambda query: monitor_server.routez(clients),
            "/gatewayz": lambda query: monitor_server.gatewayz(clients),
            "/leafz": lambda query: monitor_accounts.leafz(broker, leafz_query(query)),
            "/accountz": lambda query: monitor_accounts.accountz(broker, query.text("acc")),
            "/accstatz": lambda query: monitor_accounts.accstatz(broker, unused=query.flag("unused")),
            "/jsz": lambda query: monitor_accounts.jsz(broker, jsz_query(query)),
            "/healthz": lambda query: monitor_server.healthz(clients, healthz_query(query)),
            "/ipqueuesz": lambda query: {},  # there are no queues between tasks here
            "/raftz": lambda query: monitor_process.raftz(),
            "/stacksz": lambda query: monitor_process.stacksz(),
            "/debug/vars": lambda query: monitor_process.expvarz(),
            "/eyot/status": lambda query: monitor_server.status_report(clients),
            "/eyot/reloadz": lambda query: broker.reloads,
            "/eyot/syncz": lambda query: monitor_server.sync_report(clients),
        }

    def _table(self) -> dict[str, tuple[str, Page]]:
        """Return every page by its whole path, with its name.

        Eyot's own pages also keep their path without a base path: `eyot` and reloads use it.
        """
        base = self._base
        pages = {base + name: (name, page) for name, page in self._pages().items()}
        return pages | {
            name: each for name, each in zip(self._pages(), pages.values(), strict=True) if name[:6] == "/eyot/"
        }

    @property
    def _base(self) -> str:
        return self.broker.options.http_base_path.rstrip("/")

    def _answer(
        self, pages: dict[str, tuple[str, Page]], request: HttpRequest
    ) -> HttpResponse | Awaitable[HttpResponse]:
        """Return the page for any method; redirect a path that is not clean, as nats-server does."""
        path = _cleaned(request.path)
        if path != request.path:
            query = f"?{urlencode(request.query)}" if request.query else ""
            return plain_text("Temporary Redirect", 307, [("Location", quote(path) + query)])
        if path.rstrip("/") == self._base:
            return self._index(pages)
        answers = self._page()
        if answers is not None and path.removeprefix(self._base) in PAGE_PATHS:
            return answers.answer(path.removeprefix(self._base), request)
        if path == BUNDLE and self._bundle is not None and request.peer.unix:
            return as_response(*self._bundle.make())
        if path == self._base + "/metrics":
            self.requests["/metrics"] += 1
            return _metrics(self.clients)
        if path not in pages:
            return plain_text("404 page not found", 404)
        name, page = pages[path]
        self.requests[name] += 1
        return _shown(name, page, request, jsonp=self.broker.options.eyot.monitoring_jsonp)

    def _index(self, pages: dict[str, tuple[str, Page]]) -> HttpResponse:
        links = "".join(
            f'<li><a href="{path}">{name}</a></li>' for path, (name, _) in pages.items() if path == self._base + name
        )
        if self._page() is not None:
            links = f'<li><a href="{self._base}{PAGE_PATHS[0]}">{PAGE_PATHS[0]}</a></li>{links}'
        from html import escape  # half a megabyte, for a page that hardly anybody asks for

        title = escape(self.broker.server_name)
        body = f"<!doctype html><title>Eyot</title><h1>{title}</h1><ul>{links}</ul>"
        return HttpResponse(body.encode(), "text/html; charset=utf-8")


def _cleaned(path: str) -> str:
    """Return a path without empty and dot segments; a trailing slash stays (Go's `ServeMux`)."""
    clean = "/" + normpath("/" + path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean


async def _metrics(clients: Clients) -> HttpResponse:
    return HttpResponse(await over_turns(exposition(clients)), CONTENT_TYPE)


async def _shown(name: str, page: Page, request: HttpRequest, *, jsonp: bool) -> HttpResponse:
    """Return a page as JSON or text; as JSONP where that is allowed and `callback` names a function."""
    code = 200
    try:
        body = page(Query(request.query))
        if isinstance(body, Generator):
            body = await over_turns(body)
    except (BadQuery, ValueError) as error:
        return plain_text(str(error), 400)
    except KeyError as error:
        return plain_text(f"Account {error.args[0]} does not exist", 400)
    if isinstance(body, tuple):
        code, body = body
    if isinstance(body, str):
        return HttpResponse(body.encode(), "text/plain; charset=utf-8", code)
    text = msgspec.json.encode(body) if name == "/healthz" else await over_turns(page_text(body))
    callback = request.query.get("callback", "") if jsonp else ""
    if callback:
        if not _CALLBACK.fullmatch(callback):
            return plain_text("callback is not the name of a function", 400)
        return HttpResponse(callback.encode() + b"(" + text + b")", "application/javascript")
    return HttpResponse(text, status=code)
