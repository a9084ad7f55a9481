"""The store's one exception, with a reason that callers switch on.

Reasons:

========  ==============================================================================================================
full      no room: the file system, a quota, a file size limit or the map's upper limit; retry after something was removed
io        the disk failed or the environment is unusable
corrupt   a record or a page does not hold what was written
closed    the store was closed (or crashed, in a simulation) before this reached the disk
busy      the staging queue is over its hard limit; nothing was staged
locked    another process has this store open
format    the store was written by a release with another on-disk format
key       the store is encrypted, and not with the key given
========  ==============================================================================================================
"""

from __future__ import annotations

from typing import Literal

#: What to do about a database that no repair can read.
RESTORE = "restore the store's directory from a copy, or move it away to start with an empty one"

Reason = Literal["full", "io", "corrupt", "closed", "busy", "locked", "format", "key"]


class StoreError(Exception):
    """Something durable could not be written or read.

    `stream`: `account/name`; `seq`: the sequence concerned; `""` and 0 where unknown. `size`: a damaged
    message's part of its stream's bytes, as far as its record shows it. `remedy`: what an operator can do, where that
    is not the usual.
    """

    def __init__(
        self, reason: Reason, message: str, *, stream: str = "", seq: int = 0, size: int = 0, remedy: str = ""
    ) -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.reason: Reason = reason
        self.message = message
        self.stream = stream
        self.seq = seq
        self.size = size
        self.remedy = remedy

    def is_record_at(self, seq: int) -> bool:
        """Return whether one record is corrupt, at or above `seq`: what lies behind it can be read."""
        return self.reason == "corrupt" and self.seq >= max(seq, 1)

    def __repr__(self) -> str:
        return f"StoreError({self.reason!r}, {self.message!r})"
