"""systemd's notifications, the ports file, and signals by pid file."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from eyot_daemon.config.options import Options
from eyot_daemon.process.notify import Notifier
from eyot_daemon.process.ports_file import Ports, PortsFile, urls
from eyot_daemon.process.reload_answer import SignalError
from eyot_daemon.process.service import Runtime
from eyot_daemon.process.service_status import ServiceStatus
from eyot_daemon.process.signals import send_signal
from eyot_daemon.process.state_files import StateFiles
from eyot_daemon.process.timeout_extension import Progress, TimeoutExtension
from eyot_daemon.process.watchdog import Watchdog


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


class Store:
    """A store that is as a test wants it. Its disk answers when `answers` is set."""

    def __init__(self) -> None:
        self.stalled_s = 0.0
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0
        self.was_asked = threading.Event()

    def commit_stalled_s(self) -> float:
        return self.stalled_s

    def ask_disk(self) -> None:
        self.asked += 1
        self.was_asked.set()
        self.answers.wait()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Notifier, socket.socket]]:
    """A notifier with a watchdog of 10 s, and the socket on which systemd would listen."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        env = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
        yield Notifier(env), sock


async def passes(seconds: float, clock: trio.testing.MockClock, watchdog: Watchdog, store: Store) -> None:
    """So much time passes; a disk that answers does so at once."""
    for _ in range(round(seconds * 4)):
        await trio.testing.wait_all_tasks_blocked()
        while watchdog.waits_for_disk and store.answers.is_set():
            await trio.lowlevel.checkpoint()
        clock.jump(0.25)
    await trio.testing.wait_all_tasks_blocked()


async def test_watchdog(watched: tuple[Notifier, socket.socket], mock_clock: trio.testing.MockClock) -> None:
    notifier, sock = watched
    store = Store()
    assert notifier.watchdog_s == 10.0
    async with trio.open_nursery() as nursery:
        watchdog = Watchdog(notifier, lambda: store)
        nursery.start_soon(watchdog.run)
        await passes(11, mock_clock, watchdog, store)
        assert received(sock) == ["WATCHDOG=1"] * 3
        store.stalled_s = 4.0
        await passes(20, mock_clock, watchdog, store)
        assert set(received(sock)) == {"STATUS=Not well: the committing thread has not progressed for 4 s"}
        store.stalled_s = float("inf")
        await passes(20, mock_clock, watchdog, store)
        assert set(received(sock)) == {"STATUS=Not well: the committing thread has ended"}
        store.stalled_s = 0.0
        await passes(2, mock_clock, watchdog, store)
        assert received(sock) == ["STATUS=Serving", "WATCHDOG=1"]
        nursery.cancel_scope.cancel()
    assert Notifier({"WATCHDOG_USEC": "5", "WATCHDOG_PID": str(os.getpid() + 1)}).watchdog_s == 0.0
    await Watchdog(Notifier({}), lambda: store).run()


async def test_the_watchdog_waits_for_a_disk_that_does_not_answer(
    watched: tuple[Notifier, socket.socket], mock_clock: trio.testing.MockClock
) -> None:
    notifier, sock = watched
    store = Store()
    store.answers.clear()
    async with trio.open_nursery() as nursery:
        watchdog = Watchdog(notifier, lambda: store)
        nursery.start_soon(watchdog.run)
        await passes(40, mock_clock, watchdog, store)
        told = received(sock)
        assert told
        assert all(each.startswith("STATUS=Not well: the disk has not answered for ") for each in told)
        await trio.to_thread.run_sync(store.was_asked.wait)
        assert store.asked == 1, "a disk that hangs is not asked again and again"
        store.answers.set()
        await passes(4, mock_clock, watchdog, store)
        assert received(sock) == ["STATUS=Serving", "WATCHDOG=1"]
        nursery.cancel_scope.cancel()


