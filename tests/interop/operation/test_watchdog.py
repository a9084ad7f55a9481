"""eyotd notifies systemd's watchdog only while the loop turns, the committing thread progresses and the disk answers."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.store.bad_disk import BadDiskEyotd, disk_library

INTERVAL_S = 4.0
CONFIG = "jetstream { store_dir: '%WORKDIR%/js' }"


class Systemd:
    """The socket that `Type=notify` gives a service."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.path = path

    def wait_for(self, state: str, timeout_s: float = 60.0) -> None:
        self.sock.settimeout(timeout_s)
        while not self.sock.recv(4096).decode().startswith(state):
            pass

    def drain(self) -> list[str]:
        """What has come so far."""
        self.sock.setblocking(False)
        states = []
        while True:
            try:
                states.append(self.sock.recv(4096).decode())
            except BlockingIOError:
                return states


class WatchedEyotd(BadDiskEyotd):
    notify: Path

    def command(self) -> list[str]:
        # The pid is that of `env`, which becomes the daemon.
        watched = [f"NOTIFY_SOCKET={self.notify}", f"WATCHDOG_USEC={int(INTERVAL_S * 1e6)}"]
        command = super().command()
        return [command[0], *watched, *command[1:]]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    found = Systemd(tmp_path / "notify")
    yield found
    found.sock.close()


@pytest.fixture
def daemon(tmp_path: Path, systemd: Systemd) -> Iterator[WatchedEyotd]:
    server = WatchedEyotd(CONFIG, tmp_path)
    server.library, server.notify = disk_library(tmp_path), systemd.path
    server.start()
    systemd.wait_for("READY=1")
    systemd.wait_for("WATCHDOG=1")
    yield server
    server.heal()
    server.kill()


def silent(systemd: Systemd, why: str) -> None:
    """The daemon says what is wrong, and after that not that all is well, for longer than systemd would wait."""
    systemd.wait_for(f"STATUS=Not well: {why}")
    end = time.monotonic() + 1.5 * INTERVAL_S
    while (left_s := end - time.monotonic()) > 0:
        systemd.sock.settimeout(left_s)
        try:
            assert systemd.sock.recv(4096).decode() != "WATCHDOG=1"
        except TimeoutError:
            break


def test_a_disk_that_hangs_while_nothing_is_stored(daemon: WatchedEyotd, systemd: Systemd) -> None:
    daemon.hang()
    systemd.drain()  # what a busy machine said before
    silent(systemd, "the disk has not answered")
    daemon.heal()
    systemd.wait_for("STATUS=Serving")
    systemd.wait_for("WATCHDOG=1")
    assert "systemd's watchdog is not notified: the disk has not answered" in daemon.log()


def test_a_commit_that_hangs(daemon: WatchedEyotd, systemd: Systemd) -> None:
    with RawClient(daemon.client_port) as client:
        client.send(b"SUB in 1\r\nPUB $JS.API.STREAM.CREATE.S in 29\r\n" + b'{"name":"S","subjects":["s"]}\r\n')
        client.until(b'"did_create":true}\r\n')
        daemon.hang()
        client.send(b"PUB s in 1\r\nx\r\n")
        systemd.drain()
        silent(systemd, "the committing thread has not progressed")
        daemon.heal()
        client.until(b'"seq":1}\r\n')
        systemd.wait_for("WATCHDOG=1")


def test_a_disk_that_refuses_has_answered(daemon: WatchedEyotd, systemd: Systemd) -> None:
    daemon.fail(5)
    systemd.drain()
    for _ in range(3):
        systemd.wait_for("WATCHDOG=1")


def test_a_loop_that_does_not_turn(daemon: WatchedEyotd, systemd: Systemd) -> None:
    """Nobody is left to say what is wrong: the daemon is silent."""
    assert daemon.process is not None
    os.kill(daemon.pid, signal.SIGSTOP)
    while Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    systemd.drain()
    systemd.sock.settimeout(1.5 * INTERVAL_S)
    with pytest.raises(TimeoutError):
        systemd.sock.recv(4096)
    os.kill(daemon.pid, signal.SIGCONT)
    systemd.wait_for("WATCHDOG=1")
