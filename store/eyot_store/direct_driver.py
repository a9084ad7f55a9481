"""A driver that commits small groups beside the loop, and leaves all others to a committing thread (`driver.py`).

With few messages in flight, waking a thread of Python for each group costs more than the group: it waits for the
interpreter, and the loop then waits for it. Here the loop itself prepares such a group, a thread that runs no Python
writes and flushes it (`frame_writer.py`), and an eventfd tells the loop. What comes meanwhile is the next group.

The committing thread and the loop never use the committer at the same time. The loop does so only while the thread has
reported all that it was given, and the thread gets nothing while a frame is being written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from eyot_store.committer import Committer
from eyot_store.driver import Group, Holding, ThreadDriver
from eyot_store.environment import as_store_error
from eyot_store.errors import StoreError
from eyot_store.native import FrameWriter
from eyot_store.txn import Txn

DIRECT_BYTES_MAX = 64 << 10
"""A larger group is for the committing thread: preparing it would hold the loop up."""


class DirectCommitter(Committer, Protocol):
    """A committer whose small groups can be written beside the loop (`JournalCommitter`)."""

    def begin(self, group: list[Txn], writer: FrameWriter) -> bool: ...

    def end(self, flush_ns: int) -> None: ...

    def abort(self) -> None: ...


class Wake(Protocol):
    """How other threads wake the loop up."""

    def fileno(self) -> int:
        """Return the eventfd to be written."""

    def when_woken(self, call: Callable[[], None]) -> None:
        """Have `call` made in the loop's thread each time after the eventfd was written."""


class DirectDriver(Holding):
    """See the module. `finished` gets the groups of the committing thread in that thread, `finished_here` those of the loop.

    `deliver` is called in the loop after the latter: by then, what waited for the group is being written.
    """

    def __init__(
        self,
        committer: DirectCommitter,
        finished: Callable[[Group], None],
        finished_here: Callable[[Group], None],
        deliver: Callable[[], None],
        wake: Wake,
    ) -> None:
        super().__init__()
        self._committer = committer
        self._finished = finished
        self._finished_here = finished_here
        self._deliver = deliver
        self._thread = ThreadDriver(committer, self._thread_finished)
        self._handed = 0  # transactions that the thread was given
        self._reported = 0  # of them; written by the thread
        self._writer = FrameWriter(wake.fileno())
        self._writing: list[Txn] | None = None
        self._since = 0.0  # when that write began
        self._waiting: list[Txn] = []  # for its end
        self._patient = False
        wake.when_woken(self._look)

    def set_window(self, seconds: float) -> None:
        """Leave everything to the thread while there is a window."""
        self._patient = seconds > 0
        self._thread.set_window(seconds)

    def stop(self) -> None:
        self.release()
        while self._writing is not None:
            self._written(self._writer.wait())
        self._thread.stop()
        self._writer.close()

    def stalled_s(self) -> float:
        writing_s = time.monotonic() - self._since if self._writing is not None else 0.0
        return max(writing_s, self._thread.stalled_s())

    def _take(self, txns: list[Txn]) -> None:
        if self._writing is not None:
            self._waiting.extend(txns)
        elif not self._begin(txns):
            self._hand(txns)

    def _begin(self, txns: list[Txn]) -> bool:
        """Write the transactions beside the loop, if that can be done now."""
        if self._patient or self._handed != self._reported or sum([txn.bytes for txn in txns]) > DIRECT_BYTES_MAX:
            return False
        try:
            if not self._committer.begin(txns, self._writer):
                return False
        except Exception:  # most likely a lack of memory: the thread decides, and reports it
            self._committer.abort()
            return False
        self._writing = txns
        self._since = time.monotonic()
        return True

    def _hand(self, txns: list[Txn]) -> None:
        self._handed += len(txns)
        for txn in txns:
            self._thread.submit(txn)

    def _thread_finished(self, group: Group) -> None:
        self._finished(group)
        self._reported += len(group)  # last: what the loop commits from now on is told after it

    def _look(self) -> None:
        """See whether a write has ended: the eventfd was written, for that or for another reason."""
        if self._writing is not None:
            failed = self._writer.result()
            if failed is not None:
                self._written(failed)
                self._deliver()

    def _written(self, failed: int) -> None:
        """Take the result of a write, 0 or its errno. What waited for it goes on before the loop learns of the result."""
        group, self._writing = self._writing, None
        assert group is not None
        waiting, self._waiting = self._waiting, []
        if failed:
            self._committer.abort()
            self._hand(group + waiting)
            return
        error: StoreError | None = None
        try:
            self._committer.end(self._writer.flush_ns)
        except Exception as raised:
            error = as_store_error(raised)
        self._finished_here([(txn, error) for txn in group])
        if waiting:
            self._take(waiting)
