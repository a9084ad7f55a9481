"""systemd's notifications, the ports file, and signals by pid file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from eyot_daemon.config.options import Options
from eyot_daemon.process.notify import Notifier
from eyot_daemon.process.ports_file import Ports, PortsFile, urls
from eyot_daemon.process.reload_answer import SignalError
from eyot_daemon.process.signals import send_signal
from eyot_daemon.process.state_files import StateFiles


def received(sock: socket.socket) -> list[str]:
    sock.setblocking(False)
    states = []
    while True:
        try:
            states.append(sock.recv(1024).decode())
        except BlockingIOError:
            return states


@pytest.mark.parametrize("abstract", [False, True])
def test_notifications(tmp_path: Path, abstract: bool) -> None:
    name = f"@eyot-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name[1:] if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready()
        notifier.status("all well")
        notifier.reloading()
        notifier.stopping()
        states = received(sock)
    assert states[:2] == ["READY=1", "STATUS=all well"]
    assert states[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert states[3:] == ["STOPPING=1"]


def test_without_systemd_nothing_happens() -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"}).ready()


async def test_watchdog(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    name = str(tmp_path / "notify")
    healthy = True
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        env = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
        notifier = Notifier(env)
        assert notifier.watchdog_s == 10.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(notifier.run_watchdog, lambda: healthy)
            await trio.sleep(11)
            assert received(sock) == ["WATCHDOG=1"] * 3
            healthy = False
            await trio.sleep(20)
            assert received(sock) == []
            nursery.cancel_scope.cancel()
    assert Notifier({"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}).watchdog_s == 0.0
    await Notifier({}).run_watchdog(lambda: True)


def test_ports_file(tmp_path: Path) -> None:
    ports_file = PortsFile(str(tmp_path))
    ports_file.write(Ports(nats=urls("nats", "127.0.0.1", 4222), monitoring=urls("http", "::1", 8222)))
    assert ports_file.path == tmp_path / f"nats-server_{os.getpid()}.ports"
    assert msgspec.json.decode(ports_file.path.read_bytes()) == {
        "nats": ["nats://127.0.0.1:4222"],
        "monitoring": ["http://[::1]:8222"],
    }
    assert list(tmp_path.iterdir()) == [ports_file.path]
    ports_file.remove()
    ports_file.remove()
    assert not ports_file.path.exists()


def test_the_pid_file_of_a_successor_stays(tmp_path: Path) -> None:
    options = Options(pid_file=str(tmp_path / "x.pid"))
    for successor in (False, True):
        files = StateFiles()
        files.write(options, Ports())
        assert (tmp_path / "x.pid").read_text() == str(os.getpid())
        if successor:
            (tmp_path / "x.pid").write_text("1")
        files.remove()
        assert (tmp_path / "x.pid").exists() == successor


def test_a_listener_on_all_addresses_is_reached_under_each() -> None:
    everywhere = urls("nats", "0.0.0.0", 1)
    assert everywhere[0] == "nats://127.0.0.1:1"
    assert len(everywhere) == len(set(everywhere))
    assert "nats://[::1]:1" in urls("nats", "::", 1)


def test_signals_by_pid_and_pid_file(tmp_path: Path) -> None:
    pid_file = tmp_path / "x.pid"
    for target in ("pid", "file", "configured"):
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
            pid_file.write_text(f"{process.pid}\n")
            if target == "configured":
                send_signal("stop", str(pid_file))
            else:
                send_signal(f"term={process.pid if target == 'pid' else pid_file}")
            assert process.wait() == (-signal.SIGKILL if target == "configured" else -signal.SIGTERM)


def test_signals_that_cannot_be_sent(tmp_path: Path) -> None:
    (tmp_path / "bad.pid").write_text("x")
    for command, words in (
        ("foo", 'unknown signal "foo"'),
        ("reload=99999999", "no such process"),
        (f"reload={tmp_path}/none.pid", "cannot read pid file"),
        (f"reload={tmp_path}/bad.pid", 'invalid pid: "x"'),
    ):
        with pytest.raises(SignalError, match=words.replace('"', ".")):
            send_signal(command)
