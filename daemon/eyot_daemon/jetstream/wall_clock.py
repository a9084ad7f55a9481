"""The trust in the wall clock: no message ages by a jump of the clock.

A device without a battery-backed clock starts in the past and jumps to the present when it reaches a time server; a
wrong one may jump to the future and back. A message's age is what the monotonic clock has counted, so a jump is added
to the stored times of everything stored before it. Otherwise streams with `max_age` would lose everything at once.

Between two runs only stored times reveal a jump: the modification time of a file in the store's directory, and those of
the messages. A jump beyond `LEAP_S_MAX` is in doubt until the kernel (a time server is reached) or a linked server
confirms the clock. Until then the jump counts as no age: messages age while the daemon runs. When the clock is
confirmed, the downtime counts after all. A clock that went back was wrong before or is wrong now: then the jump never
counts, nor does one after a run that ended with a doubtful clock, or with one that had been set back while it ran.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from eyot_daemon.turn.clock import Clock
from eyot_wire.digits import parse_uint
from eyot_wire.go.time import ns_to_rfc3339, rfc3339_to_ns

log = logging.getLogger("eyot.jetstream")

#: A change of less than this between two checks is gradual, not a jump, ns. Every turn that stores something checks.
JUMP_NS_MIN = 10_000_000_000
#: File whose modification time is when this server last ran; its content says whether the clock was in doubt or had been
#: set back, and by how many ns it has jumped forward without that being on flash in every stream.
FILE = "clock"
_IN_DOUBT = b"in doubt\n"
_JUMPED = b"jumped "
#: The file is touched this often, and when the daemon ends, seconds.
TOUCHED_EVERY_S = 300.0
#: A clock that is further ahead of the last run's end than this may have leapt, seconds.
LEAP_S_MAX = 3600.0
#: One that is further behind has been set.
BACK_S_MAX = 10.0
#: A clock that differs from a linked server's by no more than this is right, seconds.
AGREES_S = 300.0


#: Jumps that a stream remembers one by one.
JUMPS_MAX = 1000


class ClockWatch:
    """Detects jumps of the wall clock against the monotonic clock; one object for the server."""

    __slots__ = ("_clock", "_offset_ns", "now_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = 0
        #: the wall time of the last call
        self.now_ns = 0
        self.jumped_ns()

    def jumped_ns(self) -> int:
        """Return the jump of the wall clock since the last call, ns; 0: none."""
        now_ns = self.now_ns = self._clock.now_ns()
        before, offset_ns = self._offset_ns, now_ns - int(self._clock.monotonic() * 1e9)
        self._offset_ns = offset_ns
        return 0 if -JUMP_NS_MIN < offset_ns - before < JUMP_NS_MIN else offset_ns - before


class ClockCredits:
    """Corrections of the times of a stream's messages: (last sequence stored before the jump, ns) of each jump."""

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
        """Add a jump of the clock that happened when `last_seq` was the last message."""
        if self._jumps and self._jumps[-1][0] == last_seq:
            ns += self._jumps.pop()[1]
        self._jumps.append((last_seq, ns))
        while len(self._jumps) > JUMPS_MAX:
            # The two oldest are joined so that no message leaves early: some stay longer.
            (_, oldest_ns), (boundary, next_ns), *rest = self._jumps
            self._jumps = [(boundary, next_ns + max(oldest_ns, 0)), *rest]

    def add(self, last_seq: int, ns: int) -> None:
        """Correct the times of the messages up to `last_seq` by `ns` more."""
        at = bisect_left(self._jumps, (last_seq, -(1 << 63)))
        if at < len(self._jumps) and self._jumps[at][0] == last_seq:
            ns += self._jumps.pop(at)[1]
        self._jumps.insert(at, (last_seq, ns))

    def forget_below(self, first_seq: int) -> None:
        """Drop the jumps that concern only messages below `first_seq`."""
        del self._jumps[: bisect_left(self._jumps, (first_seq, -(1 << 63)))]

    def of(self, seq: int) -> int:
        """Return the correction of the stored time of message `seq`, ns."""
        return sum(ns for last_seq, ns in self._jumps if seq <= last_seq)

    def segments(self, first_seq: int, last_seq: int) -> Iterable[tuple[int, int]]:
        """Yield (last sequence, correction in ns) of each run of messages from `first_seq` on, ascending."""
        for boundary, _ in self._jumps:
            if first_seq <= boundary < last_seq:
                yield boundary, self.of(boundary)
        yield last_seq, self.of(last_seq)


