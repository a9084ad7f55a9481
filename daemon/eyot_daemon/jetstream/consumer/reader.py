"""A consumer's read position in its stream: start, next messages, and the number of pending ones.

The position itself is the delivery state's `delivered_sseq`. This object holds the filters, the list of last messages
for `last_per_subject`, and the number of pending messages.

Pending is exact but rarely counted: the number is known at one position of the log (`_known_upto`) and follows
deliveries, commits and removals. A read that reaches the end of the log makes it certain again at no cost. The log
counts only when it is unknown.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.config.consumer import filters_of
from eyot_store.errors import StoreError
from eyot_store.subjects.matching import SINGLY_MAX
from eyot_wire import subject as subjects
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream.error_codes import JSConsumerInvalidResetErr
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import ConsumerConfig, StreamConfig
from eyot_wire.pattern_set import matcher_of

if TYPE_CHECKING:
    from eyot_store import Log, StoredMessage
    from eyot_store.log.subjects import LastsBelow
    from eyot_wire.native import StoredRun

#: How far the log is searched in one read before others get their turn is the log's own bound; this is what one read
#: may bring into memory, bytes.
READ_BYTES_MAX = 1 << 20

_FEW = 16  # messages that are searched one by one in a long list


class LastPerSubject:
    """The messages that `last_per_subject` begins with: sequences still to be delivered, ascending, and where reading resumes."""

    __slots__ = ("_at", "_seqs", "resume")

    def __init__(self, seqs: array[int], resume: int) -> None:
        self._seqs = seqs
        self._at = 0
        self.resume = resume

    def __len__(self) -> int:
        return len(self._seqs) - self._at

    def next(self, above: int, count: int) -> array[int]:
        """Return the next `count` sequences above `above`."""
        while self._at < len(self._seqs) and self._seqs[self._at] <= above:
            self._at += 1
        return self._seqs[self._at : self._at + count]

    def remove(self, gone: Sequence[int]) -> None:
        if len(gone) <= _FEW:
            for seq in gone:
                at = bisect_left(self._seqs, seq, self._at)
                if at < len(self._seqs) and self._seqs[at] == seq:
                    del self._seqs[at]
            return
        lost = set(gone)
        self._seqs = array("q", (seq for seq in self._seqs[self._at :] if seq not in lost))
        self._at = 0


class EarlierLasts:
    """A search, in slices, for what were the last messages of their subjects in (`above`, `upto`] before newer ones came."""

    def __init__(
        self, log: Log, filters: Sequence[bytes], lists: Callable[[bytes], bool], above: int, upto: int
    ) -> None:
        self._log, self._lists, self._above, self._upto = log, lists, above, upto
        self._subjects = log.looking_for(filters, sys.maxsize - 1)
        self._lasts: LastsBelow | None = None

    def step(self) -> bool:
        """Examine some thousand more subjects or records; return True at the end. Raises StoreError."""
        if self._lasts is None:
            if not self._subjects.step():
                return False
            wanted = filter(self._lists, self._subjects.found)
            self._lasts = self._log.lasts_below(wanted, self._upto, self._above)
        return self._lasts.step()

    @property
    def found(self) -> list[int]:
        return [] if self._lasts is None else list(self._lasts.found.values())


class ConsumerReader:
    """The reading side of one consumer. Works on committed messages only."""

    def __init__(self, log: Log, config: ConsumerConfig) -> None:
        self._log = log
        self.filters = filters_of(config)
        self._literals = frozenset(filter_ for filter_ in self.filters if subjects.is_literal(filter_))
        self._matches_wild = matcher_of([filter_ for filter_ in self.filters if filter_ not in self._literals])
        self.last_per_subject: LastPerSubject | None = None
        #: What the list lacks until `find_earlier` has found it; nothing is to be read before.
        self.earlier: EarlierLasts | None = None
        self._pending = 0
        self._known_upto = -1  # the pending number is valid up to this sequence; -1: unknown
        self._discounted: set[int] = set()  # removals that were accounted for before they were reported
        self._failures = log.failures  # when the number was counted

    def wants(self, subject: bytes) -> bool:
        """Return whether the filters match a literal subject."""
        if not self.filters or subject in self._literals:
            return True
        return self._matches_wild(subject)

    # -- beginning -------------------------------------------------------------------------------------------------

    def start(self, config: ConsumerConfig, stream: StreamConfig) -> int:
        """Return the sequence before the first one to deliver, by the delivery policy and the present state."""
        log = self._log
        first, last = max(1, log.state.first_seq), log.state.last_seq
        policy = config.deliver_policy
        if policy == "by_start_sequence":
            seq = config.opt_start_seq
            # A mirror's or source's consumer begins at the end, if its start is not there yet; others wait for it.
            if config.direct:
                seq = min(seq, last + 1)
        elif policy == "by_start_time":
            seq = log.seq_at_time(rfc3339_to_ns(config.opt_start_time or ""))
        elif policy == "new":
            seq = last + 1
        elif policy == "last":
            seq = self._last_seq() or last + 1
        elif policy == "last_per_subject" and stream.max_msgs_per_subject != 1:
            self.begin_last_per_subject(log.committed_seq, 0)
            assert self.last_per_subject is not None
            listed = self.last_per_subject.next(0, 1)
            seq = listed[0] if listed else last + 1
        else:
            seq = first
        return max(seq, first) - 1

    def _last_seq(self) -> int:
        if not self.filters:
            return self._log.state.last_seq
        if len(self.filters) > SINGLY_MAX:
            return max(self._log.lasts_of_any(self.filters, 0, self._log.committed_seq), default=0)
        found = (self._log.last_for(filter_) for filter_ in self.filters)
        return max((message.seq for message in found if message is not None), default=0)

    def begin_last_per_subject(self, resume: int, above: int) -> None:
        """List the last message of every subject in (`above`, `resume`]; reading resumes after `resume`.

        After a restart `resume` is the value at the consumer's creation. Subjects with a newer message are in the list
        once `find_earlier` has returned True: a restart changes nothing of what a consumer gets.
        """
        self.last_per_subject = LastPerSubject(self._lasts(above, resume), resume)
        self._known_upto = -1
        self.earlier = None
        if above < resume < self._log.committed_seq:
            patterns = [_parent(each) if self._is_beginning(each) else each for each in self.filters]
            self.earlier = EarlierLasts(self._log, patterns, self._lists, above, resume)

    def find_earlier(self) -> bool:
        """Do a slice of the search for `earlier`; return True when the list is whole. Raises StoreError."""
        earlier, listed = self.earlier, self.last_per_subject
        if earlier is None or listed is None:
            return True
        if not earlier.step():
            return False
        self.earlier = None
        whole = array("q", sorted({*listed.next(0, len(listed)), *earlier.found}))
        self.last_per_subject = LastPerSubject(whole, listed.resume)
        return True

    def _lists(self, subject: bytes) -> bool:
        """Return whether the filters match a subject as `last_per_subject` reads them."""
        return self.wants(subject) or any(
            subject.startswith(each[:-1]) and (each.endswith(b">") or b"." not in subject[len(each) - 1 :])
            for each in self._literals
            if self._is_beginning(each)
        )

    def _lasts(self, above: int, upto: int) -> array[int]:
        """Return the last sequences in (`above`, `upto`] of the stream's subjects that the filters match, ascending.

        `a*` is a literal everywhere else, but nats-server's index treats it as a prefix of a token here, and KV clients
        list keys with it; `a>` likewise as a prefix of several tokens.
        """
        beginnings = [filter_ for filter_ in self.filters if self._is_beginning(filter_)]
        seqs = self._log.lasts_of_any([each for each in self.filters if not self._is_beginning(each)], above, upto)
        if not beginnings:
            return seqs
        found = {*seqs, *map(self._log.last_committed_for, self._beginning_with(beginnings))}
        return array("q", sorted(seq for seq in found if above < seq <= upto))

    def _beginning_with(self, beginnings: Sequence[bytes]) -> Iterator[bytes]:
        """Return the stream's subjects that some `a*` or `a>` match; those of very many by one scan."""
        log = self._log
        if len(beginnings) <= SINGLY_MAX:
            for each in beginnings:
                below = (subject for subject, _ in log.subject_totals(_parent(each)) if subject.startswith(each[:-1]))
                yield from (subject for subject in below if each[-1:] == b">" or b"." not in subject[len(each) - 1 :])
            return
        several_of = {each[:-1]: each.endswith(b">") for each in beginnings}
        lengths = sorted({len(beginning) for beginning in several_of})
        for subject, _ in log.subject_totals():
            for length in lengths:
                several = several_of.get(subject[:length]) if length <= len(subject) else None
                if several is not None and (several or b"." not in subject[length:]):
                    yield subject
                    break

    def _is_beginning(self, filter_: bytes) -> bool:
        return filter_ in self._literals and filter_[-1:] in (b"*", b">")

    def begin_again(self, above: int) -> None:
        """Read again after `above`, which was passed before."""
        if self.last_per_subject is not None:
            self.begin_last_per_subject(self.last_per_subject.resume, above)

    def check_reset(self, config: ConsumerConfig, seq: int) -> None:
        """Check that a consumer of this delivery policy may start at `seq`. Raises JetStreamError 10204."""
        policy = config.deliver_policy
        if policy == "by_start_sequence":
            start, what = config.opt_start_seq, "seq"
        elif policy == "by_start_time":
            start, what = self._log.seq_at_time(rfc3339_to_ns(config.opt_start_time or "")), "time"
        elif policy == "all":
            return
        else:
            raise fail(JSConsumerInvalidResetErr, err="not allowed")
        if seq < start:
            raise fail(JSConsumerInvalidResetErr, err=f"below start {what}")

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, above: int, count: int) -> tuple[list[StoredMessage], int]:
        """Return up to `count` messages above `above`, and how far the log was searched for them.

        The second value is at least the last message's sequence; without messages it may still exceed `above`: the
        range holds nothing for this consumer. Raises StoreError.
        """
        listed = self.last_per_subject
        if listed is not None:
            messages = self._read_listed(listed, above, count)
            if messages or len(listed):
                return messages, messages[-1].seq if messages else above
            self.last_per_subject = None
            above = max(above, listed.resume)
        log = self._log
        result = log.read(above + 1, max_messages=count, max_bytes=READ_BYTES_MAX, filters=self.filters)
        upto = max(above, result.next_seq - 1)
        if upto >= log.committed_seq:
            self._know(len(result.messages))
        return result.messages, upto

    def read_run(self, above: int, count: int) -> tuple[StoredRun, int] | None:
        """Return `read`'s messages unparsed; None where they must be picked one by one."""
        if self.last_per_subject is not None:
            return None
        log = self._log
        found = log.read_run(above + 1, max_messages=count, max_bytes=READ_BYTES_MAX, filters=self.filters)
        if found is None:
            return None
        run, next_seq = found
        upto = max(above, next_seq - 1)
        if upto >= log.committed_seq:
            self._know(len(run))
        return run, upto

    def _read_listed(self, listed: LastPerSubject, above: int, count: int) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        size = 0
        while not messages:
            seqs = listed.next(above, count)
            if not seqs:
                break
            for seq in seqs:
                above = seq
                try:
                    message = self._log.get(seq)
                except StoreError:
                    if messages:
                        return messages  # the next read begins with it
                    raise
                if message is None:
                    continue
                messages.append(message)
                size += len(message.payload) + len(message.header)
                if size >= READ_BYTES_MAX:
                    break
        return messages

    # -- pending -----------------------------------------------------------------------------------------------------

    def pending(self, above: int) -> int:
        """Return how many committed messages above `above` are for this consumer. `above` is the position last read to."""
        log = self._log
        committed = log.committed_seq
        listed = self.last_per_subject
        if listed is not None:
            listed.next(above, 0)
            return len(listed) + log.count(max(above, listed.resume) + 1, self.filters)
        self._count_again_after_failures()
        if self._known_upto == committed:
            return self._pending
        if self._known_upto < 0 or self._known_upto > committed:
            self._know(log.count(above + 1, self.filters))
        else:
            self._know(self._pending + log.count(max(above, self._known_upto) + 1, self.filters))
        return self._pending

    def _know(self, pending: int) -> None:
        """Set the present number of pending messages; removals that are reported later are already excluded."""
        self._pending, self._known_upto = pending, self._log.committed_seq
        self._discounted = self._log.untold_removals()

    def _count_again_after_failures(self) -> None:
        """Count anew after a failed commit: messages that it was to remove are there again."""
        if self._failures != self._log.failures:
            self._failures = self._log.failures
            self.gave_back()

    def consumed(self, count: int) -> None:
        """`count` of the pending messages were delivered."""
        self._pending -= count

    def gave_back(self) -> None:
        """Note a change of the position other than by delivery: the number becomes unknown."""
        self._known_upto = -1
        self._discounted.clear()

    def removed(self, seqs: Sequence[int], above: int) -> None:
        """Note messages that left the stream; those above the position were pending if the filters match."""
        if self.last_per_subject is not None:
            self.last_per_subject.remove(seqs)
        self._count_again_after_failures()
        if self._known_upto < 0:
            return
        discounted = self._discounted
        if discounted:
            unread = sum(1 for seq in seqs if above < seq <= self._known_upto and seq not in discounted)
            discounted.difference_update(seqs)
        else:
            unread = sum(1 for seq in seqs if above < seq <= self._known_upto)
        if not unread:
            return
        if self.filters:
            self._known_upto = -1
        else:
            self._pending -= unread


def _parent(filter_: bytes) -> bytes:
    """Return the pattern of all subjects that a beginning of a token may mean."""
    parent = filter_.rpartition(b".")[0]
    return parent + b".>" if parent else b">"
