"""More time from systemd for a start or stop that is long and gets on: EXTEND_TIMEOUT_USEC (sd_notify(3)).

A recovery of a large store after a power cut, or a last commit to slow flash, may outlast `TimeoutStartSec=` and `TimeoutStopSec=`.
Both block the event loop, so a thread asks for the time. It asks only while the process computes, reads or writes: one that
hangs is ended by systemd as without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from eyot_daemon.process.notify import Notifier

#: How often more time is asked for, seconds. Well below the shortest timeout of eyotd.service, 60 s.
EVERY_S = 10.0
#: How much is asked for, seconds.
EXTENSION_S = 60.0
#: Processor time that waiting itself costs the process in EVERY_S, seconds.
_IDLE_S = 0.02


class Progress:
    """Whether the process has done something since it was asked before: computed, read from a disk or written to one."""

    def __init__(self) -> None:
        self._cpu_s, self._bytes = time.process_time(), _disk_bytes()

    def __call__(self) -> bool:
        before_s, before_bytes = self._cpu_s, self._bytes
        self._cpu_s, self._bytes = time.process_time(), _disk_bytes()
        return self._cpu_s - before_s > _IDLE_S or self._bytes != before_bytes


class TimeoutExtension:
    """While it is entered, systemd allows the start or stop to go on. `what` is the status line, to which the seconds are added."""

    def __init__(
        self,
        notifier: Notifier,
        what: str,
        *,
        every_s: float = EVERY_S,
        progress: Callable[[], bool] | None = None,
    ) -> None:
        self._notifier = notifier
        self._what = what
        self._every_s = every_s
        self._progress = progress
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._notifier.is_heard:
            self._thread = threading.Thread(target=self._run, name="timeout extension", daemon=True)
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        progress = self._progress or Progress()
        began_s = time.monotonic()
        while not self._ended.wait(self._every_s):
            if progress():
                self._notifier.extend_timeout(EXTENSION_S, f"{self._what} ({time.monotonic() - began_s:.0f} s)")


def _disk_bytes() -> str:
    """Return what the kernel counts as read from disks and written to them by this process; "" where it does not count."""
    try:
        with open("/proc/self/io") as counts:
            return "".join(line for line in counts if line.startswith(("read_bytes", "write_bytes")))
    except OSError:
        return ""
