"""The fleet's page as `eyot-fleet` serves it, by https, beside a real hub with real devices: from the login to the audit stream."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trio

from eyot_fleet.audit import AuditLine
from eyot_fleet.connection import connected
from eyot_fleet.login import Login
from eyot_wire.untrusted import decode_json
from support.links.leaf_pair import server
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess, free_port
from support.trust.certificates import Authority

FLEET = str(Path(sys.executable).with_name("eyot-fleet"))
WAIT_S = 90.0
HUB = """
server_name: hub
accounts { A { users: [{user: a, password: a}, {user: ada, password: secret}, {user: bob, password: secret}], jetstream: enabled } }
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""
DEVICE = """
server_name: %NAME%
jetstream { store_dir: "%WORKDIR%/js", domain: %NAME% }
leafnodes { remotes [ { url: "nats-leaf://a:a@127.0.0.1:%HUB%" } ] }
eyot { status { subject: fleet.%NAME%.status, every: 1s }, device { name: %NAME%, answers: [status, sync, connect] } }
"""
TOML = """
[hub]
servers = ["%HUB%"]
user = "a"
password = "a"
[http]
listen = "127.0.0.1:%METRICS%"
[web]
listen = "127.0.0.1:%WEB%"
cert = "%CERT%"
key = "%KEY%"
[web.nats]
account = "A"
viewers = ["bob"]
operators = ["ada"]
"""


class Page:
    """A hub, a device, `eyot-fleet`, and one browser's cookie and token."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.hub: ServerProcess = server(kind, HUB, folder / "hub")
        self.hub.start()
        text = DEVICE.replace("%NAME%", "pump-1").replace("%HUB%", str(self.hub.leaf_port))
        self.device = Eyotd(text, folder / "device")
        self.device.start()
        authority = Authority(folder / "certs")
        cert, key = authority.issue("server")
        self._tls = ssl.create_default_context(cafile=authority.ca_file)
        self.port, self.metrics_port = free_port(), free_port()
        values = {
            "HUB": self.hub.client_url(),
            "METRICS": self.metrics_port,
            "WEB": self.port,
            "CERT": cert,
            "KEY": key,
        }
        toml = TOML
        for name, value in values.items():
            toml = toml.replace(f"%{name}%", str(value))
        (folder / "fleet.toml").write_text(toml)
        self.log = folder / "fleet.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [FLEET, "-c", str(folder / "fleet.toml"), "serve"], stdout=log, stderr=subprocess.STDOUT
            )
        self.cookie = self.token = ""

    def close(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.device.kill()
        self.hub.kill()

    def connection(self) -> HTTPSConnection:
        return HTTPSConnection("localhost", self.port, context=self._tls, timeout=WAIT_S)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = self.connection()
        headers = {"Content-Type": "application/json", "Cookie": self.cookie, "X-Eyot-Token": self.token}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if cookie := answer.getheader("Set-Cookie"):
            assert "__Host-eyot_fleet=" in cookie
            assert cookie.endswith("; Secure")
            self.cookie = cookie.partition(";")[0]
        self.token = told.get("token", self.token)
        connection.close()
        return answer.status, told

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/healthz", timeout=WAIT_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=WAIT_S) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if line[:1] not in ("#", "")]
        return {name: float(value) for name, _, value in lines}

    def login(self, user: str = "ada") -> None:
        def tried() -> bool:
            try:
                return self.ask("POST", "/api/login", {"user": user, "password": "secret"})[0] == 200
            except OSError:
                return False

        eventually(tried)

    def record(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/api/devices/pump-1")[1].get("device", {}))

    def audit(self) -> list[AuditLine]:
        """The stream's lines, read at the hub."""

        async def run() -> list[AuditLine]:
            from eyot_fleet.audit import Audit
            from eyot_fleet.config import StateConfig
            from eyot_fleet.jetstream import JetStream

            async with connected(Login(servers=(self.hub.client_url(),), user="a", password="a")) as connection:
                found = await Audit(JetStream(connection), StateConfig()).latest()
            return found[::-1]

        return trio.run(run)


