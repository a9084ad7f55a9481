"""Whether the hub's clock can be believed, by what a table has recorded of it: what leaves by age does not come back.

A clock may be wrong by years for a while, and then be right again. Rows and files whose age is counted by it would leave too early.
A table therefore records the readings of the clock beside its positions:

- A reading that lies within `STEP` of the trusted one is trusted.
- Any other reading is a jump, and is noted. It is trusted once the clock has gone on from there for `HOLD`, without a step back before it.
- Ages are counted from the lesser of the clock and the trusted reading. Files are removed only while no jump is noted.

A clock that is wrong for less than `HOLD` thus removes nothing, in whatever direction. After a pause longer than `STEP`
the next removal is up to `HOLD`, or one round, later than it could be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from eyot_hub.jobs.tables.table_format import TableFile

#: The longest step between two readings that is not a jump: of daily rounds one may fail, and the next come late.
STEP: Final = timedelta(hours=60)
#: How long a clock goes on after a jump until it is trusted. By so much less than `STEP` that rounds of each day meet the time between.
HOLD: Final = timedelta(hours=36)
#: Readings closer than this to the recorded one are not recorded: each costs a commit.
RECORD_EVERY: Final = timedelta(hours=6)
#: Transaction ids of the readings, in seconds since 1970; 0: there is none.
TRUSTED_ID: Final = "eyot:clock/trusted"
JUMP_ID: Final = "eyot:clock/jump"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Readings:
    """What a table has recorded. Without any, the time of the newest row is the trusted reading."""

    trusted: datetime | None = None
    jump: datetime | None = None  # the first reading after a jump that is not trusted yet

    @classmethod
    def of_positions(cls, trusted: int, jump: int) -> Readings:
        return cls(*(_EPOCH + timedelta(seconds=at) if at else None for at in (trusted, jump)))

    def positions(self) -> dict[str, int]:
        pairs = ((TRUSTED_ID, self.trusted), (JUMP_ID, self.jump))
        return {name: max(1, (at - _EPOCH) // timedelta(seconds=1)) if at else 0 for name, at in pairs}

    def after(self, now: datetime) -> Readings:
        """Return the readings with another one, `now` (UTC)."""
        if self.trusted is not None and abs(now - self.trusted) <= STEP:
            return Readings(now)
        if self.jump is None or now < self.jump:
            return Readings(self.trusted, now)
        if now - self.jump < HOLD:
            return self
        return Readings(self.jump).after(now)

    def differ(self, recorded: Readings) -> bool:
        """Return whether these have to be recorded."""
        if self.jump != recorded.jump or self.trusted is None or recorded.trusted is None:
            return self != recorded
        return abs(self.trusted - recorded.trusted) >= RECORD_EVERY


@dataclass(frozen=True)
class ClockCheck:
    """What may leave a table by age."""

    #: Ages of rows count from here; None: no row may leave.
    ages_from: datetime | None
    #: No jump is noted: files that nothing needs may leave, too.
    steady: bool
    #: The clock does not show what follows the trusted reading.
    jumped: bool = False


def checked(before: Readings, after: Readings, now: datetime) -> ClockCheck:
    """Return what may leave at `now`, by the readings before and after."""
    trusted = None if after.trusted is None else min(now, after.trusted)
    # A round that meets the clock back from a jump removes no files yet: what others write now may have been begun before.
    steady = after.trusted is not None and before.jump is None and after.jump is None
    return ClockCheck(trusted, steady, after.trusted is not None and after.jump is not None)


def newest_stored(files: Iterable[TableFile]) -> datetime | None:
    """Return when the server stored the newest row, as far as the files' statistics tell; None: they do not."""
    found = [at for file in files if (at := file.most.get("stored_at")) is not None]
    return max((at if at.tzinfo else at.replace(tzinfo=UTC) for at in found), default=None)