async def test_the_status_line_is_sent_when_it_changes(
    watched: tuple[Notifier, socket.socket], mock_clock: trio.testing.MockClock
) -> None:
    notifier, sock = watched
    store, lines = Store(), ["Serving; links: 1 of 1 up"]
    watchdog = Watchdog(notifier, lambda: store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ServiceStatus(notifier, watchdog, lambda: lines[-1]).run)
        await passes(20, mock_clock, watchdog, store)
        assert received(sock) == ["STATUS=Serving; links: 1 of 1 up"]
        lines.append("Serving; links: 0 of 1 up")
        await passes(20, mock_clock, watchdog, store)
        assert received(sock) == ["STATUS=Serving; links: 0 of 1 up"]
        nursery.start_soon(watchdog.run)
        store.stalled_s = float("inf")
        lines.append("Serving; links: 1 of 1 up")
        await passes(20, mock_clock, watchdog, store)
        assert "STATUS=Not well: the committing thread has ended" in (told := received(sock))
        assert told[-1] == "STATUS=Not well: the committing thread has ended", "the watchdog's line stays"
        store.stalled_s = 0.0
        await passes(20, mock_clock, watchdog, store)
        assert "STATUS=Serving; links: 1 of 1 up" in received(sock)
        nursery.cancel_scope.cancel()
    await ServiceStatus(Notifier({}), watchdog, lambda: "nobody listens").run()


async def test_a_disk_without_figures_ends_no_status(
    watched: tuple[Notifier, socket.socket], mock_clock: trio.testing.MockClock
) -> None:
    notifier, sock = watched
    watchdog = Watchdog(notifier, lambda: None)

    def fail() -> str:
        raise OSError(5, "Input/output error")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ServiceStatus(notifier, watchdog, fail).run)
        await passes(11, mock_clock, watchdog, Store())
        nursery.cancel_scope.cancel()
    assert received(sock) == ["STATUS=Serving; the disk cannot be asked: Input/output error"]


def test_a_start_that_gets_on_is_given_time(watched: tuple[Notifier, socket.socket]) -> None:
    notifier, sock = watched
    sock.settimeout(60)
    with TimeoutExtension(notifier, "Starting", every_s=0.01, progress=lambda: True):
        state = sock.recv(1024).decode()
    assert re.fullmatch(r"EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Starting \(\d+ s\)", state)


def test_a_start_that_hangs_is_given_none(watched: tuple[Notifier, socket.socket]) -> None:
    notifier, sock = watched
    looked = threading.Semaphore(0)

    def none() -> bool:
        looked.release()
        return False

    with TimeoutExtension(notifier, "Starting", every_s=0.01, progress=none):
        for _ in range(3):
            assert looked.acquire(timeout=60)
    assert received(sock) == []


def test_computing_reading_and_writing_are_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = ["read_bytes: 4096\n"]
    monkeypatch.setattr("eyot_daemon.process.timeout_extension._disk_bytes", lambda: counted[-1])
    progress = Progress()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert progress()
    counted.append("read_bytes: 8192\n")
    assert progress()


def test_ports_file(tmp_path: Path) -> None:
    ports_file = PortsFile(str(tmp_path))
    ports_file.write(Ports(nats=urls("nats", "127.0.0.1", 4222), monitoring=urls("http", "::1", 8222)))
    assert ports_file.path == tmp_path / f"nats-server_{os.getpid()}.ports"
    assert msgspec.json.decode(ports_file.path.read_bytes()) == {
        "nats": ["nats://127.0.0.1:4222"],
        "monitoring": ["http://[::1]:8222"],
    }
    assert list(tmp_path.iterdir()) == [ports_file.path]


async def test_the_pid_file_of_a_successor_stays(tmp_path: Path, nursery: trio.Nursery) -> None:
    options = Options(pid_file=str(tmp_path / "x.pid"), ports_file_dir=str(tmp_path))
    ports_file = PortsFile(str(tmp_path)).path
    for successor in (False, True):
        files, runtime = StateFiles(), Runtime(nursery, nursery, Ports())
        files.start(files.configure(options), runtime)
        assert not (tmp_path / "x.pid").exists(), "written before the daemon is ready"
        runtime.open()
        assert (tmp_path / "x.pid").read_text() == str(os.getpid())
        assert ports_file.exists()
        if successor:
            (tmp_path / "x.pid").write_text(str(os.getpid() + 1))
        files.stop()
        files.stop()
        assert (tmp_path / "x.pid").exists() == successor
        assert not ports_file.exists()
        (tmp_path / "x.pid").unlink(missing_ok=True)


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
        ("reload=99999999999", 'invalid pid: "99999999999"'),
        (f"reload={tmp_path}/none.pid", "cannot read pid file"),
        (f"reload={tmp_path}/bad.pid", 'invalid pid: "x"'),
    ):
        with pytest.raises(SignalError, match=words.replace('"', ".")):
            send_signal(command)
