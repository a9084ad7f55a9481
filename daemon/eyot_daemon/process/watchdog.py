"""Health checks behind systemd's watchdog: the event loop turns, the committing thread progresses, the disk answers.

systemd kills and restarts a service that does not say `WATCHDOG=1` for `WatchdogSec=`. A disk that refuses answers too: a restart
would not make room on it, and clients that need no JetStream are served meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from eyot_daemon.process.notify import Notifier

log = logging.getLogger("eyot")

#: What `systemctl status` shows when all is well again.
_WELL = "Serving"


class WatchedStore(Protocol):
    """The store as the watchdog uses it."""

    def commit_stalled_s(self) -> float:
        """How long the committing thread has been at the same group, seconds; infinity when the thread has ended."""

    def ask_disk(self) -> None:
        """Read from the disk itself, not from the page cache; return when the disk has answered, also with an error. In any thread."""


class Watchdog:
    """Says that all is well twice an interval. `store` gives the store, None while there is none.

    The check runs in the event loop: a check that runs proves that the loop turns.
    """

    def __init__(self, notifier: Notifier, store: Callable[[], WatchedStore | None]) -> None:
        self._notifier = notifier
        self._store = store
        self._asked_at: float | None = None  # when the disk was asked that has not answered yet
        self._was_well = True

    @property
    def is_well(self) -> bool:
        """What the last check found; true before the first one."""
        return self._was_well

    @property
    def waits_for_disk(self) -> bool:
        """The disk has been asked and has not answered yet."""
        return self._asked_at is not None

    async def run(self) -> None:
        """Run until cancelled; return at once where systemd has no watchdog for this unit."""
        interval_s = self._notifier.watchdog_s
        if not interval_s:
            return
        async with trio.open_nursery() as nursery:
            while True:
                wrong = await self._check(nursery, interval_s / 4)
                self._note(wrong)
                if not wrong:
                    self._notifier.watchdog()
                # Looked at more often while something is wrong: the moment at which it ends must not be missed.
                await trio.sleep(interval_s / (8 if wrong else 2))

    async def _check(self, nursery: trio.Nursery, patience_s: float) -> str:
        """Return the problem, "" for none."""
        store = self._store()
        if store is None:
            return ""
        stalled_s = store.commit_stalled_s()
        if stalled_s == float("inf"):
            return "the committing thread has ended"
        if stalled_s > patience_s:
            return f"the committing thread has not progressed for {stalled_s:.0f} s"
        if self._unanswered_s() is None:
            self._asked_at = trio.current_time()
            answered = trio.Event()
            nursery.start_soon(self._ask, store, answered)
            with trio.move_on_after(patience_s):
                await answered.wait()
        unanswered_s = self._unanswered_s()
        return "" if unanswered_s is None else f"the disk has not answered for {unanswered_s:.0f} s"

    def _unanswered_s(self) -> float | None:
        """How long the disk has been asked without an answer; None: it has answered."""
        return None if self._asked_at is None else trio.current_time() - self._asked_at

    async def _ask(self, store: WatchedStore, answered: trio.Event) -> None:
        # Abandoned when the daemon ends: the thread may hang for as long as the disk does.
        await trio.to_thread.run_sync(store.ask_disk, abandon_on_cancel=True)
        self._asked_at = None
        answered.set()

    def _note(self, wrong: str) -> None:
        if wrong:
            self._notifier.status(f"Not well: {wrong}")
            if self._was_well:
                log.error("systemd's watchdog is not notified: %s", wrong)
        elif not self._was_well:
            self._notifier.status(_WELL)
            log.info("All is well again")
        self._was_well = not wrong
