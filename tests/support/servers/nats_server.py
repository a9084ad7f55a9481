"""Debian's real `nats-server` as a process for tests, with the same interface as `Eyotd`."""

from __future__ import annotations

import functools
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.servers.server_process import ServerProcess, executable


@functools.cache
def debian_version() -> tuple[int, ...]:
    """The version of the machine's own nats-server: (2, 9, 10) on Debian 12, (2, 10, 27) on Debian 13."""
    text = subprocess.run([executable("nats-server"), "-v"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


class NatsServer(ServerProcess):
    """The reference: whatever version the machine has (Debian 12: 2.9.10, Debian 13: 2.10.27)."""

    name = "nats-server"

    def command(self) -> list[str]:
        return [executable("nats-server"), "-c", str(self.config_path)]

    def hold_directories(self) -> None:
        """Put a file beside the streams of each account with JetStream, if the configuration names a store.

        After the last stream of an account nats-server removes the account's directories in the background if they are
        empty: one of about 300 streams made right then finds none, "error creating store for stream". What is held is
        no stream, which its health tells.
        """
        store = re.search(r"store_dir\s*[:=]?\s*[\"']?([^\"'\s,}]+)", self.config_path.read_text())
        if store is not None:
            for account in self.monitor("/jsz?accounts=1").get("account_details", ()):
                _hold(Path(self.workdir, store[1], "jetstream", account["name"], "streams"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _hold(directory: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "held").touch()
        except FileNotFoundError:  # it was removed meanwhile
            if time.monotonic() > deadline:
                raise
        else:
            return
