"""Batches on their way to flash, and the answers to flow control that wait for them.

Flow control is answered only when everything before it is on flash: what the origin sees answered is durable here.
"""

from __future__ import annotations

from collections import deque

from eyot_sync.sourcing.actions import Answer
from eyot_sync.sourcing.origin_check import OriginPosition


class PendingCommits:
    """`flash`: the last message of the newest committed batch. `consumer_seq`: the present consumer's received deliveries.

    `older`: pending batches that were received under earlier requests.
    """

    def __init__(self, flash: OriginPosition) -> None:
        self.flash = flash
        self.consumer_seq = 0
        self.older = 0
        self._under_way: deque[OriginPosition] = deque()
        self._answers: deque[tuple[int, Answer]] = deque()

    @property
    def under_way(self) -> int:
        """Return the number of pending batches."""
        return len(self._under_way)

    def taken(self, last: OriginPosition, mark: int) -> None:
        """Note a batch, ending with this message, that was passed to the writer.

        `mark`: the present consumer's deliveries up to its end; 0: it was received under earlier requests.
        """
        self._under_way.append(last)
        self.older += not mark

    def committed(self, mark: int, copied: int, *, current: bool) -> None:
        """Note a committed batch of `copied` messages (0: nothing new). `current`: it was passed on under the present request."""
        if copied and self._under_way:
            self.flash = self._under_way.popleft()
        if current and (mark or not copied):
            self.consumer_seq = max(self.consumer_seq, mark)
        else:
            self.older = max(0, self.older - bool(copied))

    def refused(self, taken_seq: int) -> OriginPosition | None:
        """Note that the newest batch was taken up to this sequence only (0: not at all); return the end of what is pending.

        None: nothing is.
        """
        if self._under_way:
            self._under_way.pop()
        if taken_seq:
            self._under_way.append(OriginPosition(taken_seq))
        return self._under_way[-1] if self._under_way else None

    def committed_up_to(self, seq: int) -> OriginPosition:
        """Return what is known of the committed message `seq`."""
        return self.flash if self.flash.seq == seq else OriginPosition(seq)

    def failed(self, committed_seq: int) -> OriginPosition:
        """Drop all pending batches: nothing beyond this sequence will be committed."""
        known = next((each for each in (self.flash, *self._under_way) if each.seq == committed_seq), None)
        self.flash = known or OriginPosition(committed_seq)
        self._under_way.clear()
        return self.flash

    def forget(self) -> None:
        """Another request: the present consumer's deliveries and questions mean nothing more."""
        self._answers.clear()
        self.consumer_seq = 0
        self.older = len(self._under_way)

    def wait(self, consumer_seq: int, answer: Answer) -> None:
        """Queue an answer until everything delivered so far is on flash."""
        self._answers.append((consumer_seq, answer))

    def due(self) -> list[Answer]:
        """Return the answers that are due."""
        given: list[Answer] = []
        while not self.older and self._answers and self._answers[0][0] <= self.consumer_seq:
            given.append(self._answers.popleft()[1])
        return given
