"""What a copier has handed to the writer, and the answers to flow control that wait until it is on flash.

Flow control is answered only when everything before it is on flash: what the origin sees answered is durable here.
"""

from __future__ import annotations

from collections import deque

from eyot_sync.sourcing.actions import Answer
from eyot_sync.sourcing.origin_check import OriginPosition


class PendingCommits:
    """`flash`: the last message of the newest batch that is on flash. `consumer_seq`: how far the present consumer's deliveries are.
    `older`: batches under way that were taken under earlier requests."""

    def __init__(self, flash: OriginPosition) -> None:
        self.flash = flash
        self.consumer_seq = 0
        self.older = 0
        self._under_way: deque[OriginPosition] = deque()
        self._answers: deque[tuple[int, Answer]] = deque()

    @property
    def under_way(self) -> bool:
        return bool(self._under_way)

    def taken(self, last: OriginPosition) -> None:
        """A batch that ends with this message is handed to the writer."""
        self._under_way.append(last)

    def committed(self, mark: int, copied: int, *, current: bool) -> None:
        """A batch of so many messages is on flash (none: all that there was is). `current`: it was taken under the present request."""
        if copied and self._under_way:
            self.flash = self._under_way.popleft()
        if current:
            self.consumer_seq = max(self.consumer_seq, mark)
        else:
            self.older = max(0, self.older - bool(copied))

    def failed(self, committed_seq: int) -> OriginPosition:
        """Nothing of what is under way will be on flash beyond this sequence."""
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
        """Give this answer when what was delivered until now is on flash."""
        self._answers.append((consumer_seq, answer))

    def due(self) -> list[Answer]:
        """The answers that can be given."""
        given: list[Answer] = []
        while not self.older and self._answers and self._answers[0][0] <= self.consumer_seq:
            given.append(self._answers.popleft()[1])
        return given
