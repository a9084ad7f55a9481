"""Walks through a whole stream after a changed configuration or a removed consumer, to remove messages that are no longer needed.

One slice per transaction, the next when that is on flash, so that other work continues; a small stream is done at once.
The walk's progress is not stored, only that it runs: after a restart it begins again. Tracking the log's subjects is
such a walk, too.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.messages.batch import Batch
from eyot_daemon.jetstream.retention import limits
from eyot_store.errors import StoreError
from eyot_store.log.subjects import TRACKED_MESSAGES_MAX

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log, Unwanted
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

#: Messages that one transaction removes.
SWEEP_SLICE = 4096
#: Among the stream's positions while a walk is under way.
KEY = b"eyot.sweep"
#: After a failure, the walk continues this much later, seconds.
RETRY_S = 1.0


class Sweep:
    """The walk through one stream.

    `unneeded` returns a predicate for messages that interest retention does not need any more. `overdue` are subjects with
    more messages than allowed, whose oldest ones are still to be found.
    """

    def __init__(self, stream: "StreamCore", unneeded: "Callable[[], Unwanted]") -> None:
        self._stream = stream
        self._unneeded = unneeded
        self._log: Log = stream.log
        self._next = 0  # 0: no walk is under way
        self._last = 0
        self._tracking = False
        self.overdue: set[bytes] = set()
        self._log.index.on_slow = self._track_soon

    def start(self) -> None:
        """Start with the stream: resume the walk that the daemon's end interrupted."""
        if KEY in self._log.positions():
            self._walk()

    def begin(self, txn: "Txn") -> list[int]:
        """Stage the removal of excess messages in a small stream, and return their sequences; in a large one, search from the next turn on."""
        state = self._log.state
        if state.messages <= SWEEP_SLICE:
            gone: list[int] = []
            seq, last = max(state.first_seq, 1), self._log.committed_seq
            while seq <= last:
                some, seq = self._log.sweep(txn, seq, last, self._unwanted(), SWEEP_SLICE)
                gone += some
            return gone
        self._log.put_position(txn, KEY, b"")
        self._walk()
        return []

    # -- walking ---------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        under_way = self._next
        self._next, self._last = max(self._log.state.first_seq, 1), self._log.state.last_seq
        if not under_way:
            self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        self._stream.timers.call_later(seconds, self._slice)

    def _slice(self) -> None:
        stream, begun = self._stream, self._next
        if not stream.live:
            self._next = 0
            return
        batch = Batch()
        try:
            with stream.staging() as txn:
                batch.removed, self._next = self._log.sweep(txn, begun, self._last, self._unwanted(), SWEEP_SLICE)
                if self._next > min(self._last, self._log.committed_seq):
                    self._log.delete_position(txn, KEY)
        except StoreError as failure:
            self._on(begun, failure)
            return
        if txn.parts:
            batch.then.append(lambda failure: self._on(begun, failure))
            stream.submit(txn, batch)
        else:
            stream.store.abort(txn)
            self._soon(0.0)

    def _on(self, begun: int, failure: StoreError | None) -> None:
        """Continue after a slice that is committed, or has failed."""
        if failure is not None:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            self._next = min(begun, self._next)
            self._soon(RETRY_S)
        elif self._next <= min(self._last, self._log.committed_seq):
            self._soon(0.0)
        else:
            self._next = 0

    def _unwanted(self) -> "Unwanted":
        config, count = self._stream.config, self._log.subject_count
        most = config.max_msgs_per_subject
        unneeded = self._unneeded() if config.retention == "interest" else None

        def unwanted(seq: int, subject: bytes) -> bool:
            return 0 < most < count(subject) or (unneeded is not None and unneeded(seq, subject))

        return unwanted

    # -- tracking --------------------------------------------------------------------------------------------------

    def _track_soon(self) -> None:
        """Start tracking the log soon: a search took long that a tracked log answers at once."""
        if not self._tracking:
            self._tracking = True
            self._stream.timers.call_later(0.0, self._track)

    def _track(self) -> None:
        stream = self._stream
        done = True
        try:
            if stream.live and self._log.state.messages <= TRACKED_MESSAGES_MAX:
                done = self._log.track_some()
            if done:
                self.enforce_overdue(begin=self._log.state.messages > TRACKED_MESSAGES_MAX)
        except StoreError as failure:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            done = True
        if done:
            self._tracking = False
        else:
            stream.timers.call_later(0.0, self._track)

    def enforce_overdue(self, *, begin: bool = False) -> None:
        """Remove the excess messages of overdue subjects. `begin`: walk through all subjects."""
        stream = self._stream
        overdue, self.overdue = self.overdue, set()
        if not overdue or not stream.live:
            return
        batch = Batch()
        with stream.staging() as txn:
            if begin:
                batch.removed = self.begin(txn)
            else:
                batch.removed = limits.enforce(stream.config, self._log, txn, overdue, self.overdue)
        if not txn.parts:
            stream.store.abort(txn)
            return
        if self.overdue:
            batch.then.append(lambda _: self._track_soon())
        stream.submit(txn, batch)
