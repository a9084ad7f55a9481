"""Requests to the fleet's page as its script sends them, without sockets."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from eyot_fleet.login import Login
from eyot_fleet.web.site import Site
from eyot_fleet.web_options import WebOptions
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress
from support.devices.fleet_page import OPTIONS, MemoryBackend, MemoryLogin

LOCAL, FAR, FAR_TLS = PeerAddress("127.0.0.1"), PeerAddress("10.0.0.9"), PeerAddress("10.0.0.9", True)


class Browser:
    """One browser's cookies and token at a site. `later_s`: what the site's monotonic clock is ahead."""

    def __init__(self, options: WebOptions = OPTIONS, peer: PeerAddress = LOCAL, **parts: Any) -> None:
        self.backend = MemoryBackend()
        self.now_s = 1000.0
        self.site = Site(options, Login(), self.backend, now=lambda: self.now_s, **parts)
        self.users = MemoryLogin()
        self.site.access._nats = self.users  # type: ignore[assignment]
        self.peer = peer
        self.cookies: dict[str, str] = {}
        self.token = ""
        #: the last answer
        self.answer = HttpResponse(b"")

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        """Send a request; return the status and the JSON of the answer."""
        path, _, query = path.partition("?")
        asked = dict(part.split("=", 1) for part in query.split("&") if part)
        sent = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        host = sent.pop("host", "localhost:8300")
        answer = self.site.answer(HttpRequest(method, path, asked, host, sent, body, self.peer))
        self.answer = answer if isinstance(answer, HttpResponse) else await answer
        for name, value in self.answer.headers:
            if name == "Set-Cookie":
                cookie, _, content = value.partition(";")[0].partition("=")
                self.cookies[cookie] = content
        told = json.loads(self.answer.body) if self.answer.content_type == "application/json" else self.answer.body
        if self.answer.status == 200 and isinstance(told, dict) and "token" in told:
            self.token = told["token"]
        return self.answer.status, told

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        sent = {"content_type": "application/json", "x_eyot_token": self.token} | headers
        return await self.ask("POST", path, msgspec.json.encode(body), **sent)

    async def login(self, user: str = "operator", password: str = "") -> tuple[int, Any]:
        return await self.post("/api/login", {"user": user, "password": password or user})

    def header(self, name: str) -> list[str]:
        """The values of a header of the last answer."""
        return [value for each, value in self.answer.headers if each == name]
