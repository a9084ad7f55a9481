"""Loads what a stream knows of its subjects, a slice per turn.

Counts per subject come from the index, or from all records without one, on first use; sequences of each subject from
all records. With very many records, loading is slow: requests that need the index wait and are called back. So do counts from the
middle of a stream that is too large to keep its sequences.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.config.consumer import filters_of
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import ConsumerConfig, MsgGetRequest, rfc3339_to_ns

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log
    from eyot_store.log.reads import NearSearch

log = logging.getLogger("eyot.jetstream")

#: In streams with fewer messages, the index loads at once, if they are small.
SMALL: Final = 8192
#: So long those that waited are called in one turn.
_TURN_NS: Final = 5_000_000
#: With more who wait, the rest is done at one stroke.
WAITING_MAX: Final = 1024


class SubjectIndexLoader:
    """Loads the subject index of one stream when a request first needs it."""

    def __init__(self, stream: StreamCore) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._waiting: list[tuple[Callable[[], None], bool]] = []
        #: Those that waited and are called next, a few each turn.
        self._ready: deque[Callable[[], None]] = deque()
        #: Searches of gets for the next message on a subject, and what to call then.
        self._searches: deque[tuple[NearSearch, Callable[[], None]]] = deque()
        #: Who waits for what some filters select.
        self._selecting: dict[tuple[bytes, ...], list[Callable[[], None]]] = {}

    @property
    def done(self) -> bool:
        """Whether the counts are loaded, or load at once."""
        return self._log.subjects_known or self._log.state.messages <= self._log.in_one_go(SMALL)

    def then(self, fn: Callable[[], None], *, sequences: bool = False) -> None:
        """Call `fn` when the counts (and the sequences) are loaded; at once if they are."""
        if self._ready and self._stream.live and not sequences:
            self._ready.append(fn)  # not before those that came earlier
            return
        if (self.done and not sequences) or len(self._waiting) >= WAITING_MAX or not self._stream.live:
            fn()
            return
        self._waiting.append((fn, sequences))
        if len(self._waiting) == 1:
            self._stream.timers.call_later(0.0, self._slice)

    def for_get(self, asked: MsgGetRequest, fn: Callable[[], None]) -> None:
        """Call `fn` when the index that finds the requested messages is loaded."""
        if asked.next_by_subj:
            self.then(partial(self._look_near, asked, partial(self._select, (asked.next_by_subj.encode(),), fn)))
        elif asked.last_by_subj or asked.multi_last:
            self.then(lambda: self.then(fn, sequences=not self._finds_last_soon(asked)))
        else:
            fn()

    def _look_near(self, asked: MsgGetRequest, fn: Callable[[], None]) -> None:
        """Call `fn` when the next message on a subject is near, or its sequences are tracked."""
        wanted, seq = asked.next_by_subj.encode(), asked.seq or 1
        try:
            if asked.start_time is not None:
                seq = self._log.seq_at_time(rfc3339_to_ns(asked.start_time))
            near = self._log.looking_near(wanted, seq)
        except StoreError:
            fn()  # the read that follows reports the error
            return
        self._searches.append((near, lambda: self.then(fn, sequences=not self._is_soon(near, asked, seq))))
        if len(self._searches) == 1:
            self._search_on()

    def _search_on(self) -> None:
        """Search for one request after the other, a slice in each turn."""
        begun = perf_counter_ns()
        try:
            while self._searches:
                near, fn = self._searches[0]
                if self._is_decided(near):
                    self._searches.popleft()
                    fn()
                if perf_counter_ns() - begun > _TURN_NS:
                    break
        finally:
            if self._searches:
                self._stream.timers.call_later(0.0, self._search_on)

    def _is_decided(self, near: NearSearch) -> bool:
        try:
            return not self._stream.live or near.step()
        except StoreError:
            near.found = True  # the read that follows reports the error
            return True

    def _is_soon(self, near: NearSearch, asked: MsgGetRequest, seq: int) -> bool:
        return near.found and (not asked.batch or self._log.counts_soon(seq, (asked.next_by_subj.encode(),)))

    def _select(self, filters: tuple[bytes, ...], fn: Callable[[], None]) -> None:
        """Call `fn` when the subjects that the filters select are known."""
        others = self._selecting.get(filters)
        if others is not None:
            others.append(fn)
            return
        selecting = self._log.selecting(filters)
        if selecting is None or not self._stream.live:
            fn()
            return
        self._selecting[filters] = [fn]
        self._in_slices(selecting.step, lambda: self._call_soon(self._selecting.pop(filters)))

    def _finds_last_soon(self, asked: MsgGetRequest) -> bool:
        try:
            return not asked.last_by_subj or self._log.finds_last_soon(asked.last_by_subj.encode())
        except StoreError:
            return True  # the read that follows reports the error

    def for_consumer(self, config: ConsumerConfig, fn: Callable[[], None]) -> None:
        """Call `fn` when the index that counts a new consumer's messages is loaded."""
        filters, seq = filters_of(config), self._start_of(config)
        count = partial(self._count, seq, filters, fn)
        if filters or not self._log.counts_soon(seq, filters):
            self.then(lambda: self.then(count, sequences=not self._log.counts_soon(seq, filters)))
        else:
            count()

    def _start_of(self, config: ConsumerConfig) -> int:
        if config.deliver_policy == "by_start_sequence":
            return config.opt_start_seq
        if config.deliver_policy == "by_start_time" and config.opt_start_time:
            try:
                return self._log.seq_at_time(rfc3339_to_ns(config.opt_start_time))
            except (StoreError, ValueError):
                pass  # it is refused
        return 0

    def _count(self, seq: int, filters: tuple[bytes, ...], fn: Callable[[], None]) -> None:
        """Call `fn` when counting from `seq` on is fast, in a log that is too large to keep its sequences."""
        try:
            counting = self._log.counting(seq, filters) if seq > self._log.state.first_seq else None
        except StoreError:
            counting = None  # the count that follows reports the error
        if counting is None or not self._stream.live:
            fn()
        else:
            self._in_slices(counting.step, fn)

    def _in_slices(self, step: Callable[[], bool], fn: Callable[[], None]) -> None:
        """Call `step` once a turn until it returns True, then `fn`."""
        try:
            done = not self._stream.live or step()
        except StoreError:
            done = True
        if done:
            fn()
        else:
            self._stream.timers.call_later(0.0, lambda: self._in_slices(step, fn))

    def _slice(self) -> None:
        stream, done = self._stream, True
        try:
            if stream.live:
                sequences = any(wanted for _, wanted in self._waiting)
                done = self._log.track_some() if sequences else self._log.subjects_some()
        except StoreError as failure:  # the requests that wait report the error, too
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
        if not done:
            stream.timers.call_later(0.0, self._slice)
            return
        waiting, self._waiting = self._waiting, []
        self._call_soon([fn for fn, _ in waiting])

    def _call_soon(self, fns: list[Callable[[], None]]) -> None:
        """Call functions after those that are called already."""
        begun = bool(self._ready)
        self._ready.extend(fns)
        if not begun:
            self._call_ready()

    def _call_ready(self) -> None:
        """Call those that waited, in order; those for which this turn is too short in the next one."""
        begun = perf_counter_ns()
        try:
            while self._ready:
                try:
                    self._ready[0]()
                finally:
                    self._ready.popleft()
                if perf_counter_ns() - begun > _TURN_NS:
                    break
        finally:
            if self._ready:  # also after one that failed: the others wait for nothing else
                self._stream.timers.call_later(0.0, self._call_ready)


def after_subjects_loaded(loaders: Iterable[SubjectIndexLoader], fn: Callable[[], None]) -> None:
    """Call `fn` when the numbers of all these streams are there."""
    rest = [loader for loader in loaders if not loader.done]
    if rest:
        rest[0].then(lambda: after_subjects_loaded(rest[1:], fn))
    else:
        fn()
