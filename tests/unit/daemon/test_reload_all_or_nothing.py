"""A reload that any service refuses changes nothing: each service fails in turn, at every step, and everything is as before."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from eyot_daemon.config.args import parse_args
from eyot_daemon.main import load
from eyot_daemon.monitor import accounts as pages_of_accounts
from eyot_daemon.monitor.server import CpuMeter, healthz, status_report, varz
from eyot_daemon.process.logs import Logs
from eyot_daemon.process.service import AnyService, ReloadSteps, Runtime, Step
from eyot_daemon.router.providers import HealthzQuery, JszQuery, LeafzQuery, Unhealthy
from eyot_daemon.server import Server
from eyot_daemon.turn.slices import at_once

BEFORE = """
listen: "127.0.0.1:-1"
server_name: edge
max_payload: 4096
pid_file: "{0}/before.pid"
ports_file_dir: "{0}/before"
log_file: "{0}/before.log"
jetstream {{ store_dir: "{0}/js", max_file: 100mb }}
accounts {{
    A {{
        jetstream: enabled
        users: [ {{ user: a, password: a, permissions: {{ publish: [may.>, from], subscribe: ">" }} }} ]
        mappings: {{ from: may.before }}
    }}
    GONE {{ users: [ {{ user: gone, password: gone }} ] }}
    LATER {{ users: [ {{ user: later, password: later }} ] }}
}}
leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:1", account: A }} ] }}
"""
AFTER = """
listen: "127.0.0.1:-1"
server_name: edge
max_payload: 2048
debug: true
pid_file: "{0}/after.pid"
ports_file_dir: "{0}/after"
log_file: "{0}/after.log"
jetstream {{ store_dir: "{0}/js", max_file: 200mb }}
accounts {{
    A {{
        jetstream: enabled
        users: [ {{ user: a, password: changed, permissions: {{ publish: [not.>], subscribe: ">" }} }} ]
        mappings: {{ from: may.after, more: may.more }}
    }}
    LATER {{ jetstream: enabled, users: [ {{ user: later, password: later }} ] }}
    NEW {{ users: [ {{ user: new, password: new }} ] }}
}}
leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:2", account: A }} ] }}
eyot {{ sync {{ streams {{ S {{ priority: 3 }} }} }}, status {{ subject: s.s, account: A }} }}
"""
#: What passes by itself.
MOVING = ("now", "uptime", "uptime_s", "mem", "cpu", "links", "free_bytes", "flash")


class Fault(Exception):
    """Injected."""


class Failing:
    """A service that fails where a test says: `configure`, `before` its reload or `after` it, or behind the n-th of its steps."""

    def __init__(self, service: AnyService, where: str | int) -> None:
        self.inner = service
        self.name = service.name
        self.where = where

    def configure(self, options: Any) -> Any:
        if self.where == "configure":
            raise Fault(self.where)
        return self.inner.configure(options)

    def reload(self, prepared: Any, steps: ReloadSteps) -> None:
        if self.where == "before":
            raise Fault(self.where)
        self.inner.reload(prepared, FailingSteps(steps, self.where))
        raise Fault("after")

    def start(self, prepared: Any, runtime: Runtime) -> None:
        self.inner.start(prepared, runtime)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return self.inner.health(query)

    def stop(self) -> None:
        self.inner.stop()


class FailingSteps(ReloadSteps):
    def __init__(self, inner: ReloadSteps, where: str | int) -> None:
        super().__init__()
        self.inner = inner
        self.left = where if isinstance(where, int) else -1

    def undo(self, step: Step) -> None:
        self.inner.undo(step)
        self._count()

    def last(self, step: Step) -> None:
        self.inner.last(step)
        self._count()

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Fault("step")


@contextmanager
def logging_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("eyot")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(levels[0])
    own.setLevel(levels[1])


class Edge:
    """A daemon in this process, on real sockets, and its configuration file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("before", "after"):
            (folder / name).mkdir()
        self.path = folder / "eyotd.conf"
        self.configure(BEFORE)
        arguments = parse_args(["-c", str(self.path)])
        loaded = load(arguments)
        logs = Logs()
        logs.configure(loaded.options)
        self.server = Server(loaded, logs, reload=lambda: load(arguments), env={})

    def configure(self, text: str) -> None:
        self.path.write_text(text.format(self.folder))

    @property
    def port(self) -> int:
        return self.server.clients.port

    def seen(self) -> Any:
        """Everything that the pages, the files and the log say of the daemon; what was told to connections is not part of it."""
        server, clients, broker = self.server, self.server.clients, self.server.broker
        everything = JszQuery(accounts=True, streams=True, consumers=True, config=True)
        page = {
            "varz": varz(clients, CpuMeter(), Counter()),
            "jsz": at_once(pages_of_accounts.jsz(broker, everything)),
            "leafz": pages_of_accounts.leafz(broker, LeafzQuery()),
            "accounts": {name: pages_of_accounts.accountz(broker, name) for name in sorted(broker.accounts)},
            "health": healthz(clients, HealthzQuery()),
            "status": status_report(clients),
            "link_names": sorted(each.name for each in broker.providers.links()),
            "policies": broker.sync.policies,
            "files": sorted(
                (str(each), each.read_text())
                for pattern in ("*.pid", "*/*.ports")
                for each in self.folder.glob(pattern)
            ),
            "log": [each.path.name for each in logging.getLogger().handlers if hasattr(each, "path")],
            "level": logging.getLogger("eyot").level,
            "connections": sorted(clients.connections),
        }
        assert server.options is broker.options
        return still(msgspec.json.decode(msgspec.json.encode(page)))


