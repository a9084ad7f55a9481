"""What stream info and `/eyot/status` tell of one mirror or source: its backlog, its rate, its problem and the remedy."""

from __future__ import annotations

from eyot_daemon.turn.clock import Clock
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_wire.jetstream.stream import StreamSource, StreamSourceInfo
from eyot_wire.status import SourcingStatus

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


class SourceReport:
    """The report of one mirror or source of the stream `stream_name`."""

    def __init__(
        self,
        account_name: str,
        stream_name: str,
        config: StreamSource,
        origin: Origin,
        source_consumer: SourceConsumer,
        clock: Clock,
        *,
        mirror: bool,
    ) -> None:
        self._account_name = account_name
        self._stream_name = stream_name
        self._config = config
        self._origin = origin
        self._source_consumer = source_consumer
        self._clock = clock
        self._mirror = mirror
        self._rate = SourceRate()

    def copied(self, count: int) -> None:
        """Count messages that became durable."""
        self._rate.copied(count, self._clock.monotonic())

    def info(self) -> StreamSourceInfo:
        """Return the entry in stream info (`mirror`, `sources`)."""
        progress = self._source_consumer.progress
        heard = progress.heard_at
        return StreamSourceInfo(
            name=self._config.name,
            external=self._config.external,
            lag=progress.lag,
            active=-1 if heard is None else int((self._clock.monotonic() - heard) * 1e9),
            error=progress.error,
            filter_subject=self._config.filter_subject,
            subject_transforms=self._config.subject_transforms,
        )

    def status(self) -> SourcingStatus:
        """Return the entry in `/eyot/status`."""
        progress, waiting = self._source_consumer.progress, self._source_consumer.waiting
        now = self._clock.monotonic()
        heard_s_ago = None if progress.heard_at is None else now - progress.heard_at
        return SourcingStatus(
            account=self._account_name,
            stream=self._stream_name,
            kind="mirror" if self._mirror else "source",
            origin=self._config.name,
            api_prefix=self._origin.api,
            deliver_prefix=self._origin.deliver_prefix,
            rate=self._rate.at(now),
            eta_s=None if heard_s_ago is None or waiting else self._rate.eta_s(progress.lag, now),
            waiting=waiting or None,
            remedy=source_remedy("" if progress.error is None else progress.error.description) or None,
            phase=self._source_consumer.phase.status,
            backlog=None if heard_s_ago is None else progress.lag,
            last_seq=progress.last_seq,
            committed_seq=progress.committed_seq,
            copied=progress.copied,
            requests=progress.requests,
            gaps=progress.gaps,
            heard_s_ago=heard_s_ago,
            error=progress.note or None if progress.error is None else progress.error.description,
        )
