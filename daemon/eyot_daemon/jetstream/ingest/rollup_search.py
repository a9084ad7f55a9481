"""Holds a stream's messages while the messages that their roll-ups remove are searched for.

A roll-up of a subject removes all its older messages in its own transaction. A stream whose sequences are tracked knows them.
Any other one is searched as a whole: about a second for a million messages, too long for a turn. The search therefore runs in
slices, one a turn, and what is published to the stream meanwhile waits in order. It counts as uncommitted (`IngestLimiter`).
Messages of an origin wait at their mirror or source (`RollupWait`), within the window of its flow control.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
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


Stored = tuple[bytes, bytes]
"""Subject and header of a message."""


class RollupSearch:
    """The searches of one stream, and the published messages that wait for one.

    `ingest` is called with them when it is through. `subject_of` returns the subject under which a message is stored.
    """

    def __init__(
        self,
        stream: StreamCore,
        loader: SubjectIndexLoader,
        limiter: IngestLimiter,
        subject_of: Callable[[bytes], bytes],
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
        """Return whether the published messages of a turn have to wait; `ingest` is called with them then."""
        under_way = bool(self._held)
        if not under_way and not self._is_long(self._rolled_up(map(_stored, messages))):
            return False
        self._limiter.note_held(messages)
        self._held += messages
        if not under_way:
            self._loader.then(self._begin)
        return True

    def delays(self, messages: Iterable[Stored], ready: Callable[[], None]) -> bool:
        """Return whether copied messages have to wait; `ready` is called then, in which they are staged."""
        subjects = self._rolled_up(messages)
        if not self._is_long(subjects):
            return False
        self._loader.then(lambda: self._search(subjects, ready))
        return True

    def _rolled_up(self, messages: Iterable[Stored]) -> set[bytes]:
        """Return the subjects that the messages roll up."""
        config = self._stream.config
        if not config.allow_rollup_hdrs or config.deny_purge:
            return set()
        asking = [each for each in messages if ROLLUP in each[1] or SCHEDULE in each[1]]
        return {self._subject_of(subject) for subject, header in asking if _rolls_up_subject(header)}

    def _is_long(self, subjects: set[bytes]) -> bool:
        """Return whether these cannot be rolled up within a turn."""
        if not subjects:
            return False
        try:
            return not self._loader.done or self._log.records_to_search(subjects) > self._log.in_one_go(WALK_MAX)
        except StoreError:
            return False  # staging reports the error

    def _begin(self) -> None:
        """Search for what is held, now that the stream's subjects are known."""
        self._search(self._rolled_up(map(_stored, self._held)), partial(self._release, len(self._held)))

    def _search(self, subjects: set[bytes], ready: Callable[[], None]) -> None:
        """Call `ready` when it is known where the messages of these subjects are."""
        if not self._stream.live or not self._is_long(subjects):
            ready()
        elif self._log.state.messages <= TRACKED_MESSAGES_MAX:
            self._loader.then(ready, sequences=True)
        else:
            self._continue(self._log.search_for(subjects), ready)

    def _continue(self, search: SubjectSearch, ready: Callable[[], None]) -> None:
        """Search a slice."""
        try:
            done = not self._stream.live or search.step()
        except StoreError as failure:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            done = True
        if not done:
            self._stream.timers.call_later(0.0, lambda: self._continue(search, ready))
            return
        self._log.know(search.found, search.next_seq)
        try:
            ready()
        finally:
            self._log.know({}, 0)  # what is removed from now on is not noted there

    def _release(self, count: int) -> None:
        """Ingest the first `count` messages, and the others unless they need a search of their own."""
        held, self._held = self._held, []
        self._limiter.note_released(held)
        self._ingest(held[:count])
        rest = held[count:]
        if rest and not self.holds(rest):
            self._ingest(rest)


class RollupWait:
    """Keeps waiting what one mirror or source has gathered, while one search for it runs. `stage` is called when that is done."""

    def __init__(self, search: RollupSearch, stage: Callable[[], None]) -> None:
        self._search = search
        self._stage = stage
        self._under_way = False

    def holds(self, gathered: Iterable[Stored]) -> bool:
        """Return whether what has gathered has to wait; `stage` is called then."""
        if self._under_way:
            return True
        self._under_way = True  # `_done` may be called at once
        if self._search.delays(gathered, self._done):
            return True
        self._under_way = False
        return False

    def _done(self) -> None:
        self._under_way = False
        self._stage()


def _stored(message: Published) -> Stored:
    return message.subject, message.header


def _rolls_up_subject(header: bytes) -> bool:
    fields = nats_fields(header)
    return fields.get(ROLLUP, b"").lower() == b"sub" or bool(fields.get(SCHEDULE) and ROLLUP not in fields)
