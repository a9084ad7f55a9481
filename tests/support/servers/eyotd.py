"""`eyotd` as a real process for tests."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from support.servers.server_process import ServerProcess, executable


class Eyotd(ServerProcess):
    """The daemon of this checkout, started from the environment the tests run in."""

    name = "eyotd"

    def command(self) -> list[str]:
        return [executable("eyotd"), "-c", str(self.config_path)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class PlainEyotd(Eyotd):
    """The same with the plain-Python twin of the hot room."""

    def command(self) -> list[str]:
        return ["env", "EYOT_PLAIN=1", *super().command()]
