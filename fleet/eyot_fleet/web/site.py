"""The page's addresses, and the sockets that they are served on."""

from __future__ import annotations

import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

import trio

from eyot_fleet.errors import ConfigError, FleetError
from eyot_fleet.web.access import CALLBACK, Access
from eyot_fleet.web.actions import PREFIX as ACTIONS_PREFIX
from eyot_fleet.web.actions import Actions
from eyot_fleet.web.answers import json_answer, refusal
from eyot_fleet.web.devices import Devices
from eyot_fleet.web.documents import document
from eyot_fleet.web.feeds import Feeds
from eyot_fleet.web.groups import Groups
from eyot_fleet.web.nats_login import NatsLogin
from eyot_fleet.web.oidc import OidcLogin
from eyot_fleet.web.trust_commands import TrustCommands
from eyot_serving.browsers import is_own_name
from eyot_serving.http_server import serve
from eyot_serving.listen_address import listen_address
from eyot_wire.digits import parse_uint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eyot_fleet.login import Login
    from eyot_fleet.web.backend import Backend
    from eyot_fleet.web_options import WebOptions
    from eyot_serving.http_messages import HttpRequest, HttpResponse

log = logging.getLogger("eyot.fleet")

#: Each viewer has one connection for its events and some for its questions.
CONNECTIONS_MAX: Final = 1024
BACKLOG: Final = 128
AUDIT_LINES_MAX: Final = 500
_DEVICE: Final = "/api/devices/"
_GROUP: Final = "/api/groups/"


class Site:
    """The page of one fleet. `now`: monotonic time, seconds."""

    def __init__(
        self,
        options: WebOptions,
        hub: Login,
        backend: Backend,
        *,
        now: Callable[[], float] = trio.current_time,
        oidc: OidcLogin | None = None,
    ) -> None:
        self._options = options
        self._backend = backend
        self._listener: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        if oidc is None and options.oidc is not None:
            oidc = OidcLogin(options.oidc, f"{options.url.rstrip('/')}{CALLBACK}", now)
        nats = None if options.nats is None else NatsLogin(options.nats, hub)
        self.access = Access(options, backend, now, nats, oidc)
        self.feeds = Feeds(backend, self.access.is_open)
        self._devices = Devices(backend, now, self._shown)
        self._groups = Groups(backend, now)
        trust = None if options.trust is None else TrustCommands(options.trust)
        self._actions = Actions(backend, self.access, trust)

    def listen(self) -> tuple[str, int]:
        """Bind and open the page's socket; return its address. Raises ConfigError."""
        self._listener, self._tls = _bound(self._options)
        host, port = self._listener.getsockname()[:2]
        return host, port

    async def run(self) -> None:
        """Serve the socket of `listen` until cancelled."""
        assert self._listener is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.feeds.run)
            nursery.start_soon(serve, self._listener, self.answer, lambda: self._tls, CONNECTIONS_MAX)

    def _shown(self, feed: str, request: HttpRequest, names: frozenset[str]) -> None:
        session = self.access.reader(request)
        if session is not None:
            self.feeds.shown(feed, session, names)

    # -- addresses -------------------------------------------------------------------------------------------------

    def answer(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer a request. A browser is answered only under a name of this machine or of `web.hosts`."""
        if not is_own_name(request.host, self._hosts()):
            return refusal(421, "the page is not served under this name: see web.hosts")
        path = request.path
        if request.method == "POST":
            return self._acted(path, request)
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "Method Not Allowed", ("Allow", "GET, HEAD, POST"))
        if path.startswith("/api/"):
            return self._read(path, request)
        if path == "/login/oidc":
            return self.access.begin_oidc(request)
        if path == CALLBACK:
            return self.access.finish_oidc(request)
        return document(request, secure=self._options.is_secure)

    def _acted(self, path: str, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if path == "/api/login":
            return self.access.login(request)
        if path == "/api/logout":
            return self.access.logout(request)
        if path.startswith(ACTIONS_PREFIX):
            self._groups.forget_kept()
            return self._actions.answer(path.removeprefix(ACTIONS_PREFIX), request)
        return refusal(404, "there is no such address")

    def _read(self, path: str, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return refusal(403, "the request comes from another site")
        session = self.access.reader(request)
        if path == "/api/session":
            return self.access.report(request, session)
        if session is None:
            return refusal(401, "log in first")
        if path == "/api/devices":
            return self._devices.page(request)
        if path == "/api/names":
            return self._groups.names(request)
        if path == "/api/groups":
            return self._groups.listed()
        if path.startswith(_GROUP):
            return self._groups.one(path.removeprefix(_GROUP))
        if path == "/api/rollouts":
            return self._groups.rollouts()
        if path == "/api/events":
            return self.feeds.open(session)
        if path == "/api/audit":
            return self._audited(request)
        if path.startswith(_DEVICE):
            name, _, rest = (
                path.removeprefix(_DEVICE).rpartition("/")
                if path.endswith("/desired")
                else (path.removeprefix(_DEVICE), "", "")
            )
            return self._desired(name) if rest else self._devices.one(name, request)
        return refusal(404, "there is no such address")

    async def _audited(self, request: HttpRequest) -> HttpResponse:
        count = parse_uint(request.query.get("count", "100"))
        if count is None or not 1 <= count <= AUDIT_LINES_MAX:
            return refusal(400, f"count: 1 to {AUDIT_LINES_MAX}")
        try:
            lines = await self._backend.audited(count, request.query.get("device", ""))
        except FleetError as error:
            return refusal(503, str(error))
        return json_answer({"lines": lines})

    async def _desired(self, name: str) -> HttpResponse:
        if self._backend.index.get(name) is None:
            return refusal(404, "there is no such device")
        try:
            return json_answer(await self._backend.desired(name))
        except FleetError as error:
            return refusal(503, str(error))

    def _hosts(self) -> tuple[str, ...]:
        named = self._options.url.rpartition("://")[2].rstrip("/").partition(":")[0].lower()
        return (*self._options.hosts, *((named,) if named else ()))


def _bound(options: WebOptions) -> tuple[socket.socket, ssl.SSLContext | None]:
    """Return the listening socket of the page, and the TLS context if it is served by https. Raises ConfigError."""
    host, port = options.address()
    context = options.tls_context()
    try:
        family, address = listen_address(host, port)
        return socket.create_server(address[:2], family=family, backlog=BACKLOG), context
    except OSError as error:
        raise ConfigError(f"web.listen: {options.listen}: {error.strerror or error}") from None
