"""Long purges of a stream: one slice per transaction, the next when that is on flash, so that other work continues.

A slice reads the messages that it removes, because byte counts and subjects change. A purge that the store does at once, or a
small one, is one transaction. Messages published meanwhile are never affected: the purge's end is fixed at its start.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.messages.batch import Batch
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log
    from eyot_store.log.removals import FromEnd

#: Messages that one transaction reads (a few milliseconds).
PURGE_SLICE = 1024
#: Factor on `PURGE_SLICE` where a filter may match few of the messages.
LOOKED_AT = 4

Done = Callable[[int, StoreError | None], None]


def is_long(log: "Log", below_seq: int, subject_filter: bytes, keep: int) -> bool:
    """Return whether a purge has to read more than a slice of messages."""
    state = log.state
    if state.messages <= PURGE_SLICE:
        return False
    if subject_filter not in (b"", b">"):
        return True
    if keep:
        return PURGE_SLICE < keep < state.messages - PURGE_SLICE
    return bool(below_seq) and state.first_seq + PURGE_SLICE < below_seq < state.last_seq - PURGE_SLICE


class Purge:
    """One long purge under way; `done(removed, error)` at its end."""

    def __init__(self, stream: "StreamCore", below_seq: int, subject_filter: bytes, keep: int, done: Done) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._filter = b"" if subject_filter == b">" else subject_filter
        self._done = done
        self._removed = 0
        self._last = 0
        self._seeking: FromEnd | None = None  # where the purge is to end
        state = self._log.state
        self._next = max(state.first_seq, 1)
        self._left = state.messages
        if self._filter:
            self._left = max(self._log.subject_total(self._filter) - keep, 0)
            self._last = min(below_seq - 1, state.last_seq) if below_seq else state.last_seq
        elif keep:
            self._seeking = self._log.from_end(keep)
        else:
            self._last = below_seq - 1

    def run(self, failure: StoreError | None = None) -> None:
        """Take away the next slice."""
        if self._seeking is not None and failure is None and self._stream.live:
            try:
                if not self._seeking.step():
                    self._stream.timers.call_at(self._stream.clock.monotonic(), self.run)
                    return
            except StoreError as error:
                failure = error
            self._last, self._seeking = self._seeking.seq - 1, None
        if failure is None and self._next <= self._last and self._left > 0 and self._stream.live:
            try:
                self._slice()
                return
            except StoreError as error:
                failure = error
        self._done(self._removed, failure)

    def _slice(self) -> None:
        batch = Batch()
        with self._stream.staging() as txn:
            if self._filter:
                # A message that is only read costs less than one that is removed: a smaller slice would be mostly overhead.
                end = min(self._last, self._next + LOOKED_AT * PURGE_SLICE - 1)
                gone, self._next = self._log.purge_some(txn, self._next, end, self._filter, self._left)
            else:
                end = min(self._last, self._log.state.first_seq + PURGE_SLICE)
                gone = self._log.purge(txn, below_seq=end + 1)
                self._next = end + 1
        self._removed += gone
        self._left -= gone
        if not txn.parts:
            # Nothing to write: continue in another turn.
            self._stream.store.abort(txn)
            self._stream.timers.call_at(self._stream.clock.monotonic(), self.run)
            return
        batch.purged, batch.singly = True, False
        batch.then.append(self.run)
        self._stream.submit(txn, batch)
