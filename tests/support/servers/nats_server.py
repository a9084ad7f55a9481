"""Debian's real `nats-server` as a process for tests, with the same interface as `Eyotd`."""

from __future__ import annotations

import functools
import re
import subprocess
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
