"""The messages and bytes that each downstream lacks; computed again when something has changed.

Every read of `/eyot/syncz` and `/metrics` uses it, while weeks of backlog wait for a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.record import Downstream
    from eyot_store.log.log import Log

#: Backlog up to which sizes are summed; a larger one is estimated from the stream's average.
_SUMMED_MAX = 1000
_SUMMED_BYTES = 16 << 20


class Backlog(NamedTuple):
    """The backlog of a downstream: messages, their bytes, and the stored time of the oldest (ns since the epoch, 0: none)."""

    messages: int
    bytes: int
    oldest_ns: int


class Backlogs:
    """The backlogs of one stream's downstreams."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # By downstream: the inputs of the last result, and the result.
        self._known: dict[bytes, tuple[object, Backlog]] = {}
        self._unmatched: tuple[object, int] = None, 0

    def of(self, key: bytes, downstream: Downstream, seq: int, passed_over: int) -> Backlog:
        """Return the backlog of a downstream that has everything up to `seq`, without the messages that it skips."""
        log = self._log
        state = log.state
        present = (log.committed_seq, state.first_seq, state.messages, state.bytes)
        asked = (seq, passed_over, downstream.ahead_from, downstream.ahead, downstream.filters, present)
        known = self._known.get(key)
        if known is None or known[0] != asked:
            known = self._known[key] = asked, self._work_out(downstream, seq, passed_over)
        return known[1]

    def unmatched(self, readers: Iterable[Downstream]) -> int:
        """Return how many stored messages match the filters of none of these."""
        log, state = self._log, self._log.state
        filters: set[bytes] = set()
        for downstream in readers:
            if not downstream.filters:
                return 0
            filters.update(downstream.filters)
        if not filters:
            return 0
        present = (log.committed_seq, state.first_seq, state.messages, filters)
        if self._unmatched[0] != present:
            self._unmatched = present, log.count(1) - log.count(1, tuple(sorted(filters)))
        return self._unmatched[1]

    def _work_out(self, downstream: Downstream, seq: int, passed_over: int) -> Backlog:
        log = self._log
        backlog, begin = log.count(seq + 1, downstream.filters), seq + 1
        if downstream.ahead and seq >= downstream.ahead_from:
            backlog, begin = (
                log.count(max(seq, downstream.ahead) + 1, downstream.filters) + passed_over,
                downstream.ahead_from + 1,
            )
        if not backlog:
            return Backlog(0, 0, 0)
        read = log.read(begin, max_messages=_SUMMED_MAX, max_bytes=_SUMMED_BYTES, filters=downstream.filters)
        sizes = [log.message_bytes(each.subject, each.header, each.payload) for each in read.messages]
        size, state = sum(sizes), log.state
        if len(sizes) < backlog and state.messages:
            size = max(size, state.bytes * backlog // state.messages)
        return Backlog(backlog, size, read.messages[0].ts_ns if read.messages else 0)
