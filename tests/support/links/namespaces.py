"""A network namespace with one wire to this one (iproute2, needs root): when the wire is cut, no kernel is notified."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Self

from support.servers.eyotd import Eyotd


class NoNamespaces(Exception):
    """They cannot be made here; the text says why."""


class Wire:
    """Namespace and wire. `here` and `there` are the addresses of its ends."""

    def __init__(self) -> None:
        number = os.getpid() % 60_000
        self.name = f"eyot{number}"
        self.here = f"10.{200 + number % 50}.{number % 250}.1"
        self.there = self.here[:-1] + "2"
        self._near, self._far = f"ey{number}a", f"ey{number}b"

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
            _ip("link", "set", self._far, "netns", self.name)
            _ip("addr", "add", f"{self.here}/30", "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", self._far)
            _ip("-n", self.name, "link", "set", self._far, "up")
            _ip("-n", self.name, "link", "set", "lo", "up")
        except NoNamespaces:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def cut(self) -> None:
        """Packets vanish from now on."""
        _ip("link", "set", self._near, "down")

    def restore(self) -> None:
        _ip("link", "set", self._near, "up")

    def remove(self) -> None:
        for command in (["link", "del", self._near], ["netns", "del", self.name]):
            subprocess.run(["ip", *command], capture_output=True)


class FarEyotd(Eyotd):
    """`eyotd` at the far end of a wire; its listeners have to be on all addresses."""

    wire: Wire

    def command(self) -> list[str]:
        return ["ip", "netns", "exec", self.wire.name, *super().command()]


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError:
        raise NoNamespaces("iproute2 is not installed") from None
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(words)}: {done.stderr.strip()}")
