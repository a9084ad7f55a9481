"""The line that `systemctl status` shows of the running daemon, kept true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from eyot_daemon.process.notify import Notifier
    from eyot_daemon.process.watchdog import Watchdog

#: How often the line is compared with the state, seconds.
EVERY_S = 5.0


class ServiceStatus:
    """Sends the line of `compose` when it has changed. While the watchdog finds something wrong, the watchdog's line stays."""

    def __init__(self, notifier: Notifier, watchdog: Watchdog, compose: Callable[[], str]) -> None:
        self._notifier = notifier
        self._watchdog = watchdog
        self._compose = compose

    async def run(self) -> None:
        """Run until cancelled; return at once where no service manager listens."""
        if not self._notifier.is_heard:
            return
        while True:
            self._show()
            await trio.sleep(EVERY_S)

    def _show(self) -> None:
        if not self._watchdog.is_well:
            return
        try:
            line = self._compose()
        except OSError as error:  # the disk's figures: the watchdog says what a failing disk means
            line = f"Serving; the disk cannot be asked: {error.strerror}"
        if line != self._notifier.shown:
            self._notifier.status(line)
