"""How many lines of the audit log one asker may cause: else who repeats requests fills it until its older lines are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Lines a minute for one token or device name.
LINES_MAX: Final = 30
_MINUTE_S: Final = 60.0
#: Askers that are remembered; each has proved that it holds a token or a device's key.
_ASKERS_MAX: Final = 10_000


class Pace:
    """Counts lines per asker and minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: asker -> when its minute began, lines in it, lines left out since the last one that was written
        self._askers: dict[str, tuple[float, int, int]] = {}

    def take(self, asker: str) -> int | None:
        """Return how many of the asker's lines were left out before this one; None: this one is left out, too."""
        now = self._now()
        began, lines, left_out = self._askers.pop(asker, (now, 0, 0))
        if not 0 <= now - began < _MINUTE_S:
            began, lines = now, 0
        is_written = lines < LINES_MAX
        self._askers[asker] = (began, lines + 1, 0) if is_written else (began, lines, left_out + 1)
        if len(self._askers) > _ASKERS_MAX:
            del self._askers[next(iter(self._askers))]
        return left_out if is_written else None
