"""The local page's `Access` without a daemon: its controls are noted, and a browser's cookie and token kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import msgspec

from eyot_daemon.config.read import load_options
from eyot_daemon.monitor.page.access import Access
from eyot_daemon.monitor.page.controls import Controls
from eyot_daemon.router.broker import Broker
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress
from eyot_wire.jetstream.forget_downstream import ForgetRequest

HASH = bcrypt.hashpw(b"hashed", bcrypt.gensalt(4)).decode()
CONFIG = f"""
eyot {{ http {{ page: true, users: [root, crypt, sensor] }} }}
no_auth_user: root
accounts {{ A {{ users: [
    {{ user: root, password: secret }}, {{ user: crypt, password: "{HASH}" }}, {{ user: other, password: secret }}
    {{ user: sensor, password: secret, allowed_connection_types: [MQTT] }}
] }} }}
"""
LOCAL, FAR, FAR_TLS, SOCKET = PeerAddress("127.0.0.1"), PeerAddress("10.0.0.9"), PeerAddress("10.0.0.9", True), PeerAddress(unix=True)  # fmt: skip


class Pulled:
    """A backup of these parts, then an end, or a failure."""

    meta = b"{}"

    def __init__(self, parts: list[bytes], failure: str = "") -> None:
        self.parts = [(part, "") for part in parts] + [(b"", failure)]
        self.stopped = ""

    def next(self, receive: Callable[[bytes, str], None]) -> None:
        receive(*self.parts.pop(0))

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why


class Page:
    """An `Access` with its controls noted, and the cookie and token of a browser."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker = Broker(self.options(tmp_path, CONFIG))
        self.asked: list[Any] = []
        self.counts = (1, 0, "")
        self.problem = ""
        self.backup: Pulled | None = Pulled([b"first", b"second"])
        #: bcrypt checks that wait for a thread
        self.waiting: list[Callable[[], None]] = []
        self.access = Access(
            SimpleNamespace(broker=self.broker), Controls(self._reconnect, self._forget, self._back_up, self._later)
        )  # type: ignore[arg-type]
        self.cookie = self.token = ""

    @staticmethod
    def options(tmp_path: Path, text: str) -> Any:
        file = tmp_path / "eyotd.conf"
        file.write_text(text)
        return load_options(file).options

    def _reconnect(self, link: str) -> str:
        self.asked.append(link)
        return self.problem

    def _forget(self, account: str, stream: str, asked: ForgetRequest, done: Callable[[int, int, str], None]) -> bool:
        self.asked.append((account, stream, asked))
        done(*self.counts)
        return stream == "S"

    def _back_up(self, account: str, stream: str, begun: Callable[[Any, str], None]) -> None:
        self.asked.append((account, stream))
        if self.backup is None:
            self.begun = begun
        else:
            begun(None if self.problem else self.backup, self.problem)

    def _later(self, check: Callable[[], bool], then: Callable[[bool], None]) -> None:
        self.waiting.append(lambda: then(check()))

    def request(self, path: str, body: object, peer: PeerAddress = LOCAL, **headers: str) -> HttpRequest:
        sent = {"content-type": "application/json", "cookie": f"other=1; eyot_session={self.cookie}"}
        sent |= {"x-eyot-token": self.token} | {name.replace("_", "-"): value for name, value in headers.items()}
        return HttpRequest("POST", path, {}, "device:8222", sent, msgspec.json.encode(body), peer)

    async def post(self, path: str, body: object, peer: PeerAddress = LOCAL, **headers: str) -> tuple[int, Any]:
        answer = await self.access.answer(path, self.request(path, body, peer, **headers))
        self.answer = answer
        return answer.status, json.loads(answer.body)

    async def login(self, user: str = "root", password: str = "secret", peer: PeerAddress = LOCAL) -> tuple[int, Any]:
        status, told = await self.post("/eyot/login", {"user": user, "password": password}, peer)
        if status == 200:
            self.token = told["token"]
            self.cookie = set_cookie(self.answer).partition(";")[0].partition("=")[2]
        return status, told


def set_cookie(answer: HttpResponse) -> str:
    return dict(answer.headers)["Set-Cookie"]
