"""The rate of a mirror or source, and remedies for its problems."""

from __future__ import annotations

#: Time that the rate covers, seconds. A mirror or source that received nothing for this long has no rate.
_SPAN_S = 10.0
_REMEDIES = (
    ("stream not found", "create the origin, or correct its name in the mirror or source"),
    (
        "no interest in",
        "check the leaf link and the exports of the origin's account: eyot doctor names what is missing",
    ),
    ("did not answer", "check that the answer may come back (response_type, permissions): eyot doctor"),
    ("link to the origin is down", "see eyot status for the link's last error"),
    ("re-created or lost messages", "compare origin and copy, then delete and create the copy, or purge it"),
    ("maximum", "raise the target's limits, or let old messages go"),
    ("insufficient", "make room on this server's disk, or raise the account's limits"),
)


class SourceRate:
    """Messages per second over the last seconds, as they became durable."""

    __slots__ = ("_count", "_last", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0
        self._count = 0.0

    def copied(self, count: int, now: float) -> None:
        if not count:
            return
        if self._since is None or now - self._last > _SPAN_S:
            self._since, self._count = now, 0.0
        elif now - self._since > _SPAN_S:
            # Half of the span is forgotten with its share of the messages.
            span = now - self._since
            self._count *= (_SPAN_S / 2) / span
            self._since = now - _SPAN_S / 2
        self._count += count
        self._last = now

    def at(self, now: float) -> float:
        if self._since is None or now - self._last > _SPAN_S:
            return 0.0
        return self._count / max(now - self._since, 1.0)

    def eta_s(self, lag: int, now: float) -> float | None:
        """Return when `lag` messages will be here, seconds from now; None: not known."""
        rate = self.at(now)
        return lag / rate if lag and rate else None


def source_remedy(error: str) -> str:
    """Return the remedy for an error of a mirror or source; "" if none is known."""
    return next((remedy for words, remedy in _REMEDIES if words in error), "")
