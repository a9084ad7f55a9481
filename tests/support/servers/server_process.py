"""A broker as a real process for tests: `Eyotd` (eyotd.py) and `NatsServer` (nats_server.py) are what tests use.

The configuration text may hold %CLIENT_PORT%, %LEAF_PORT%, %MONITOR_PORT% and %WORKDIR%; they are filled in with ports
that stay the same over restarts of one object. A text without `listen`/`port` gets `listen: 127.0.0.1:%CLIENT_PORT%`,
one without `http`/`http_port` gets a monitoring listener. A log file collects stderr over all starts.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0

#: Below the ephemeral range, so that no outgoing connection takes a port while its server restarts.
FIRST_PORT, PORTS, BLOCK = 20_000, 12_000, 250


class Ports:
    """A block of ports that no other process of this network takes: its name is bound in the abstract namespace of unix
    sockets, which belongs to the network as ports do, until the process ends.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.first = self._take()
        self._given = 0

    def _take(self) -> int:
        blocks = list(range(FIRST_PORT, FIRST_PORT + PORTS, BLOCK))
        random.SystemRandom().shuffle(blocks)
        for first in blocks:
            try:
                self._name.bind(f"\0eyot-test-ports-{first}")
            except OSError:
                continue
            return first
        raise RuntimeError(f"{len(blocks)} other processes hold all blocks of ports")

    def next(self) -> int:
        """A port that nobody listens on; the one given longest ago comes again first."""
        for _ in range(BLOCK):
            port = self.first + self._given % BLOCK
            self._given += 1
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port
        raise RuntimeError(f"something listens on each port from {self.first} to {self.first + BLOCK - 1}")


_ports: Ports | None = None


def free_port() -> int:
    """A free port that nobody else who tests on this machine is given."""
    global _ports
    if _ports is None or _ports.owner != os.getpid():
        _ports = Ports()
    return _ports.next()


def executable(kind: str) -> str:
    """The path of `eyotd` (of this virtual environment), of Debian's `nats-server`, or of any path given as it is."""
    if kind == "eyotd":
        return str(Path(sys.executable).with_name("eyotd"))
    if "/" in kind:
        return kind
    found = shutil.which(kind) or shutil.which(kind, path="/usr/sbin")
    if found is None:
        raise RuntimeError(f"{kind} is not installed: packaging/ensure-packages test")
    return found


class ServerProcess:
    """One broker process with its configuration, ports and log. Usable as a context manager (starts, stops)."""

    name = "server"

    def __init__(self, config: str, workdir: Path) -> None:
        workdir.mkdir(parents=True, exist_ok=True)
        self.workdir = workdir
        self.host = "127.0.0.1"
        self.client_port = free_port()
        self.leaf_port = free_port()
        self.monitor_port = free_port()
        self.config_path = workdir / f"{self.name}.conf"
        self.log_path = workdir / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.set_config(config)

    def set_config(self, config: str) -> None:
        """Write the configuration file (takes effect at the next start or reload)."""
        if not re.search(r"^\s*(listen|port|host|net)\b", config, re.MULTILINE):
            config = "listen: 127.0.0.1:%CLIENT_PORT%\n" + config
        if not re.search(r"^\s*(http|http_port|monitor_port)\b", config, re.MULTILINE):
            config = "http: 127.0.0.1:%MONITOR_PORT%\n" + config
        for key, value in (
            ("%CLIENT_PORT%", str(self.client_port)),
            ("%LEAF_PORT%", str(self.leaf_port)),
            ("%MONITOR_PORT%", str(self.monitor_port)),
            ("%WORKDIR%", str(self.workdir)),
        ):
            config = config.replace(key, value)
        self.config_path.write_text(config)

    def command(self) -> list[str]:
        raise AssertionError("the subclass names the executable")

    def start(self, *, wait: bool = True) -> None:
        """Start the process and wait until it greets clients with INFO."""
        assert self.process is None, "already running"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.workdir)
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process is not None
            code = self.process.poll()
            if code is not None:
                self.process = None
                raise RuntimeError(f"{self.name} exited with {code} at start:\n{self.log()[-4000:]}")
            try:
                with socket.create_connection((self.host, self.client_port), timeout=1) as sock:
                    if sock.recv(5) == b"INFO ":
                        return
            except OSError:
                pass
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f"{self.name} is not ready after {timeout_s} s:\n{self.log()[-4000:]}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client_url(self, user: str | None = None, password: str | None = None) -> str:
        """nats:// URL of the client listener; `password` defaults to the user's name."""
        credentials = "" if user is None else f"{user}:{user if password is None else password}@"
        return f"nats://{credentials}{self.host}:{self.client_port}"

    def leaf_url(self, user: str | None = None, password: str | None = None) -> str:
        credentials = "" if user is None else f"{user}:{user if password is None else password}@"
        return f"nats://{credentials}{self.host}:{self.leaf_port}"

    def monitor(self, path: str) -> Any:
        """GET a monitoring page and parse its JSON."""
        with urllib.request.urlopen(f"http://{self.host}:{self.monitor_port}{path}", timeout=10) as response:
            return json.load(response)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: what a power cut looks like to everybody but the disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int | None:
        """SIGTERM and wait; returns the exit code (None if it was not running)."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.terminate()
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"{self.name} did not stop within {STOP_TIMEOUT_S} s:\n{self.log()[-4000:]}") from None

    def restart(self) -> None:
        self.stop()
        self.start()

    def log(self) -> str:
        """Everything logged over all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_log(self, pattern: str, timeout_s: float = 10.0) -> None:
        """Wait until the log holds a line matching the regular expression."""
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.log()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} not in the log of {self.name}:\n{self.log()[-4000:]}")
            time.sleep(0.02)


#: (configuration) -> a running server; stopped by whoever gave this.
Start = Callable[[str], ServerProcess]
