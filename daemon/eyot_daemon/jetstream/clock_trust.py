"""Whether the wall clock can be believed after a start: nothing leaves a stream by an age that only a leap of the clock has given it.

A gateway without a battery-backed clock may start in 1970, or once in 2040. While the daemon runs, `clock_watch.py` sees a jump beside the
monotonic clock. Between two runs only what the last run knew can tell: the modification time of a file in the store's
directory, and the times of the stored messages. A leap beyond `LEAP_S_MAX` is in doubt until somebody says that the clock is right: the
kernel (a time server is reached) or a linked server. Until then the leap counts as no age: messages age by the time that the daemon runs.
When the clock turns out to be right, the time that the server was down counts after all. A clock that went back was wrong before or
is wrong now: then the leap never counts. Nor does one after a run in which the clock was in doubt to the end.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eyot_wire.go.time import ns_to_rfc3339

if TYPE_CHECKING:
    from eyot_daemon.turn.clock import Clock

log = logging.getLogger("eyot.jetstream")

#: Its modification time is the last time at which this server was seen running; it says whether the clock was in doubt.
FILE = "clock"
_IN_DOUBT = b"in doubt\n"
#: The file is touched this often, and when the daemon ends, seconds.
TOUCHED_EVERY_S = 300.0
#: A clock that is further ahead than this of what is known from the last run may have leapt, seconds.
LEAP_S_MAX = 3600.0
#: One that is further behind has been set.
BACK_S_MAX = 10.0
#: A clock that differs from a linked server's by no more than this is right, seconds.
AGREES_S = 300.0


class ClockTrust:
    """One for the server. `leap_ns`: by how much the clock leapt since the last run, 0 if it did not or is believed."""

    def __init__(self, clock: Clock, path: Path) -> None:
        self._clock = clock
        self._file = path / FILE
        self._touched_at = 0.0
        self.leap_ns = 0
        self._last_ns = 0
        #: The last run did not know either: what seems time that has passed may be the clock that was set.
        self._was_doubted = False
        #: Not settled yet whether the clock is right.
        self.is_doubted = False

    def begin(self, stored_ns: int) -> None:
        """The daemon starts; `stored_ns` is the latest time of all messages, 0 if there are none."""
        self._last_ns = self._touched_ns() or stored_ns
        now_ns = self._clock.now_ns()
        leap_ns = now_ns - self._last_ns if self._last_ns else 0
        was_set = abs(leap_ns) > BACK_S_MAX * 1e9 and (leap_ns < 0 or self._was_doubted)
        if was_set or (leap_ns > LEAP_S_MAX * 1e9 and not self._clock.is_synchronized()):
            self.leap_ns, self.is_doubted = leap_ns, True
            log.warning(
                "The clock says %s, the last run ended after %s: until it is known to be right, no message ages by the time between",
                ns_to_rfc3339(now_ns), ns_to_rfc3339(self._last_ns),
            )  # fmt: skip

    def begun(self) -> None:
        """Every stream that was there has heard of the leap."""
        self.leap_ns = 0
        self.touch()

    def is_settled(self) -> bool:
        """True once: the clock turns out to be right, and was so in the last run."""
        if not self.is_doubted or not self._clock.is_synchronized():
            return False
        return self._settle()

    def heard(self, peer_ns: int) -> bool:
        """A linked server that believes its clock says what time it is. True as for `is_settled`."""
        if not self.is_doubted or abs(self._clock.now_ns() - peer_ns) > AGREES_S * 1e9:
            return False
        return self._settle()

    def _settle(self) -> bool:
        self.is_doubted = False
        was_right = not self._was_doubted and self._last_ns <= self._clock.now_ns() + BACK_S_MAX * 1e9
        log.info("The clock is right%s", "" if was_right else "; in the last run it was not, or may not have been")
        self.end()
        return was_right

    def leap_of(self, last_ns: int) -> int:
        """The leap as it concerns a stream whose last message was stored at `last_ns`. One that was stored when the clock had gone back
        already has nothing to be corrected."""
        return 0 if self.leap_ns < 0 and last_ns <= self._clock.now_ns() else self.leap_ns

    # -- the last run ----------------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Have the next run know that this one was there now."""
        now_s = self._clock.monotonic()
        if self._touched_at and now_s < self._touched_at + TOUCHED_EVERY_S:
            return
        self._touched_at = now_s
        self.end()

    def end(self) -> None:
        """The daemon ends."""
        with suppress(OSError):  # a directory that cannot be written to is told of elsewhere
            self._file.write_bytes(_IN_DOUBT if self.is_doubted else b"")
            now_ns = self._clock.now_ns()
            os.utime(self._file, ns=(now_ns, now_ns))

    def _touched_ns(self) -> int:
        try:
            self._was_doubted = self._file.read_bytes() == _IN_DOUBT
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0