class ClockTrust:
    """Whether the clock is trusted; one object for the server.

    `leap_ns`: jump of the clock that the streams do not know of, since the last run or at its end, nanoseconds; 0: no
    jump, or the clock is trusted.
    """

    def __init__(self, clock: Clock, path: Path) -> None:
        self._clock = clock
        self._file = path / FILE
        self._touched_at = 0.0
        self.leap_ns = 0
        self._last_ns = 0
        #: Jumps that are not on flash in every stream yet, in their order.
        self._unsettled: list[int] = []
        #: Sum of all jumps of this run: below zero, the clock is behind what it was at the start.
        self._set_ns = 0
        #: The last run did not know either: what seems time that has passed may be the clock that was set.
        self._was_doubted = False
        #: Whether the clock is not confirmed yet.
        self.is_doubted = False

    def begin(self, stored_ns: int) -> None:
        """Start with the daemon; `stored_ns`: the latest time of all messages, 0 if there are none."""
        self._last_ns = self._read_file() or stored_ns
        now_ns = self._clock.now_ns()
        leap_ns = now_ns - self._last_ns if self._last_ns else 0
        was_set = abs(leap_ns) > BACK_S_MAX * 1e9 and (leap_ns < 0 or self._was_doubted)
        if was_set or (leap_ns > LEAP_S_MAX * 1e9 and not self._clock.is_synchronized()):
            self.leap_ns, self.is_doubted = leap_ns, True
            log.warning(
                "The clock says %s, the last run ended after %s: until it is known to be right, no message ages by the time between",
                ns_to_rfc3339(now_ns), ns_to_rfc3339(self._last_ns),
            )  # fmt: skip
        self.leap_ns += sum(self._unsettled)
        self._unsettled = [self.leap_ns] if self.leap_ns > 0 else []

    def begun(self) -> int:
        """Forget the leap: every stream of the store has been started with it. Returns what to call `settled` with."""
        self.leap_ns = 0
        self.touch()
        return sum(self._unsettled)

    def jumped(self, ns: int) -> None:
        """Record a jump at once, which the streams are about to record."""
        self._unsettled.append(ns)
        self._set_ns += ns
        self._write(flush=True)  # the next start compares with the corrected clock

    def settled(self, ns: int) -> None:
        """Note that every stream has recorded a jump."""
        if ns in self._unsettled:
            self._unsettled.remove(ns)
            self.end()

    def _missing_ns(self) -> int:
        """Return the most that a stream may lack of the jumps: it has them on flash in their order, up to any of them.

        Where more than that is on flash the next start corrects once more, and messages stay longer; none is lost.
        """
        most = sum_ns = 0
        for ns in reversed(self._unsettled):
            sum_ns += ns
            most = max(most, sum_ns)
        return most

    def is_confirmed(self) -> bool:
        """Return True once: when the clock is confirmed, and was right in the last run."""
        if not self.is_doubted or not self._clock.is_synchronized():
            return False
        return self._confirm()

    def heard(self, peer_ns: int) -> bool:
        """Compare the clock with a linked server's, which that server trusts. Returns True as `is_confirmed` does."""
        if not self.is_doubted or abs(self._clock.now_ns() - peer_ns) > AGREES_S * 1e9:
            return False
        return self._confirm()

    def _confirm(self) -> bool:
        self.is_doubted = False
        was_right = not self._was_doubted and self._last_ns <= self._clock.now_ns() + BACK_S_MAX * 1e9
        log.info("The clock is right%s", "" if was_right else "; in the last run it was not, or may not have been")
        self.end()
        return was_right

    def leap_of(self, last_ns: int) -> int:
        """Return the leap that corrects a stream whose last message was stored at `last_ns`.

        It is 0 for a message that was stored after the clock had gone back.
        """
        return 0 if self.leap_ns < 0 and last_ns <= self._clock.now_ns() else self.leap_ns

    # -- the last run ----------------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Record for the next run that the server runs now."""
        now_s = self._clock.monotonic()
        if self._touched_at and now_s < self._touched_at + TOUCHED_EVERY_S:
            return
        self._touched_at = now_s
        self.end()

    def end(self) -> None:
        """Record the clock's state when the daemon stops."""
        self._write()

    def _write(self, *, flush: bool = False) -> None:
        """Write the file in place: it is never empty in between."""
        missing_ns = self._missing_ns()
        jumped = b"%b%d\n" % (_JUMPED, missing_ns) if missing_ns else b""
        in_doubt = self.is_doubted or self._set_ns < -BACK_S_MAX * 1e9
        content = (_IN_DOUBT if in_doubt else b"") + jumped
        now_ns = self._clock.now_ns()
        with suppress(OSError):  # other parts report a directory that cannot be written to
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, content, 0)
                os.ftruncate(file, len(content))
                os.utime(file, ns=(now_ns, now_ns))
                if flush:
                    os.fsync(file)
            finally:
                os.close(file)

    def _read_file(self) -> int:
        """Read how the last run ended; return when, Unix time in ns; 0: unknown."""
        try:
            lines = self._file.read_bytes().splitlines(keepends=True)
            touched_ns = self._file.stat().st_mtime_ns
        except OSError:
            return 0
        told = (parse_uint(line[len(_JUMPED) :].rstrip()) for line in lines if line.startswith(_JUMPED))
        missing_ns = next(told, 0) or 0
        self._unsettled = [missing_ns] if missing_ns else []
        # A clock that had just jumped is none to tell time that has passed by.
        self._was_doubted = _IN_DOUBT in lines or missing_ns > 0
        return touched_ns


