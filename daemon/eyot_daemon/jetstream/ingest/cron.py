"""Cron expressions of schedules: which times they match.

Cron expressions have six fields: second, minute, hour, day of month, month, day of week, with names, lists, ranges and
steps; or they are one of `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly`. If both days are
restricted (`*` and `?` alone do not restrict), either is enough. A local time that a change of the clocks leaves out does
not occur; one that it repeats is due twice. Sources: ADR-51 and nats-server's `cron.go`.
"""

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.model import NS_PER_S

#: Years that are searched: an expression that matches no day of them never matches (leap days on a weekday need 28, or 40).
YEARS_MAX = 45

_SHORTHANDS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Cron:
    """A parsed expression. Raises ValueError when `text` is none."""

    __slots__ = ("_any_day", "_days", "_hours", "_minutes", "_months", "_seconds", "_weekdays")

    def __init__(self, text: str) -> None:
        fields = _SHORTHANDS.get(text, text).split()
        if len(fields) != 6 or (text.startswith("@") and text not in _SHORTHANDS):
            raise ValueError(f"{text!r} is not a schedule of six fields")
        self._seconds = sorted(_values(fields[0], 0, 59))
        self._minutes = sorted(_values(fields[1], 0, 59))
        self._hours = sorted(_values(fields[2], 0, 23))
        self._days = _values(fields[3], 1, 31)
        self._months = _values(fields[4], 1, 12, _MONTHS, 1)
        self._weekdays = _values(fields[5], 0, 6, _DAYS)
        # With a star in one of them the other decides alone.
        self._any_day = not (_is_star(fields[3]) or _is_star(fields[5]))

    def next(self, after_ns: int, zone: tzinfo = UTC) -> int:
        """Return the first due time after `after_ns` (both ns since 1970); 0: there is none."""
        after = datetime.fromtimestamp(after_ns // NS_PER_S, zone)
        for day in self._matching_days(after.date()):
            back = _clocks_go_back(day, zone)
            earliest = time.min
            if day == after.date():
                # While the clocks repeat an hour, a time due later may read earlier.
                earliest = max(after.replace(tzinfo=None) - back, datetime.combine(day, time.min)).time()
            folds = (0, 1) if back else (0,)
            due = [due_ns for fold in folds if (due_ns := self._first_due(day, earliest, fold, zone, after_ns))]
            if due:
                return min(due)
        return 0

    def _first_due(self, day: date, earliest: time, fold: int, zone: tzinfo, after_ns: int) -> int:
        """Return the first due time of a day after `after_ns`; `fold` 1: the second of repeated times. 0: none."""
        for local in self._times(day, earliest):
            due = local.replace(tzinfo=zone, fold=fold)
            if due.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) != local:
                continue  # left out when the clocks go forward
            due_ns = int(due.timestamp()) * NS_PER_S
            if due_ns > after_ns:
                return due_ns
        return 0

    def _matching_days(self, first: date) -> Iterator[date]:
        day = first
        while day.year < first.year + YEARS_MAX:
            if day.month not in self._months:
                day = day.replace(day=1) + timedelta(days=monthrange(day.year, day.month)[1])
                continue
            of_month, of_week = day.day in self._days, (day.weekday() + 1) % 7 in self._weekdays
            if (of_month or of_week) if self._any_day else (of_month and of_week):
                yield day
            day += timedelta(days=1)

    def _times(self, day: date, earliest: time) -> Iterator[datetime]:
        """Yield all times of a day at or after `earliest`'s second, ascending."""
        for hour in self._hours:
            if hour < earliest.hour:
                continue
            for minute in self._minutes:
                if (hour, minute) < (earliest.hour, earliest.minute):
                    continue
                for second in self._seconds:
                    if (hour, minute, second) >= (earliest.hour, earliest.minute, earliest.second):
                        yield datetime.combine(day, time(hour, minute, second))


def _clocks_go_back(day: date, zone: tzinfo) -> timedelta:
    """Return how far the clocks go back within a day; zero on all others."""
    first = datetime.combine(day, time.min, zone).utcoffset() or timedelta()
    last = datetime.combine(day + timedelta(days=1), time.min, zone).utcoffset() or timedelta()
    return max(first - last, timedelta())


def _is_star(field: str) -> bool:
    """Return whether a valid field of days leaves the choice to the other one: a step above 1 restricts it (`cron.go`, getRange)."""
    parts = (part.partition("/") for part in field.split(","))
    return any(span in ("*", "?") and int(step or 1) == 1 for span, _, step in parts)


def _values(field: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> frozenset[int]:
    """Return the numbers a field stands for. `names` stand for numbers from `first` on."""

    def number(text: str) -> int:
        if text.lower() in names:
            return names.index(text.lower()) + first
        found = parse_uint(text)
        if found is None:
            raise ValueError(f"{text!r} is no number of a schedule")
        return found

    values: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        step = number(step_text) if slash else 1
        if step == 0:
            raise ValueError("a step of a schedule is not zero")
        if span in ("*", "?"):
            start, end = low, high
        else:
            from_text, dash, to_text = span.partition("-")
            start = number(from_text)
            end = number(to_text) if dash else high if slash else start
        if start < low or end > high or start > end:
            raise ValueError(f"{part!r} is out of range")
        values.update(range(start, end + 1, step))
    return frozenset(values)
