"""Every client plays every scenario on `eyotd` and on Debian's `nats-server`, and all see the same.

Clients: nats-py, the C client of Debian's libnats-dev, the JavaScript client from npm, and raw sockets. The table is
tests/support/clients/scenarios.py; a driver per client reads commands and answers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import bcrypt
import pytest

from support.clients.raw_driver import RawDriver
from support.clients.scenarios import ANSWERS_OF_2_9, CONFIG, SCENARIOS
from support.devices.javascript import javascript_folder
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer, debian_version
from support.servers.server_process import ServerProcess

FOLDER = Path(__file__).parents[1] / "clients"

QUIET_MS = 60


class Driver:
    """A client in a process of its own."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="session")
def c_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("c") / "client"
    source = str(FOLDER / "client.c")
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-o", str(path), source, "-lnats"]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="session")
def javascript_client() -> Path:
    """The driver with its library."""
    folder = javascript_folder()
    shutil.copy(FOLDER / "client.mjs", folder)
    return folder / "client.mjs"


@pytest.fixture(scope="module", params=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind = Eyotd if request.param == "eyotd" else NatsServer
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2a$")
    config = CONFIG.replace("%BCRYPT%", hashed)
    with kind(config, tmp_path_factory.mktemp(request.param)) as process:
        yield process


@pytest.fixture(scope="module", params=["nats-py", "c", "javascript", "raw"])
def driver(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Driver | RawDriver]:
    address = f"{server.host}:{server.client_port}"
    if request.param == "raw":
        yield RawDriver(server.client_port)
        return
    if request.param == "nats-py":
        command = [sys.executable, str(FOLDER / "client.py"), address]
    elif request.param == "c":
        command = [str(request.getfixturevalue("c_client")), address]
    else:
        command = ["node", str(request.getfixturevalue("javascript_client")), address]
    cwd = Path(command[1]).parent if request.param == "javascript" else FOLDER
    with Driver(command, cwd) as running:
        yield running


def connections(server: ServerProcess) -> int:
    return int(server.monitor("/connz")["num_connections"])


def noticed(server: ServerProcess, before: int) -> None:
    """A client hangs up without waiting for the server, which reads its sockets in an order of its own."""
    until = time.monotonic() + 30
    while connections(server) >= before:
        assert time.monotonic() < until, "the server does not notice that a client hung up"
        time.sleep(0.01)


@pytest.mark.parametrize(("name", "steps"), SCENARIOS, ids=[name for name, _ in SCENARIOS])
def test_scenario(server: ServerProcess, driver: Driver | RawDriver, name: str, steps: list[str]) -> None:
    try:
        for step in steps:
            command, _, expected = step.partition(" -> ")
            if command.startswith("none "):
                command, expected = f"next {command.removeprefix('none ')} {QUIET_MS}", "none"
            elif " | " in command:  # only the subject is looked at: the rest is the library's own
                command, _, subject = command.partition(" | ")
                assert driver(f"{command} 3000").split()[0] == subject, step
                continue
            elif command.startswith("next "):
                command += " 3000"
            if isinstance(server, NatsServer) and debian_version() < (2, 10):
                expected = ANSWERS_OF_2_9.get(command, expected)
            before = connections(server) if command.startswith("close ") else 0
            assert driver(command) == (expected or "ok"), step
            if before:
                noticed(server, before)
    finally:
        driver("reset")


def test_there_are_enough() -> None:
    assert len(SCENARIOS) >= 60
    assert len({name for name, _ in SCENARIOS}) == len(SCENARIOS)