class WallClock:
    """The wall clock of one server's streams.

    `on_jump(ns)` is called when the clock jumped by `ns`, and sees to it that `trust.settled(ns)` is called when the
    streams' corrections are on flash; `on_right()` when a supposed leap at the start turned out to be downtime.
    """

    def __init__(self, clock: Clock, path: Path) -> None:
        self.trust = ClockTrust(clock, path)
        self._watch = ClockWatch(clock)
        self.on_jump: Callable[[int], None] = lambda ns: None
        self.on_right: Callable[[], None] = lambda: None

    def watch(self) -> int:
        """Asked before anything is stored or expires by time: if the wall clock has jumped, no message has aged by that.

        Returns the wall time, ns.
        """
        jump_ns = self._watch.jumped_ns()
        if jump_ns:
            log.warning("The clock jumped by %.1f s", jump_ns / 1e9)
            self.trust.jumped(jump_ns)
            self.on_jump(jump_ns)
        return self._watch.now_ns

    def look(self) -> None:
        """Asked now and then: has the clock jumped, and is it known by now to be right?"""
        self.watch()
        self.trust.touch()
        if self.trust.is_confirmed():
            self.on_right()

    def heard(self, told: str) -> None:
        """Note the time (RFC 3339) of a linked server that trusts its clock."""
        if not self.trust.is_doubted:
            return
        try:
            peer_ns = rfc3339_to_ns(told)
        except ValueError:
            return
        self.watch()
        if self.trust.heard(peer_ns):
            self.on_right()
