"""Debian's real `nats-server` as a process for tests, with the same interface as `Eyotd`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from support.server_process import ServerProcess, executable


class NatsServer(ServerProcess):
    """The reference: whatever version the machine has (Debian 12: 2.9.10)."""

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
