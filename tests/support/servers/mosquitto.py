"""Debian's mosquitto and its clients as processes, for tests of bridges."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.servers.server_process import executable, free_port

READY_S = 30.0
#: The payload of publishes that only show whether somebody subscribes.
PROBE = "probe"
#: Everything is on disk when mosquitto is asked to end; what a SIGKILL leaves is as old as the last save.
CONFIG = """listener {port} 127.0.0.1
persistence true
persistence_location {directory}/
max_queued_messages 0
max_inflight_messages 200
"""


class Mosquitto:
    """One broker, with its sessions on disk. `extra`: more of its configuration."""

    def __init__(self, directory: Path, extra: str = "allow_anonymous true\n", *, listener: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)  # it gives up root's rights
        self.directory = directory
        self.port = free_port()
        self.config = directory / "mosquitto.conf"
        self.log_path = directory / "mosquitto.log"
        self.config.write_text(CONFIG.format(port=self.port, directory=directory) + listener + "user root\n" + extra)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        with self.log_path.open("ab") as log:
            command = [executable("mosquitto"), "-c", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self.process.poll() is None, self.log_path.read_text()
                assert time.monotonic() < deadline, "mosquitto does not listen"
                time.sleep(0.01)
            else:
                return

    def stop(self) -> None:
        """End in order: everything is saved."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def reload(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(READY_S)
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Subscriber:
    """`mosquitto_sub` with a session of its own; it writes `topic payload` a line into a file, and connects again by itself."""

    def __init__(self, port: int, path: Path, topic_filter: str = "#", *more: str) -> None:
        found = shutil.which("mosquitto_sub")
        assert found is not None
        self.path = path
        command = [
            "stdbuf",
            "-oL",
            found,
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-t",
            topic_filter,
            "-q",
            "2",
            "-F",
            "%t %p",
        ]
        self._command = [*command, "-i", f"subscriber-{path.name}", "-c", *more]
        self._file = path.open("ab")
        self.process = subprocess.Popen(self._command, stdout=self._file, stderr=subprocess.DEVNULL)

    def lines(self) -> list[str]:
        """What came, without probes."""
        return [line for line in self.path.read_text().splitlines() if not line.endswith(PROBE)]

    def wait_subscribed(self, port: int, topic: str, timeout_s: float = 60.0) -> None:
        """Publish probes until another one arrives: the broker knows the subscription."""
        begun, deadline = self.path.read_text().count(PROBE), time.monotonic() + timeout_s
        while self.path.read_text().count(PROBE) <= begun:
            assert time.monotonic() < deadline, "no subscription"
            publish(port, topic, PROBE)

    def wait(self, count: int, timeout_s: float = 60.0) -> list[str]:
        """Wait for `count` different lines; return all lines."""
        deadline = time.monotonic() + timeout_s
        while len(set(found := self.lines())) < count:
            assert time.monotonic() < deadline, f"{len(set(found))} of {count}: {found[-3:]}"
            time.sleep(0.02)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._file.close()


def publish(port: int, topic: str, payload: str, qos: int = 1, *more: str) -> None:
    """Publish with `mosquitto_pub`; it ends when the message is acknowledged."""
    found = shutil.which("mosquitto_pub")
    assert found is not None
    command = [found, "-h", "127.0.0.1", "-p", str(port), "-t", topic, "-m", payload, "-q", str(qos), *more]
    subprocess.run(command, check=True, timeout=READY_S)
