"""Protocols that this package needs implemented by the daemon.

Everything here belongs to the loop's thread and never blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from eyot_sync.link.state import LinkState
from eyot_sync.link.urls import LinkAddress


class ClockPort(Protocol):
    """Time: wall clock for records, monotonic seconds for timers."""

    def now_ns(self) -> int: ...

    def monotonic(self) -> float: ...


class LinkEnd:
    """How a connection of a link ended."""

    __slots__ = ("established", "reason", "retry_after_s")

    def __init__(self, reason: str, *, established: bool, retry_after_s: float | None = None) -> None:
        self.reason = reason
        self.established = established
        self.retry_after_s = retry_after_s


class LinkRunner(Protocol):
    """Runs one connection of a remote over an open transport until it ends, and closes the transport.

    Writes its findings (phase, peer, traffic) into `state`, and passes the `host:port` texts that the hub announces to
    `learn`.
    """

    async def run_link(
        self,
        stream: trio.abc.Stream,
        address: LinkAddress,
        state: LinkState,
        learn: Callable[[Iterable[str]], None],
    ) -> LinkEnd: ...
