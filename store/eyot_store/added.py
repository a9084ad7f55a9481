"""The messages that a transaction adds to one log, as the loop's side knows them until they are committed.

Mostly nobody asks what they are: they are counted, committed and forgotten. A run of them is therefore kept as the list
of its records, and read only when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

from eyot_store.native import count_bytes
from eyot_store.record_run import Weighed
from eyot_store.records.record import seq_of

Records = list[tuple[bytes, bytes]]
"""Keys and records, ascending."""

_UNCHECKED = -1


class Added:
    """Sequence, subject and counted bytes of each message, ascending.

    `cost`, `header_cost`: counted bytes of each message, and of each header, beyond its own bytes. The committing thread
    only asks for the number.
    """

    __slots__ = ("_cost", "_first", "_header_cost", "_known", "_last", "_number", "_unread")

    def __init__(self, cost: int, header_cost: int) -> None:
        self._cost = cost
        self._header_cost = header_cost
        self._known: list[Weighed] = []
        self._unread: list[tuple[Records, int, int]] = []  # records, begin, end
        self._first = self._last = 0
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def __contains__(self, seq: int | None) -> bool:
        return seq is not None and self.get(seq) is not None

    def __iter__(self) -> Iterator[Weighed]:
        return self.since(0)

    def since(self, seq: int) -> Iterator[Weighed]:
        """Yield the messages from `seq` on. Those before it cost nothing."""
        if seq <= self._last:
            known = self._read()
            for index in range(self._index(seq), len(known)):
                yield known[index]

    def get(self, seq: int) -> Weighed | None:
        """Return the message with this sequence; None if it is not one of these."""
        if not self._first <= seq <= self._last:
            return None
        known = self._read()[self._index(seq)]
        return known if known[0] == seq else None

    def came(self, records: Records, begin: int) -> None:
        """Note the messages of `records` from the index `begin` on. The list may grow, but these stay where they are."""
        end = len(records)
        if not self._number:
            self._first = seq_of(records[begin][0])
        self._last = seq_of(records[-1][0])
        self._number += end - begin
        unread = self._unread
        if unread and unread[-1][0] is records and unread[-1][2] == begin:
            unread[-1] = (records, unread[-1][1], end)
        else:
            unread.append((records, begin, end))

    def _index(self, seq: int) -> int:
        """Return where in what is read the messages >= `seq` begin; mostly there is no gap before them."""
        known, at = self._known, seq - self._first
        if 0 <= at < len(known) and known[at][0] == seq:
            return at
        return bisect_left(known, seq, key=itemgetter(0))

    def _read(self) -> list[Weighed]:
        if self._unread:
            unread, self._unread = self._unread, []
            for records, begin, end in unread:
                self._known += count_bytes(records[begin:end], _UNCHECKED, None, self._cost, self._header_cost)
        return self._known
