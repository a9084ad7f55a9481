"""Waiting for what a stream knows of its subjects.

Numbers per subject come from the index, or from all records where there is none, when they are first asked for; sequences of each
subject from all records. With very many that takes long: it is done a slice a turn, and who needs it is called back.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.config.consumer import filters_of
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import ConsumerConfig, MsgGetRequest, rfc3339_to_ns

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.log import Log

log = logging.getLogger("eyot.jetstream")

#: In streams of fewer messages nobody has to wait.
SMALL: Final = 8192
#: With more who wait, the rest is done at one stroke.
WAITING_MAX: Final = 1024


class Gathering:
    """Of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._waiting: list[tuple[Callable[[], None], bool]] = []

    @property
    def done(self) -> bool:
        """Numbers are there, or take no time."""
        return self._log.subjects_known or self._log.state.messages <= SMALL

    def then(self, fn: Callable[[], None], *, sequences: bool = False) -> None:
        """Call `fn` when the numbers (and the sequences) are there; at once if that takes no time."""
        if (self.done and not sequences) or len(self._waiting) >= WAITING_MAX or not self._stream.live:
            fn()
            return
        self._waiting.append((fn, sequences))
        if len(self._waiting) == 1:
            self._stream.broker.timers.call_later(0.0, self._slice)

    def for_get(self, asked: MsgGetRequest, fn: Callable[[], None]) -> None:
        """Call `fn` when what it takes to find the messages asked for is there."""
        if asked.last_by_subj or asked.next_by_subj or asked.multi_last:
            self.then(lambda: self.then(fn, sequences=not self._finds_soon(asked)))
        else:
            fn()

    def _finds_soon(self, asked: MsgGetRequest) -> bool:
        try:
            if asked.last_by_subj:
                return self._log.finds_last_soon(asked.last_by_subj.encode())
            if asked.next_by_subj:
                return self._finds_next_soon(asked, asked.next_by_subj.encode())
        except StoreError:
            pass  # who reads is told
        return True

    def _finds_next_soon(self, asked: MsgGetRequest, wanted: bytes) -> bool:
        seq = asked.seq or 1
        if asked.start_time is not None:
            seq = self._log.seq_at_time(rfc3339_to_ns(asked.start_time))
        return self._log.finds_next_soon(wanted, seq) and (not asked.batch or self._log.counts_soon(seq, (wanted,)))

    def for_consumer(self, config: ConsumerConfig, fn: Callable[[], None]) -> None:
        """Call `fn` when what it takes to count a new consumer's messages is there."""
        filters = filters_of(config)
        if filters or not self._counts_soon(config, filters):
            self.then(lambda: self.then(fn, sequences=not self._counts_soon(config, filters)))
        else:
            fn()

    def _counts_soon(self, config: ConsumerConfig, filters: tuple[bytes, ...]) -> bool:
        seq = 0
        if config.deliver_policy == "by_start_sequence":
            seq = config.opt_start_seq
        elif config.deliver_policy == "by_start_time" and config.opt_start_time:
            try:
                seq = self._log.seq_at_time(rfc3339_to_ns(config.opt_start_time))
            except (StoreError, ValueError):
                pass  # it is refused
        return self._log.counts_soon(seq, filters)

    def _slice(self) -> None:
        stream, done = self._stream, True
        try:
            if stream.live:
                sequences = any(wanted for _, wanted in self._waiting)
                done = self._log.track_some() if sequences else self._log.subjects_some()
        except StoreError as failure:  # who asks is told again
            log.warning("Stream '%s > %s': %s", stream.account.name, stream.name, failure)
        if not done:
            stream.broker.timers.call_later(0.0, self._slice)
            return
        waiting, self._waiting = self._waiting, []
        for fn, _ in waiting:
            fn()


def after_gathering(streams: Iterable["Stream"], fn: Callable[[], None]) -> None:
    """Call `fn` when the numbers of all these streams are there."""
    rest = [stream for stream in streams if not stream.gathering.done]
    if rest:
        rest[0].gathering.then(lambda: after_gathering(rest[1:], fn))
    else:
        fn()
