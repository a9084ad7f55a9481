"""Retained messages: the newest of each subject, in `$MQTT_rmsgs`.

A replay reads in slices, one a turn, so that a subscription of `#` with very many retained messages delays nobody, and
pauses while its receiver has no room. Expired messages are not replayed. They are removed when they fall due.

A publish of QoS 0 is delivered before it is on flash. Who subscribes between the two has missed the delivery, and gets
it from memory, behind what is on flash (`Retained.coming`).
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eyot_daemon.jetstream.stream_core import Batch
from eyot_daemon.mqtt.message import expires_ns
from eyot_store.errors import StoreError
from eyot_wire.subject import is_literal, matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.jetstream.stream_core import CommitCallback
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store import StoredMessage

log = logging.getLogger("eyot.mqtt")

RETAINED_PREFIX: Final = b"$MQTT.rmsgs."
SLICE_MESSAGES: Final = 256
SLICE_BYTES: Final = 1 << 20
#: A receiver without room is asked again after this, unless it resumes before, seconds.
PAUSE_S: Final = 0.05
#: The longest interval between checks for expired messages, because the clock may be set, seconds.
CHECK_S_MAX: Final = 60.0
#: After a failure of the store the removal of expired messages waits this long, seconds.
RETRY_S: Final = 1.0


class Coming(NamedTuple):
    """A retained message that subscribers have, on its way to flash; no payload: the retained message is removed."""

    subject: bytes
    header: bytes
    payload: bytes


class ReplayReceiver(Protocol):
    """Who gets a replay."""

    @property
    def over(self) -> bool:
        """Nothing more is wanted."""
        ...

    @property
    def ready(self) -> bool:
        """There is room for more; asked before each slice."""
        ...

    def message(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """Take one retained message; `subject` as it was published."""
        ...


class Replay:
    """One replay under way: the retained messages at its start that match any of `filters`, each once.

    Those that were on their way to flash are part of it, and come last.
    """

    def __init__(
        self, retained: Retained, filters: Sequence[bytes], receiver: ReplayReceiver, done: Callable[[], None]
    ) -> None:
        self._retained = retained
        self._log = retained.stream.log
        self._filters = tuple(RETAINED_PREFIX + each for each in filters)
        self._receiver = receiver
        self._done = done
        self._next = 1
        self._end = self._log.committed_seq
        self._coming = retained.coming_for(filters)
        self._unsent = deque(self._coming.values())
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        """Read the first slice soon."""
        self._soon(0.0)

    def resume(self) -> None:
        """Continue: the receiver has room again."""
        if self._timer is not None:
            self._timer.cancel()
            self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        self._timer = self._retained.stream.core.timers.call_later(seconds, self._slice)

    def _slice(self) -> None:
        self._timer = None
        receiver = self._receiver
        if receiver.over or not self._retained.stream.live:
            return
        if not receiver.ready:
            self._soon(PAUSE_S)
            return
        if self._next > self._end:
            self._hand_over_coming()
            return
        try:
            messages = self._read()
        except StoreError as failure:
            log.error("Retained messages cannot be read: %s", failure)
            self._done()
            return
        now_ns = self._retained.stream.core.clock.now_ns()
        expired: list[int] = []
        for message in messages:
            until = expires_ns(message.header)
            if until and until <= now_ns:
                expired.append(message.seq)
            elif self._log.last_committed_for(message.subject) == message.seq and not receiver.over:
                subject = message.subject[len(RETAINED_PREFIX) :]
                if subject not in self._coming:
                    receiver.message(subject, message.header, message.payload)
        self._retained.remove(expired)
        self._go_on()

    def _hand_over_coming(self) -> None:
        """Hand over what was not on flash at the start, at most a slice of it."""
        now_ns = self._retained.stream.core.clock.now_ns()
        for _ in range(min(SLICE_MESSAGES, len(self._unsent))):
            subject, header, payload = self._unsent.popleft()
            until = expires_ns(header)
            if payload and not (until and until <= now_ns) and not self._receiver.over:
                self._receiver.message(subject, header, payload)
        self._go_on()

    def _go_on(self) -> None:
        if self._next <= self._end or self._unsent:
            self._soon(0.0)
        else:
            self._done()

    def _read(self) -> list[StoredMessage]:
        """Return the next slice. Raises StoreError."""
        if self._next == 1 and all(is_literal(each) for each in self._filters):
            self._next = self._end + 1
            found = [self._log.last_committed_for(subject) for subject in dict.fromkeys(self._filters)]
            read = [self._log.get_readable(seq) for seq in sorted(found) if seq]
            return [message for message in read if message is not None]
        messages, self._next = self._log.read_on(
            self._next,
            max_messages=SLICE_MESSAGES,
            max_bytes=SLICE_BYTES,
            filters=self._filters,
            up_to=self._end,
        )
        return messages


class Retained:
    """The retained messages of one account."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        #: what is delivered, and not yet on flash: the newest of each subject
        self._coming: dict[bytes, Coming] = {}
        self._due: list[tuple[int, bytes]] = []  # (expiry, subject), a heap; a subject may have later messages
        self._timer: TimerHandle | None = None

    def replay(
        self, filters: Sequence[bytes], receiver: ReplayReceiver, done: Callable[[], None] = lambda: None
    ) -> Replay:
        """Hand over the retained messages for `filters` (subjects with wildcards, without prefix), oldest first.

        `done` is called at the end, unless the receiver ended it. Messages stored after the start are not part of it.
        """
        replay = Replay(self, filters, receiver, done)
        self.stream.subject_index_loader.then(replay.begin)
        return replay

    def coming(self, message: Coming) -> None:
        """Note a message that was delivered to all subscribers, and is on its way to flash now."""
        self._coming[message.subject] = message

    def settled(self, message: Coming) -> None:
        """Forget a message of `coming`: it is on flash, or was refused."""
        if self._coming.get(message.subject) is message:
            del self._coming[message.subject]

    def coming_for(self, filters: Sequence[bytes]) -> dict[bytes, Coming]:
        """Return what is on its way to flash for `filters`, by subject."""
        return {
            subject: message
            for subject, message in self._coming.items()
            if any(matches(pattern, subject) for pattern in filters)
        }

    @property
    def size(self) -> tuple[int, int]:
        """Retained messages, and their bytes."""
        state = self.stream.log.state
        return state.messages, state.bytes

    def slice_of(
        self, filters: Sequence[bytes], seq: int, max_messages: int, max_bytes: int
    ) -> tuple[list[StoredMessage], int]:
        """Return retained messages for `filters` from sequence `seq` on, and the sequence behind them.

        Raises StoreError. Damaged messages are passed over: the sequence behind one is returned with none.
        """
        stream_log = self.stream.log
        found, next_seq = stream_log.read_on(
            seq,
            max_messages=max_messages,
            max_bytes=max_bytes,
            filters=tuple(RETAINED_PREFIX + each for each in filters),
        )
        return [each for each in found if stream_log.last_committed_for(each.subject) == each.seq], next_seq

    # -- expiry ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for messages that expire, in slices."""
        self._look_from(1)

    def _look_from(self, seq: int) -> None:
        stream_log = self.stream.log
        if not self.stream.live:
            return
        try:
            read = stream_log.read_on(seq, max_messages=SLICE_MESSAGES, max_bytes=SLICE_BYTES)
        except StoreError as failure:
            log.error("Retained messages cannot be read: %s", failure)
            return
        for message in read.messages:
            self.stored(message.subject, message.header)
        if read.next_seq <= stream_log.committed_seq:
            self.stream.core.timers.call_later(0.0, partial(self._look_from, read.next_seq))

    def stored(self, subject: bytes, header: bytes) -> None:
        """Note a stored message (`subject` with its prefix), which may expire."""
        until = expires_ns(header)
        if until:
            heapq.heappush(self._due, (until, subject))
            self._schedule()

    def _schedule(self, delay_s_min: float = 0.0) -> None:
        if not self._due or not self.stream.live:
            return
        core = self.stream.core
        left_s = min(max((self._due[0][0] - core.clock.now_ns()) / 1e9, delay_s_min), CHECK_S_MAX)
        if self._timer is not None and self._timer.active:
            if self._timer.deadline <= core.clock.monotonic() + left_s:
                return
            self._timer.cancel()
        self._timer = core.timers.call_later(left_s, self._expire)

    def _expire(self) -> None:
        """Remove at most a slice of expired messages; what the store does not remove is due again soon."""
        self._timer = None
        now_ns = self.stream.core.clock.now_ns()
        due = list(self._take_due(now_ns))

        def settled(failure: StoreError | None) -> None:
            if failure is None:
                return
            log.warning("Expired retained messages stay for now: %s", failure)
            for each in due:
                heapq.heappush(self._due, each)
            self._schedule(RETRY_S)

        try:
            self.remove(list(self._expired(due, now_ns)), settled)
        except StoreError as failure:
            settled(failure)
            return
        self._schedule()

    def _take_due(self, now_ns: int) -> Iterator[tuple[int, bytes]]:
        for _ in range(SLICE_MESSAGES):
            if not self._due or self._due[0][0] > now_ns:
                return
            yield heapq.heappop(self._due)

    def _expired(self, due: Sequence[tuple[int, bytes]], now_ns: int) -> Iterator[int]:
        for _, subject in due:
            seq = self.stream.log.last_committed_for(subject)
            message = self.stream.log.get_readable(seq) if seq else None
            if message is not None and 0 < expires_ns(message.header) <= now_ns:
                yield seq

    def remove(self, seqs: Sequence[int], settled: CommitCallback = lambda _: None) -> None:
        """Remove messages by their sequences; `settled` gets the result, if there are any. Raises StoreError."""
        if not seqs or not self.stream.live:
            return
        batch = Batch(then=[settled])
        with self.stream.staging() as txn:
            batch.removed = [seq for seq in seqs if self.stream.log.remove(txn, seq)]
        if txn.parts:
            self.stream.submit(txn, batch)
        else:
            self.stream.store.abort(txn)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
