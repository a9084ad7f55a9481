"""Publishes into several streams at once: every stream stores its message, or none does.

A publisher that needs one answer for all streams of a subject cannot store in one after the other: if the second stream
refuses, a retry doubles the message in the first. Here the messages of all streams are one transaction, together with
the caller's own operations on other logs. The checks, and what counts as agreed without being stored, are those of
`StreamIngest`.

Publishes gather during the turn and are one transaction at its end. If a stream refuses one of them, the transaction is
rolled back, and each publish is a transaction of its own. Messages that were queued for a stream earlier in the turn
are stored before it. A run of publishes to the same streams is handed in as one, and may grow while nothing came behind it;
each of them stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eyot_daemon.jetstream.ingest.stream_ingest import StreamIngest, SubjectRemoval
from eyot_daemon.jetstream.stream_core import Batch, StreamCore
from eyot_store.errors import StoreError
from eyot_wire.frames import Published
from eyot_wire.jetstream.error_codes import JSStreamStoreFailedF, JSStreamTooManyRequests
from eyot_wire.jetstream.errors import ApiError, JetStreamError, error

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.limiter import IngestLimiter
    from eyot_daemon.router.core import BrokerCore
    from eyot_store.store import Store
    from eyot_store.txn import Txn

#: A message to store (its reply subject is not used), or a subject to empty.
Change = Published | SubjectRemoval
#: Stages the caller's own operations. Called again if the publish is tried again.
Extra = Callable[["Txn"], None]
#: Called once, with the reason of a refusal or failure, or None when everything is on flash.
Done = Callable[[ApiError | None], None]
#: The same for publishes together: once, with the outcome of each, or None when all are on flash.
RunDone = Callable[["Sequence[ApiError | None] | None"], None]


class JointStream(Protocol):
    """A stream as a part of joint publishes."""

    @property
    def core(self) -> StreamCore: ...

    @property
    def ingest(self) -> StreamIngest: ...

    @property
    def ingest_limiter(self) -> IngestLimiter: ...

    def flush(self) -> None:
        """Stage the messages that the turn has published so far."""
        ...


class _Publish(NamedTuple):
    """`changes`: the streams, each with what it stores, in order."""

    changes: Sequence[tuple[JointStream, Sequence[Change]]]
    extra: Extra | None
    done: Done


class Run:
    """Publishes of which each has one message for each of the streams in `changes`."""

    __slots__ = ("changes",)

    def __init__(self, changes: Sequence[tuple[JointStream, Sequence[Published]]]) -> None:
        self.changes = changes

    def settled(self, outcomes: Sequence[ApiError | None] | None) -> None:
        """Take the outcome of each publish, or None: all are on flash."""
        raise NotImplementedError

    def publishes(self) -> Iterator[_Publish]:
        """Yield the publishes one by one; the run is done when all of them are."""
        left = len(self.changes[0][1])
        outcomes: list[ApiError | None] = [None] * left

        def note(at: int, outcome: ApiError | None) -> None:
            nonlocal left
            outcomes[at] = outcome
            left -= 1
            if not left:
                self.settled(outcomes)

        for at in range(left):
            yield _Publish([(stream, (messages[at],)) for stream, messages in self.changes], None, partial(note, at))


class JointPublish:
    """The joint publishes of one store."""

    def __init__(self, broker: BrokerCore, store: Store) -> None:
        self._broker = broker
        self._store = store
        self._waiting: list[_Publish | Run] = []

    def publish(self, changes: Sequence[tuple[JointStream, Change]], done: Done, *, extra: Extra | None = None) -> None:
        """Apply `changes`, in order, and `extra`, all or nothing; `done` is called after the end of the turn."""
        by_stream: dict[JointStream, list[Change]] = {}
        for stream, change in changes:
            by_stream.setdefault(stream, []).append(change)
        self._add(_Publish(list(by_stream.items()), extra, done))

    def publish_run(self, run: Run) -> None:
        """Store one message or more in each of the run's streams, the same number in all: those at one place are a publish.

        The run is told of the outcome after the end of the turn. Until then its lists of messages may grow, while it is the last.
        """
        self._add(run)

    @property
    def last(self) -> object:
        """The publish or run that waits for the end of the turn behind all others; None: there is none."""
        return self._waiting[-1] if self._waiting else None

    def _add(self, publish: _Publish | Run) -> None:
        if not self._waiting:
            self._broker.mark_dirty(self)
        self._waiting.append(publish)

    def flush(self) -> None:
        """End of the turn: hand in the gathered publishes."""
        waiting, self._waiting = self._waiting, []
        streams = {stream: None for publish in waiting for stream, _ in publish.changes}
        for stream in streams:
            stream.flush()
        alone = len(waiting) == 1 and type(waiting[0]) is _Publish
        if alone or self._commit(waiting) is not None:
            for each in waiting:
                for publish in each.publishes() if isinstance(each, Run) else (each,):
                    refused = self._commit([publish], alone=True)
                    if refused is not None:
                        publish.done(refused)
        for stream in streams:
            gate = stream.ingest_limiter.shut_gate()
            if gate is not None:
                self._broker.hold_back(gate)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _commit(self, publishes: Sequence[_Publish | Run], *, alone: bool = False) -> ApiError | None:
        """Hand in one transaction of these publishes, or return why there is none; then nothing has changed.

        `alone`: there is no other try.
        """
        changes: dict[JointStream, list[Change]] = {}
        for publish in publishes:
            for stream, wanted in publish.changes:
                known = changes.get(stream)
                if known is None:
                    changes[stream] = list(wanted)
                else:
                    known += wanted
        refused = _without_room(changes, alone=alone)
        if refused is not None:
            return refused
        txn = self._store.begin()
        staged: list[tuple[JointStream, Batch, int]] = []
        try:
            for stream, wanted in changes.items():
                if not wanted:
                    continue
                batch, before = Batch(), txn.bytes
                staged.append((stream, batch, 0))
                refused = stream.ingest.stage_joint(txn, batch, wanted)
                if refused is not None:
                    raise JetStreamError(refused)
                staged[-1] = (stream, batch, txn.bytes - before)
            for publish in publishes:
                if isinstance(publish, _Publish) and publish.extra is not None:
                    publish.extra(txn)
        except BaseException as failure:
            self._store.abort(txn)
            for stream, batch, _ in staged:
                stream.ingest.rolled_back(batch)
            if isinstance(failure, JetStreamError):
                return failure.api_error
            if isinstance(failure, StoreError):
                return _error_of(failure)
            raise
        for stream, batch, size in staged:
            stream.ingest_limiter.note_staged(batch, size)
        self._submit(txn, [(stream.core, batch) for stream, batch, _ in staged], publishes)
        return None

    def _submit(self, txn: Txn, members: list[tuple[StreamCore, Batch]], publishes: Sequence[_Publish | Run]) -> None:
        def through(failure: StoreError | None) -> None:
            result = None if failure is None else _error_of(failure)
            for publish in publishes:
                if isinstance(publish, _Publish):
                    publish.done(result)
                else:
                    publish.settled(None if result is None else [result] * len(publish.changes[0][1]))

        StreamCore.submit_together(self._store, txn, members, through)


def _without_room(changes: dict[JointStream, list[Change]], *, alone: bool) -> ApiError | None:
    """Return why a stream stores nothing at present; messages of a single publish count as refused then.

    A stream without acknowledgements drops the messages instead.
    """
    for stream, wanted in changes.items():
        if not stream.core.live:
            return error(JSStreamStoreFailedF, err="the stream has ended")
        messages = [change for change in wanted if isinstance(change, Published)]
        if stream.ingest_limiter.has_room(messages):
            continue
        no_ack = stream.core.config.no_ack
        if alone:
            for message in messages:
                stream.ingest_limiter.refuse(message)
            if no_ack:
                wanted[:] = [change for change in wanted if isinstance(change, SubjectRemoval)]
                continue
        return error(JSStreamTooManyRequests)
    return None


def _error_of(failure: StoreError) -> ApiError:
    if failure.reason == "busy":
        return error(JSStreamTooManyRequests)
    return error(JSStreamStoreFailedF, err=failure.message)
