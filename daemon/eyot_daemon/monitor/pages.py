"""The monitoring listener: nats-server's HTTP pages, and Eyot's own, over TCP and over a Unix control socket.

An ASGI application (Starlette) served by Hypercorn on Trio. Both are imported only when monitoring is configured, and
in a thread: the daemon is ready before they are loaded, early requests wait in the listening socket's backlog.

`/eyot/status` (`eyot_wire.status.StatusReport`) is what `eyot status` shows.
"""

from __future__ import annotations

import errno
import html
import logging
import os
import re
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import trio

from eyot_daemon.client.clients import Clients
from eyot_daemon.monitor import accounts as monitor_accounts
from eyot_daemon.monitor import connz as monitor_connz
from eyot_daemon.monitor import process as monitor_process
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.clean_paths import CleanPaths
from eyot_daemon.monitor.connz import BadQuery
from eyot_daemon.monitor.metrics import CONTENT_TYPE, exposition
from eyot_daemon.monitor.queries import Query, connz_query, healthz_query, jsz_query, leafz_query, subsz_query

if TYPE_CHECKING:
    from hypercorn.config import Config
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("eyot.monitor")

#: A page is the same whatever it is asked with, as nats-server's.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: Requests that wait in the kernel until they are accepted.
BACKLOG = 128
#: Only the daemon's user and group may read and steer it through the control socket.
CONTROL_MODE = 0o660

#: What `?callback=` may be: a function's name, with its objects' names before it.
_CALLBACK = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)

Page = Callable[[Query], object]


class Monitoring:
    """The pages of one server and the sockets they are served on."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.broker = clients.broker
        self.requests: Counter[str] = Counter()
        self._cpu = monitor_server.CpuMeter()
        self._sockets: list[socket.socket] = []
        self._secure: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._control: Path | None = None

    # -- sockets -------------------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Bind a TCP listener (`port` -1: any free one), with `tls` for HTTPS; returns where. OSError if that is not
        possible."""
        wanted = max(port, 0)
        family, _, _, _, address = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        if tls is None:
            self._sockets.append(sock)
        else:
            self._tls = tls
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
        """Serve until cancelled. May be called again when it has raised."""
        if not self._sockets and not self._secure:
            return
        try:
            await self._serve()
        except Exception:
            raise
        except BaseException:
            self.close()
            raise
        self.close()

    async def _serve(self) -> None:
        await trio.to_thread.run_sync(_load_server)
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = _secured(Config, self._tls) if self._tls is not None else Config()
        # Hypercorn closes what it is given; ours stay open for another run.
        plain = [f"fd://{os.dup(sock.fileno())}" for sock in self._sockets]
        if self._tls is None:
            config.bind = plain
        else:
            config.bind = [f"fd://{os.dup(sock.fileno())}" for sock in self._secure]
            config.insecure_bind = plain
        config.accesslog = None
        config.errorlog = None
        config.include_server_header = False
        config.graceful_timeout = 0.2
        await serve(self.application(), config)  # type: ignore[arg-type]

    def close(self) -> None:
        """Take the control socket away and close what was bound but never served."""
        for sock in (*self._sockets, *self._secure):
            sock.close()
        self._sockets.clear()
        self._secure.clear()
        if self._control is not None:
            self._control.unlink(missing_ok=True)
            self._control = None

    # -- pages ---------------------------------------------------------------------------------------------------

    def application(self) -> Starlette:
        """The ASGI application with all pages under `http_base_path`."""
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.responses import Response
        from starlette.routing import Route

        def route(path: str, page: Page, base: str) -> Route:
            async def endpoint(request: Request) -> Response:
                return self._answer(path, page, request)

            return Route(base + path, endpoint, methods=METHODS)

        async def root(request: Request) -> Response:
            links = "".join(f'<li><a href="{base}{path}">{path}</a></li>' for path in pages)
            name = html.escape(self.broker.server_name)
            body = f"<!doctype html><title>Eyot</title><h1>{name}</h1><ul>{links}</ul>"
            return Response(body, media_type="text/html")

        # Eyot's own pages are at their place under any base path, too: `eyot` and reloads look for them there.
        base = self.broker.options.http_base_path.rstrip("/")
        pages = self._pages()

        async def metrics(request: Request) -> Response:
            self.requests["/metrics"] += 1
            return Response(exposition(self.clients), headers={"content-type": CONTENT_TYPE})

        routes = [route(path, page, base) for path, page in pages.items()]
        routes += [route(path, page, "") for path, page in pages.items() if base and path.startswith("/eyot/")]
        routes.append(Route(base + "/metrics", metrics, methods=METHODS))
        routes += [Route(path, root, methods=METHODS) for path in {base or "/", base + "/"}]
        app = Starlette(routes=routes, middleware=[Middleware(CleanPaths)])
        app.router.redirect_slashes = False
        return app

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

    def _answer(self, path: str, page: Page, request: Request) -> Response:
        from starlette.responses import Response

        self.requests[path] += 1
        code = 200
        try:
            body = page(Query(dict(request.query_params)))
        except (BadQuery, ValueError) as error:
            return Response(str(error), status_code=400, media_type="text/plain")
        except KeyError as error:
            return Response(f"Account {error.args[0]} does not exist", status_code=400, media_type="text/plain")
        if isinstance(body, tuple):
            code, body = body
        if isinstance(body, str):
            return Response(body, status_code=code, media_type="text/plain")
        text = msgspec.json.encode(body)
        if path != "/healthz":
            text = msgspec.json.format(text, indent=2)
        callback = request.query_params.get("callback", "")
        if callback and self.broker.options.eyot.monitoring_jsonp:
            if not _CALLBACK.fullmatch(callback):
                return Response("callback is not the name of a function", status_code=400, media_type="text/plain")
            return Response(callback.encode() + b"(" + text + b")", media_type="application/javascript")
        return Response(text, status_code=code, media_type="application/json")


def _secured(base: type[Config], tls: ssl.SSLContext) -> Config:
    """A configuration of Hypercorn that uses our context."""

    class Secured(base):  # type: ignore[valid-type, misc]
        @property
        def ssl_enabled(self) -> bool:
            return True

        def create_ssl_context(self) -> ssl.SSLContext:
            tls.set_alpn_protocols(["http/1.1"])
            return tls

    return cast("Config", Secured())


def _load_server() -> None:
    """Load the HTTP server; takes a fifth of a second, so it happens in a thread."""
    import starlette.applications  # noqa: F401
