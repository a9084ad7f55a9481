"""Limits on open batches in the server: a number of each kind, and bytes in memory."""

ATOMIC_MAX = 1000
FAST_MAX = 1000
#: Messages of atomic batches wait in memory for their commit.
HELD_BYTES_MAX = 128 << 20


class BatchBudget:
    """The budget of open batches; one object for the server, shared by its streams."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.atomic = 0
        self.fast = 0
        self.bytes = 0
        self.bytes_max = bytes_max

    def begin(self) -> bool:
        """Count a new atomic batch; return False when the limit is reached."""
        if self.atomic >= ATOMIC_MAX:
            return False
        self.atomic += 1
        return True

    def hold(self, size: int) -> bool:
        """`size` more bytes wait in memory; False: there is no room for them."""
        if self.bytes + size > self.bytes_max:
            return False
        self.bytes += size
        return True

    def end(self, size: int) -> None:
        """Return the `size` bytes of a finished atomic batch to the budget."""
        self.atomic -= 1
        self.bytes -= size

    def begin_fast(self) -> bool:
        """Count a new fast batch; return False when the limit is reached."""
        if self.fast >= FAST_MAX:
            return False
        self.fast += 1
        return True

    def end_fast(self) -> None:
        self.fast -= 1
