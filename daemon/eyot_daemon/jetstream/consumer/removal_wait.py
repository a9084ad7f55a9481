"""Waiting until the removal of what a consumer would deliver next is on flash.

The log hides a message as soon as its removal is staged. When that fails (a full disk, for example) the message is stored
again, and a consumer that has gone on behind it would never deliver it.
"""

from __future__ import annotations

#: A consumer goes on after this time, seconds, although the disk has not answered.
WAIT_S_MAX = 10.0
#: Where nobody tells when a commit is through, a consumer looks again after this time, seconds.
LOOK_AGAIN_S = 0.05


class RemovalWait:
    """How long one consumer waits. After a removal that is on flash it delivers once, whatever else is under way then.

    A stream that is always at its limit therefore stops no consumer.
    """

    __slots__ = ("_since", "_taken")

    def __init__(self, taken: int, now: float) -> None:
        """`taken`: number of removals that are on flash (`Log.taken`). `now`: monotonic seconds."""
        self._since, self._taken = now, taken

    def holds(self, taken: int, now: float) -> bool:
        """Return whether the consumer must go on waiting. False: it may deliver, and waits anew after that."""
        if taken == self._taken and now < self._since + WAIT_S_MAX:
            return True
        self._since, self._taken = now, taken
        return False
