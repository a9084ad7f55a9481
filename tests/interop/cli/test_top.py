"""`eyot top` beside `eyotd` and Debian's `nats-server`: in this process, and with keys in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eyot_cli.main import main
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

#: Of everything here, seconds.
LIMIT_S = 60
CONFIG = """
server_name: device
accounts {
    A { users: [{user: a, password: a}] }
    SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=[Eyotd, NatsServer], ids=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("top")) as running:
        yield running


@pytest.fixture
def eyot(server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `eyot top` in this process; its exit status, stdout and stderr."""

    def run(*words: str, user: str = "s") -> tuple[int, str, str]:
        url, control = server.client_url(user), f"http://127.0.0.1:{server.monitor_port}"
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", url, "--control", control, "top", "-d", "20ms", *words])
        code = main()
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def pump(server: ServerProcess) -> Iterator[RawClient]:
    """A client with two subscriptions that has published three messages."""
    fields: dict[str, Any] = {"user": "a", "pass": "a", "name": "pump", "lang": "go", "version": "1.48"}
    with RawClient(server.client_port, **fields) as client:
        client.ask(b"SUB a.> 1\r\nSUB b 2\r\n" + 3 * b"PUB c 4\r\nabcd\r\n")
        yield client


@pytest.mark.parametrize("where", [(), ("device",)], ids=["monitoring port", "system account"])
def test_one_reading(where: tuple[str, ...], eyot: Run, pump: RawClient) -> None:
    code, out, err = eyot(*where, "--once", "--json", "--subjects")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["server"]["server_name"] == "device"
    assert found["server"]["in_msgs"] >= 3
    assert set(found["per_second"]) == {"in_msgs", "out_msgs", "in_bytes", "out_bytes"}
    (row,) = (each for each in found["connections"] if each["connection"]["cid"] == pump.info["client_id"])
    shown = {
        name: row["connection"][name] for name in ("name", "authorized_user", "account", "in_msgs", "in_bytes", "lang")
    }
    assert shown == {"name": "pump", "authorized_user": "a", "account": "A", "in_msgs": 3, "in_bytes": 12, "lang": "go"}
    assert sorted(row["connection"]["subscriptions_list"]) == ["a.>", "b"]


def test_readings_below_each_other(eyot: Run, pump: RawClient) -> None:
    code, out, _ = eyot("-r", "2", "--sort", "subs", "--conns", "1")
    assert code == 0
    readings = out.split("device  version ")[1:]
    assert len(readings) == 2
    for text in readings:
        assert "; sorted by subs\n" in text
        assert " pump " in text


@pytest.mark.parametrize(
    ("words", "user", "expected"),
    [
        (("elsewhere",), "a", "eyot: this login is not in the system account: "),
        (("--control", "http://127.0.0.1:1"), "s", "eyot: no answer from http://127.0.0.1:1: "),
    ],
)
def test_who_may_not_ask(words: tuple[str, ...], user: str, expected: str, eyot: Run) -> None:
    code, out, err = eyot(*words, "--once", user=user)
    assert (code, out) == (1, "")
    assert err.startswith(expected)


class Terminal:
    """`eyot top` in a pseudo-terminal of 200 columns and 40 rows."""

    def __init__(self, server: ServerProcess) -> None:
        self.end, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.before = termios.tcgetattr(inner)
        self._inner, self._seen = inner, b""
        control = f"http://127.0.0.1:{server.monitor_port}"
        command = [sys.executable, "-m", "eyot_cli.main", "--control", control, "top", "-d", "30ms"]
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment)

    def until(self, mark: bytes) -> bytes:
        """What the terminal got up to `mark`."""
        deadline = time.monotonic() + LIMIT_S
        while mark not in self._seen:
            assert select.select([self.end], [], [], deadline - time.monotonic())[0], self._seen[-3000:]
            self._seen += os.read(self.end, 65536)
        found, _, self._seen = self._seen.partition(mark)
        return found

    def attributes(self) -> Any:
        return termios.tcgetattr(self._inner)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)
        os.close(self._inner)


def test_keys_in_a_terminal(server: ServerProcess, pump: RawClient) -> None:
    terminal = Terminal(server)
    try:
        terminal.until(b"sorted by cid")
        terminal.until(b"r rtt, b start")
        assert terminal.attributes() != terminal.before, "single keys"
        os.write(terminal.end, b"s")
        terminal.until(b"sorted by subs")
        os.write(terminal.end, b"d")
        terminal.until(b"    a.>")
        os.write(terminal.end, b"q")
        terminal.until(b"\x1b[?25h\x1b[?1049l")
        assert terminal.process.wait(LIMIT_S) == 0
        assert terminal.attributes() == terminal.before
    finally:
        terminal.close()
