"""A stream's counters in memory; they include what is staged and not yet committed.

`LogState` is one mutable object per log. Every operation updates its counters. After the first message was removed,
the first sequence and its time are looked up on demand.
"""

from __future__ import annotations

from typing import Protocol


class FirstFinder(Protocol):
    """The log as LogState uses it to find the first message."""

    def find_first(self, from_seq: int) -> int:
        """Lowest live sequence >= `from_seq`, staged messages included; 0 = none."""

    def time_of(self, seq: int) -> int:
        """Return the stored time (ns since the epoch) of the live message at `seq`; 0: unknown."""


class LogState:
    """messages, bytes, first and last of a log. ``bytes`` counts as nats-server counts (see ``Backend.message_bytes``)."""

    __slots__ = (
        "_finder",
        "_first",
        "_first_exact",
        "_first_ts",
        "_first_ts_seq",
        "bytes",
        "last_seq",
        "last_ts_ns",
        "messages",
    )

    def __init__(
        self, finder: FirstFinder, messages: int = 0, bytes_: int = 0, last_seq: int = 0, last_ts_ns: int = 0
    ) -> None:
        self.messages = messages
        self.bytes = bytes_
        self.last_seq = last_seq
        self.last_ts_ns = last_ts_ns
        self._finder = finder
        self._first = 1
        self._first_exact = False
        self._first_ts = 0
        self._first_ts_seq = 0

    @property
    def first_seq(self) -> int:
        """First live sequence; `last_seq + 1` when empty, 0 when nothing was ever stored."""
        if not self.messages:
            return self.last_seq + 1 if self.last_seq else 0
        if not self._first_exact:
            self._first = self._finder.find_first(self._first) or self.last_seq + 1
            self._first_exact = True
        return self._first

    @property
    def first_ts_ns(self) -> int:
        """Stored time of the first message, ns since epoch; 0 when empty."""
        if not self.messages:
            return 0
        seq = self.first_seq
        if seq != self._first_ts_seq:
            self._first_ts = self._finder.time_of(seq)
            self._first_ts_seq = seq
        return self._first_ts

    @property
    def num_deleted(self) -> int:
        """Sequences between first and last that hold no message."""
        return self.last_seq + 1 - self.first_seq - self.messages if self.messages else 0

    # -- for the log that owns this --------------------------------------------------------------------------------

    def first_is(self, seq: int) -> None:
        """Set the first message's sequence."""
        self._first = seq
        self._first_exact = True

    def first_gone(self, seq: int) -> None:
        """Account for the removal of `seq`; if it was the first message, the next one is found on demand."""
        if self._first_exact and seq == self._first:
            self._first = seq + 1
            if self.messages != self.last_seq - seq:
                self._first_exact = False
            # else: every sequence after it holds a message, so the next one is the first.

    def first_from(self, seq: int) -> None:
        """Nothing is left below `seq`."""
        if not self._first_exact or self._first < seq:
            self._first = max(self._first, seq)
            self._first_exact = False

    def first_may_be(self, seq: int) -> None:
        """Account for a restored message at `seq`: the first is there or later, unless a lower one is known."""
        self._first_exact = False
        self._first = min(self._first, seq)

    def sequences_fell_back(self) -> None:
        """Account for rolled back messages: their sequences may be given again with other times."""
        self._first_ts_seq = 0
