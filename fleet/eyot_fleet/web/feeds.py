"""Server-sent events: every viewer hears, once a second at most, what changed of the devices that it sees.

One task follows the index for all viewers. What waits for a viewer is a set of names within what it sees, so a viewer that
reads slowly costs no memory; one that does not read at all is left by the HTTP server.
"""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec import Struct

from eyot_fleet.web.answers import HEADERS, refusal
from eyot_fleet.web.backend import Freshness
from eyot_fleet.web.views import Row, row_of
from eyot_serving.http_messages import HttpResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from eyot_fleet.web.backend import Backend
    from eyot_serving.sessions import Session

#: Viewers at a time, and of one session.
FEEDS_MAX: Final = 200
SESSION_FEEDS_MAX: Final = 8
#: Between two events to one viewer.
TICK_S: Final = 1.0
#: A viewer hears at least this often: it knows then that the service is there, and how old the figures are.
QUIET_S: Final = 10.0
_SECRET_BYTES: Final = 16


class Totals(Struct, frozen=True, kw_only=True):
    """The whole fleet."""

    fleet: int
    states: dict[str, int]
    #: devices with an alert
    alerted: int
    backlog: int
    never_arrived: int


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `rows` are devices of the viewer that changed, `gone` those that went."""

    now: float
    hub: Freshness
    revision: int
    totals: Totals | None = None
    rows: list[Row] = []
    gone: list[str] = []
    #: anything may have changed: ask for the page again
    reload: bool = False


class Feed:
    """One viewer."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names: frozenset[str] = frozenset()
        self._changed: set[str] = set()
        self._reload = False
        self._wakeup = trio.Event()

    def note(self, names: frozenset[str], *, reload: bool) -> None:
        """Keep what changed of what the viewer sees. Bounded by what it sees."""
        self._reload = self._reload or reload
        self._changed |= names & self.names
        self._wakeup.set()

    def show(self, names: frozenset[str]) -> None:
        """Note what the viewer sees from now on."""
        self.names = names
        self._changed &= names

    async def changes(self) -> tuple[set[str], bool]:
        """Wait until something in the fleet has changed, or for QUIET_S; return what changed of what the viewer sees."""
        with trio.move_on_after(QUIET_S):
            await self._wakeup.wait()
        self._wakeup = trio.Event()
        changed, reload = self._changed, self._reload
        self._changed, self._reload = set(), False
        return changed, reload


class Feeds:
    """All viewers. `run` follows the index; `is_open`: whether a session may still see anything."""

    def __init__(self, backend: Backend, is_open: Callable[[Session], bool]) -> None:
        self._backend = backend
        self._is_open = is_open
        self._feeds: dict[str, Feed] = {}
        #: counted once a tick, however many viewers there are; None: not counted since the last change
        self._totals: Totals | None = None
        #: viewers that were refused since the start
        self.refused = 0

    def __len__(self) -> int:
        return len(self._feeds)

    async def run(self) -> None:
        """Tell the viewers what changes, until cancelled. Raises TooManySubscribers."""
        with self._backend.index.feed.subscribe() as subscription:
            async for changes in subscription:
                self._totals = None
                for feed in self._feeds.values():
                    feed.note(changes.names, reload=changes.reload)
                await trio.sleep(TICK_S)

    def shown(self, feed_id: str, session: Session, names: frozenset[str]) -> None:
        """Note what a session's viewer sees from now on. An unknown viewer is none of this session's."""
        feed = self._feeds.get(feed_id)
        if feed is not None and feed.session is session:
            feed.show(names)

    def open(self, session: Session) -> HttpResponse:
        """Answer with a stream of events. The first one holds the id that the viewer names in its questions."""
        own = sum(1 for each in self._feeds.values() if each.session is session)
        if own >= SESSION_FEEDS_MAX or len(self._feeds) >= FEEDS_MAX:
            self.refused += 1
            return refusal(503, "too many pages are open at the same time", ("Retry-After", "30"))
        feed_id = secrets.token_urlsafe(_SECRET_BYTES)

        @asynccontextmanager
        async def parts() -> AsyncIterator[AsyncIterator[bytes]]:
            # The place may be taken meanwhile: between the answer and its stream lies the sending of the head.
            self._feeds[feed_id] = feed = Feed(session)
            try:
                yield self._parts(feed_id, feed)
            finally:
                del self._feeds[feed_id]

        return HttpResponse(
            b"retry: 3000\n\n", "text/event-stream", headers=(*HEADERS, ("X-Accel-Buffering", "no")), stream=parts
        )

    async def _parts(self, feed_id: str, feed: Feed) -> AsyncIterator[bytes]:
        yield _event("begin", {"feed": feed_id})
        yield _event("change", self._message(set(), reload=False))
        while True:
            changed, reload = await feed.changes()
            if not self._is_open(feed.session):
                yield _event("ended", {})
                return
            yield _event("change", self._message(changed, reload=reload))
            await trio.sleep(TICK_S)

    def _message(self, changed: set[str], *, reload: bool) -> Event:
        backend, rows, gone = self._backend, [], []
        for name in sorted(changed):
            record = backend.index.get(name)
            if record is None:
                gone.append(name)
            else:
                rows.append(row_of(record))
        return Event(
            now=backend.now(),
            hub=backend.freshness(),
            revision=backend.index.revision,
            totals=self._present_totals(),
            rows=rows,
            gone=gone,
            reload=reload,
        )

    def _present_totals(self) -> Totals:
        """Return the whole fleet's figures as of the last tick."""
        if self._totals is not None:
            return self._totals
        index = self._backend.index
        states: Counter[str] = Counter()
        alerted = backlog = never_arrived = 0
        for record in index:
            states[record.state] += 1
            alerted += bool(record.alerts)
            backlog += record.backlog or 0
            never_arrived += record.never_arrived
        self._totals = Totals(
            fleet=len(index), states=dict(states), alerted=alerted, backlog=backlog, never_arrived=never_arrived
        )
        return self._totals


def _event(name: str, data: object) -> bytes:
    """Return one event; JSON has no line ends."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