def still(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: still(each) for key, each in value.items() if key not in MOVING}
    return [still(each) for each in value] if isinstance(value, list) else value


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two pages differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [each for key in one for each in differences(one[key], other[key], f"{where}/{key}")]
    return [] if one == other else [f"{where}: {one!r} {other!r}"]


class User:
    """A client that waits for answers in a thread."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.lines = self.sock.makefile("rb")
        self.info = self.lines.readline()
        connect = b'CONNECT {"verbose":false,"user":"%b","pass":"%b"}\r\n' % (name.encode(), password.encode())
        self.said = self.ask(connect)

    def ask(self, data: bytes) -> bytes:
        """What the server says to `data`."""
        answer = b""
        try:
            self.sock.sendall(data + b"PING\r\n")
            while line := self.lines.readline():
                if line == b"PONG\r\n":
                    break
                answer += line
        except OSError:
            pass
        return answer

    def close(self) -> None:
        self.lines.close()
        self.sock.close()


def behaviour(edge: Edge, stayed: User) -> list[bytes]:
    """What users of the former configuration may do, and that those of the new one may nothing."""
    stayed.ask(b"")  # what others published meanwhile
    said = [stayed.ask(b"PUB may.x 1\r\nx\r\nPUB not.x 1\r\nx\r\nPUB from 1\r\nx\r\n")]
    for name, password in (("a", "a"), ("a", "changed"), ("gone", "gone"), ("later", "later"), ("new", "new")):
        user = User(edge.port, name, password)
        said += [user.said, user.ask(b"SUB > 1\r\nPUB from 1\r\nx\r\nPUB more 1\r\nx\r\n")]
        user.close()
    return said


@asynccontextmanager
async def running(edge: Edge) -> AsyncIterator[User]:
    with logging_as_before():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.server.run)
            with trio.fail_after(120):
                while not list((edge.folder / "before").glob("*.ports")):
                    await trio.sleep(0.01)
            user = await trio.to_thread.run_sync(User, edge.port, "a", "a")
            await trio.to_thread.run_sync(user.ask, b"SUB > 1\r\n")
            yield user
            user.close()
            edge.server.stop()


async def test_whichever_service_fails_nothing_has_changed(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    async with running(edge) as user:
        in_thread: Callable[..., Any] = trio.to_thread.run_sync
        first = await in_thread(behaviour, edge, user)
        services = edge.server.services
        names = [service.name for service in services]
        steps = 0
        edge.configure(AFTER)
        for index, service in enumerate(services):
            for where in ("configure", "before", 1, 2, 3, "after"):
                before = edge.seen()
                services[index] = Failing(service, where)
                wrong = edge.server.reload()
                assert wrong.startswith("Fault: ")
                services[index] = service
                assert differences(before, edge.seen()) == [], f"{service.name} failed at {where}"
                steps += wrong == "Fault: step"
        assert steps > len(names) / 2, "most services change something"
        assert await in_thread(behaviour, edge, user) == first
        log_file = (tmp_path / "before.log").read_text()
        assert "Failed to reload server configuration: Fault: after" in log_file
        assert "Taking back a reload failed" not in log_file
        # Without a fault the same configuration is taken.
        before = edge.seen()
        assert edge.server.reload() == ""
        after = edge.seen()
        for part in ("varz", "jsz", "link_names", "accounts", "policies", "files", "log", "level"):
            assert after[part] != before[part], part
        assert await in_thread(behaviour, edge, user) != first


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("/after.pid", "/none/after.pid", "Could not write pidfile: open "),
        ("/after.log", "/none/after.log", "No such file or directory"),
        ('{0}/after"', '{0}/none"', "Error writing ports file"),
        ("max_file: 200mb", "max_file: 50mb", "decreasing jetstream max memory and store"),
        ("server_name: edge", "server_name: other", "config reload not supported for ServerName"),
    ],
)
async def test_what_cannot_be_done_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    edge = Edge(tmp_path)
    async with running(edge):
        before = edge.seen()
        assert old in AFTER
        edge.configure(AFTER.replace(old, new))
        assert told in edge.server.reload()
        assert differences(before, edge.seen()) == []
        assert edge.server.broker.reloads.error


async def test_jetstream_that_cannot_begin_refuses_the_reload(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    without = BEFORE.replace('jetstream {{ store_dir: "{0}/js", max_file: 100mb }}', "")
    edge.configure(without)
    arguments = parse_args(["-c", str(edge.path)])
    edge.server = Server(load(arguments), Logs(), reload=lambda: load(arguments), env={})
    (tmp_path / "js").write_text("in the way")
    async with running(edge) as user:
        before = edge.seen()
        said = await trio.to_thread.run_sync(behaviour, edge, user)
        edge.configure(AFTER)
        assert edge.server.reload().startswith("Can't start JetStream: ")
        assert await trio.to_thread.run_sync(behaviour, edge, user) == said
        (tmp_path / "js").unlink()
        assert edge.server.reload() == ""
        assert edge.seen()["jsz"] != before["jsz"]
        edge.configure(without)
        assert edge.server.reload() == ""
        assert edge.seen()["jsz"] == before["jsz"]