def eventually(condition: Callable[[], object]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.2)
    return found


@pytest.fixture(params=["2.14.6", "eyotd"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    made = Page(request.param, tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_from_the_login_to_the_audit_stream(page: Page) -> None:
    eventually(page.is_healthy)
    page.login()
    eventually(lambda: page.record().get("state") in ("unknown", "synced"))
    _, told = page.ask("GET", "/api/devices?text=pump")
    assert [row["name"] for row in told["rows"]] == ["pump-1"]
    assert told["hub"]["connected"] is True
    status, told = page.ask("POST", "/api/actions/ask", {"device": "pump-1", "report": "doctor"})
    assert status == 200
    assert any(check["name"].startswith("link") and check["state"] == "ok" for check in told["done"])
    assert page.ask("POST", "/api/actions/connect", {"device": "pump-1", "link": ""})[1] == {
        "error": "pump-1 refuses: all links are up"
    }
    _desire(page)
    lines = page.audit()
    assert [line.event for line in lines if line.by == "ada"] == [
        "login", "ask", "ask", "connect", "connect", "label", "device", "label", "configure", "configure", "configure", "device", "configure",
    ]  # fmt: skip
    assert lines[-1].detail["address"] == "127.0.0.1"
    assert {line.detail["outcome"] for line in lines if line.event == "connect"} == {"begun", "refused"}
    shown = page.ask("GET", "/api/audit?device=pump-1")[1]["lines"]
    assert shown[0]["action"] == "configure"
    assert shown[0]["outcome"] == "done"
    _viewer(page)
    _hub_away(page)
    metrics = page.metrics()
    assert metrics["eyot_fleet_page_sessions"] == 1
    assert metrics['eyot_fleet_page_logins_total{outcome="done"}'] == 2


def _desire(page: Page) -> None:
    """Labels and settings are stored at the hub, and the device's record has them."""
    order: dict[str, Any] = {"device": "pump-1", "labels": ["site:north"], "revision": 0}
    assert page.ask("POST", "/api/actions/label", order)[0] == 200
    eventually(lambda: "labels" in page.record())
    assert page.record()["labels"] == ["site:north"]
    _, desired = page.ask("GET", "/api/devices/pump-1/desired")
    order = {"device": "pump-1", "settings": {"sync": {"READINGS": {"priority": 5}}}, "revision": 0}
    assert page.ask("POST", "/api/actions/configure", order)[0] == 409
    assert page.ask("POST", "/api/actions/configure", order | {"revision": desired["revision"]})[0] == 200
    _, changed = page.ask("GET", "/api/devices/pump-1/desired")
    assert (changed["labels"], changed["settings"]) == (["site:north"], order["settings"])
    eventually(lambda: page.record()["config"].get("desired"))


def _viewer(page: Page) -> None:
    page.login("bob")
    assert page.ask("POST", "/api/actions/ask", {"device": "pump-1", "report": "sync"})[0] == 403
    assert page.ask("GET", "/api/devices")[1]["total"] == 1
    assert (page.audit()[-1].by, page.audit()[-1].error) == ("bob", "not allowed")


def _hub_away(page: Page) -> None:
    """The page goes on, and says since when the hub is away; what changed meanwhile comes over the stream of events."""
    connection = page.connection()
    connection.request("GET", "/api/events", headers={"Cookie": page.cookie})
    events = connection.getresponse()
    assert events.getheader("Content-Type") == "text/event-stream"
    page.hub.kill()
    eventually(lambda: _next(events)["hub"]["connected"] is False)
    _, told = page.ask("GET", "/api/devices")
    assert told["hub"]["error"]
    assert told["total"] == 1
    assert page.ask("GET", "/api/audit")[0] == 503
    page.hub.start()
    eventually(lambda: _next(events)["hub"]["connected"] is True)
    connection.close()


def _next(events: Any) -> dict[str, Any]:
    """The next event that holds figures."""
    while True:
        line = events.readline()
        assert line, "the events have ended"
        if line.startswith(b'data: {"now"'):
            return dict(decode_json(line.removeprefix(b"data: ").strip()))
