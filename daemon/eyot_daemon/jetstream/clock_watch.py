"""Jumps of the wall clock: noticed, and credited to the messages that were stored before.

A device without a battery-backed clock starts in the past and jumps to the present when it finds a time server; a wrong
one may jump to the future and back. A message's age is what the monotonic clock has counted, so a jump is added to the stored
times of everything stored before it. Otherwise streams with `max_age` would lose all they hold at once.
What happens to the clock while the daemon is down cannot be told from time that has passed: see `clock_trust.py`.
"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from eyot_daemon.turn.clock import Clock

#: The clock is moved gently by less than this between two looks (there is one with every turn that stores something).
JUMP_NS_MIN = 10_000_000_000


class ClockWatch:
    """One for the server."""

    __slots__ = ("_clock", "_offset_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = self._offset()

    def jumped_ns(self) -> int:
        """By how much the wall clock jumped since the last call; 0: it did not."""
        before, self._offset_ns = self._offset_ns, self._offset()
        jump = self._offset_ns - before
        return jump if abs(jump) >= JUMP_NS_MIN else 0

    def _offset(self) -> int:
        return self._clock.now_ns() - int(self._clock.monotonic() * 1e9)


class ClockCredits:
    """What the jumps add to the times of a stream's messages: (last sequence stored before it, ns) of each jump."""

    __slots__ = ("_jumps",)

    def __init__(self, stored: bytes | None = None) -> None:
        self._jumps: list[tuple[int, int]] = (
            msgspec.msgpack.decode(stored, type=list[tuple[int, int]]) if stored else []
        )

    def __bool__(self) -> bool:
        return bool(self._jumps)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self._jumps)

    def jumped(self, last_seq: int, ns: int) -> None:
        """The clock jumped when `last_seq` was the last message."""
        if self._jumps and self._jumps[-1][0] == last_seq:
            ns += self._jumps.pop()[1]
        self._jumps.append((last_seq, ns))

    def add(self, last_seq: int, ns: int) -> None:
        """The times of the messages up to `last_seq` are to be corrected by `ns` more."""
        at = bisect_left(self._jumps, (last_seq, -(1 << 63)))
        if at < len(self._jumps) and self._jumps[at][0] == last_seq:
            ns += self._jumps.pop(at)[1]
        self._jumps.insert(at, (last_seq, ns))

    def forget_below(self, first_seq: int) -> None:
        """Nothing is left below `first_seq`."""
        del self._jumps[: bisect_left(self._jumps, (first_seq, -(1 << 63)))]

    def of(self, seq: int) -> int:
        """What is to be added to the stored time of message `seq`."""
        return sum(ns for last_seq, ns in self._jumps if seq <= last_seq)

    def segments(self, first_seq: int, last_seq: int) -> Iterable[tuple[int, int]]:
        """(last sequence, what is added) of each run of messages from `first_seq` on, ascending."""
        for boundary, _ in self._jumps:
            if first_seq <= boundary < last_seq:
                yield boundary, self.of(boundary)
        yield last_seq, self.of(last_seq)
