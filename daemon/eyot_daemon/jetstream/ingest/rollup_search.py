"""Holds a stream's messages while the messages that their roll-ups remove are searched for.

A roll-up of a subject removes all its older messages in its own transaction. A stream whose sequences are tracked knows them.
Any other one is searched as a whole: about a second for a million messages, too long for a turn. The search therefore runs in
slices, one a turn, and what is published to the stream meanwhile waits in order. It counts as uncommitted (`IngestLimiter`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.ingest.schedules import SCHEDULE
from eyot_daemon.jetstream.nats_headers import ROLLUP, nats_fields
from eyot_store.errors import StoreError
from eyot_store.log.subjects import TRACKED_MESSAGES_MAX, WALK_MAX

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.limiter import IngestLimiter
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.jetstream.subject_index_loader import SubjectIndexLoader
    from eyot_store.log.log import Log
    from eyot_store.log.subjects import SubjectSearch
    from eyot_wire.frames import Published

log = logging.getLogger("eyot.jetstream")


class RollupSearch:
    """The messages of one stream that wait for a search.

    `ingest` is called with them when it is through. `subject_of` returns the subject under which a message is stored.
    """

    def __init__(
        self,
        stream: StreamCore,
        loader: SubjectIndexLoader,
        limiter: IngestLimiter,
        subject_of: Callable[[Published], bytes],
        ingest: Callable[[list[Published]], None],
    ) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._loader = loader
        self._limiter = limiter
        self._subject_of = subject_of
        self._ingest = ingest
        self._held: list[Published] = []

    def holds(self, messages: list[Published]) -> bool:
        """Return whether the messages of a turn have to wait; `ingest` is called with them then."""
        under_way = bool(self._held)
        if not under_way and not self._is_long(self._rolled_up(messages)):
            return False
        self._limiter.note_held(messages)
        self._held += messages
        if not under_way:
            self._loader.then(self._begin)
        return True

    def _rolled_up(self, messages: Iterable[Published]) -> set[bytes]:
        """Return the subjects that the messages roll up."""
        config = self._stream.config
        if not config.allow_rollup_hdrs or config.deny_purge:
            return set()
        asking = [message for message in messages if ROLLUP in message.header or SCHEDULE in message.header]
        return {self._subject_of(message) for message in asking if _rolls_up_subject(message.header)}

    def _is_long(self, subjects: set[bytes]) -> bool:
        """Return whether these cannot be rolled up within a turn."""
        if not subjects:
            return False
        try:
            return not self._loader.done or self._log.records_to_search(subjects) > self._log.in_one_go(WALK_MAX)
        except StoreError:
            return False  # staging reports the error

    def _begin(self) -> None:
        """Search, now that the stream's subjects are known."""
        subjects = self._rolled_up(self._held)
        if not self._stream.live or not self._is_long(subjects):
            self._release(len(self._held))
        elif self._log.state.messages <= TRACKED_MESSAGES_MAX:
            self._loader.then(lambda: self._release(len(self._held)), sequences=True)
        else:
            self._continue(self._log.search_for(subjects), len(self._held))

    def _continue(self, search: SubjectSearch, count: int) -> None:
        """Search a slice for the first `count` messages."""
        try:
            done = not self._stream.live or search.step()
        except StoreError as failure:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            done = True
        if not done:
            self._stream.timers.call_later(0.0, lambda: self._continue(search, count))
            return
        self._log.know(search.found, search.next_seq)
        self._release(count)
        self._log.know({}, 0)

    def _release(self, count: int) -> None:
        """Ingest the first `count` messages, and the others unless they need a search of their own."""
        held, self._held = self._held, []
        self._limiter.note_released(held)
        self._ingest(held[:count])
        rest = held[count:]
        if rest and not self.holds(rest):
            self._ingest(rest)


def _rolls_up_subject(header: bytes) -> bool:
    fields = nats_fields(header)
    return fields.get(ROLLUP, b"").lower() == b"sub" or bool(fields.get(SCHEDULE) and ROLLUP not in fields)
