"""A stream's log as the loop's thread sees it, composed of its components.

    view      committed records, and staged ones on top of them       view.py
    index     what the log knows by subject                           subjects.py
    reads     reads of committed messages in order, and counts        reads.py
    stager    stages messages, consumers and positions                stager.py
    removals  stages removals                                         removals.py
    backend   the store of the committed records                      stream.py, memory.py

Each component uses those above it. `Log` adds the log's name, its configuration, and its end.

A staged operation changes the counters in `state` (and those per subject) at once. When its transaction succeeds,
`committed_seq` moves up. When it fails, the operation is rolled back. Operations that were staged on top of a failed
one fail, too (see `txn.FailureScope`): no answer may depend on something that never happened.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence

from eyot_store.errors import StoreError
from eyot_store.log.backend import Backend
from eyot_store.log.damaged_messages import DamagedMessages
from eyot_store.log.directory import Directory
from eyot_store.log.reads import Counting, LogReads, NearSearch, Selecting
from eyot_store.log.removals import FromEnd, LogRemovals
from eyot_store.log.removals import Unwanted as Unwanted
from eyot_store.log.stager import JUMP_MAX as JUMP_MAX
from eyot_store.log.stager import LogStager
from eyot_store.log.subjects import LastsBelow, LookingFor, SubjectIndex, SubjectSearch
from eyot_store.log.view import LogView
from eyot_store.reader import Reading
from eyot_store.record_run import Weighed
from eyot_store.records.record import Counters, ReadResult, StoredMessage
from eyot_store.state import LogState
from eyot_store.subject_table import Matched
from eyot_store.subjects.subjects import Subjects
from eyot_store.txn import LogPart, Op, Txn
from eyot_wire.native import StoredRun


class Log:
    """One stream's messages, consumers and positions. All methods belong to the loop's thread.

    The components document the methods that only delegate.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        account: str,
        name: str,
        stream_id: int,
        config: bytes,
        created_ns: int,
        directory: Directory[Log],
        counters: Counters | None = None,
    ) -> None:
        self.account = account
        self.name = name
        self.id = stream_id
        #: The live configuration, staged changes included.
        self.config = config
        self.created_ns = created_ns
        #: The creation failed: the stream does not exist.
        self.void = False
        #: A transaction that touches this log waits for the disk.
        self.durable = backend.durable
        self.backend = backend
        self.view = LogView(f"{account}/{name}", backend.records, counters or Counters())
        self.index = SubjectIndex(self.view)
        self.reads = LogReads(self.view, self.index)
        self.stager = LogStager(self, stream_id, self.view, self.index, backend)
        self.removals = LogRemovals(self.view, self.index, self.reads, self.stager, backend)
        self.state: LogState = self.view.state
        self.message_bytes = backend.message_bytes
        # On the way of every publish, so not forwarded by a call of their own.
        self.append = self.stager.append
        self.append_all = self.stager.append_all
        self._directory = directory
        self._committed_config = config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.account}/{self.name} #{self.id}>"

    @property
    def committed_seq(self) -> int:
        """Highest committed sequence: no higher message is on disk; every message up to it is, or was removed."""
        return self.view.committed_seq

    @property
    def taking_upto(self) -> int:
        """The last sequence whose removal is under way, for another reason than that nobody needs the message; 0: none."""
        return max((part.takes_upto for part in self.view.parts), default=0)

    @property
    def taken(self) -> int:
        """Number of transactions so far that made such removals."""
        return self.view.taken

    # -- the log as a whole ------------------------------------------------------------------------------------------

    def set_config(self, txn: Txn, config: bytes) -> None:
        """Stage another configuration; `config` is the new one at once."""
        part = self.join(txn)
        part.push(Op.CONFIG, config)
        part.config = self.config = config
        txn.bytes += len(config)

    def delete(self, txn: Txn) -> None:
        """Stage the end of this log with all it holds. The name is free for a new log at once."""
        part = self.join(txn)
        part.push(Op.DELETE, None)
        part.deletes = True
        self._directory.deletion_staged(self)

    def waits_for_disk(self, part: LogPart) -> bool:
        """Return whether an earlier transaction on this log waits for the disk, so that later ones must queue behind it."""
        return any(other.txn.queued for other in self.view.parts if other is not part)

    def settle(self, part: LogPart, error: StoreError | None) -> None:
        """Apply the result of `part`: committed or failed. The store calls this in submit order."""
        if error is None:
            self.backend.committed(part)
            self.stager.committed(part)
            if part.config is not None:
                self._committed_config = part.config
            if part.deletes:
                self._directory.deletion_committed(self)
            return
        self.stager.take_back(part)
        if part.deletes:
            self._directory.deletion_failed(self)
        if part.creates:
            self._directory.creation_failed(self)
        if part.config is not None:
            configs = (other.config for other in reversed(self.view.parts) if other.config is not None)
            self.config = next(configs, self._committed_config)

    def told(self, part: LogPart) -> None:
        """Note that whoever waited for `part` has been called."""
        if part in self.view.untold:
            self.view.untold.remove(part)

    # -- view --------------------------------------------------------------------------------------------------------

    def get(self, seq: int) -> StoredMessage | None:
        return self.view.get(seq)

    def get_readable(self, seq: int) -> StoredMessage | None:
        return self.view.get_readable(seq)

    def readable(self, from_seq: int) -> StoredMessage | None:
        return self.view.readable(from_seq)

    def holds(self, seq: int) -> bool:
        return self.view.next_live(seq) == seq

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        return self.view.consumers()

    def positions(self) -> dict[bytes, bytes]:
        return self.view.positions()

    def staged_removals(self) -> KeysView[int]:
        return self.view.staged_removals()

    def untold_removals(self) -> set[int]:
        return self.view.untold_removals()

    @property
    def failures(self) -> int:
        """Number of transactions on this log that failed or were rolled back."""
        return self.view.failures

    def staged_live(self) -> Iterator[tuple[int, bytes]]:
        return self.view.staged_live()

    @property
    def damaged(self) -> DamagedMessages:
        return self.view.damaged

    def named(self, error: StoreError) -> StoreError:
        return self.view.named(error)

    # -- index -------------------------------------------------------------------------------------------------------

    def subjects(self) -> Subjects:
        return self.index.subjects()

    @property
    def subjects_known(self) -> bool:
        return self.index.subjects_known

    def subjects_some(self) -> bool:
        return self.index.subjects_some()

    def track(self) -> Subjects:
        return self.index.track()

    def track_some(self) -> bool:
        return self.index.track_some()

    def oldest_soon(self, subject: bytes) -> int | None:
        return self.index.oldest_soon(subject)

    def subject_totals(self, subject_filter: bytes = b">") -> Iterable[tuple[bytes, int]]:
        return self.index.subject_totals(subject_filter)

    def matched(self, subject_filter: bytes) -> Matched:
        return self.index.matched(subject_filter)

    def subject_total(self, subject_filter: bytes) -> int:
        return self.index.subject_total(subject_filter)

    def subject_count(self, subject: bytes) -> int:
        return self.index.subject_count(subject)

    def first_seq_for(self, subject: bytes) -> int:
        return self.index.first_seq_for(subject)

    def last_seq_for(self, subject: bytes) -> int:
        return self.index.last_seq_for(subject)

    def newest_seq(self, subject_filter: bytes) -> int:
        return self.index.newest_seq(subject_filter)

    def records_to_search(self, subjects: Iterable[bytes]) -> int:
        return self.index.records_to_search(subjects)

    def search_for(self, subjects: Iterable[bytes]) -> SubjectSearch:
        return self.index.search_for(subjects)

    def know(self, found: Mapping[bytes, array[int]], below: int) -> None:
        self.index.know(found, below)

    def last_for(self, subject_filter: bytes) -> StoredMessage | None:
        return self.index.last_for(subject_filter)

    def lasts_of_any(self, filters: Sequence[bytes], above: int, upto: int) -> array[int]:
        return self.index.lasts_of_any(filters, above, upto)

    def looking_for(self, filters: Sequence[bytes], most: int) -> LookingFor:
        return self.index.looking_for(filters, most)

    def last_committed_for(self, subject: bytes) -> int:
        return self.index.last_committed_for(subject)

    def lasts_below(self, subjects: Iterable[bytes], upto: int, above: int = 0) -> LastsBelow:
        return self.index.lasts_below(subjects, upto, above)

    def in_one_go(self, most: int) -> int:
        return self.index.in_one_go(most)

    def finds_last_soon(self, subject: bytes) -> bool:
        return self.index.finds_last_soon(subject)

    # -- reads -------------------------------------------------------------------------------------------------------

    def read(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> ReadResult:
        return self.reads.read(from_seq, max_messages=max_messages, max_bytes=max_bytes, filters=filters, up_to=up_to)

    def read_on(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> ReadResult:
        return self.reads.read_on(
            from_seq, max_messages=max_messages, max_bytes=max_bytes, filters=filters, up_to=up_to
        )

    def read_run(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> tuple[StoredRun, int] | None:
        return self.reads.read_run(
            from_seq, max_messages=max_messages, max_bytes=max_bytes, filters=filters, up_to=up_to
        )

    def reading(
        self, run: StoredRun, from_seq: int, *, up_to: int, max_bytes: int, filters: tuple[bytes, ...] = ()
    ) -> Reading:
        return self.reads.reading(run, from_seq, up_to=up_to, max_bytes=max_bytes, filters=filters)

    def next_for(self, subject_filter: bytes, from_seq: int) -> StoredMessage | None:
        return self.reads.next_for(subject_filter, from_seq)

    def looking_near(self, subject_filter: bytes, from_seq: int) -> NearSearch:
        return self.reads.looking_near(subject_filter, from_seq)

    def counts_soon(self, from_seq: int, filters: tuple[bytes, ...]) -> bool:
        return self.reads.counts_soon(from_seq, filters)

    def count(self, from_seq: int, filters: tuple[bytes, ...] = ()) -> int:
        return self.reads.count(from_seq, filters)

    def selecting(self, filters: tuple[bytes, ...]) -> Selecting | None:
        return self.reads.selecting(filters)

    def counting(self, from_seq: int, filters: tuple[bytes, ...] = ()) -> Counting | None:
        return self.reads.counting(from_seq, filters)

    def seq_at_time(self, ts_ns: int, *, from_seq: int = 1, up_to: int | None = None) -> int:
        return self.reads.seq_at_time(ts_ns, from_seq=from_seq, up_to=up_to)

    def deleted(self, limit: int = 1 << 20) -> list[int]:
        return self.reads.deleted(limit)

    def deleted_ranges(self) -> Iterator[tuple[int, int]]:
        return self.reads.deleted_ranges()

    # -- stager ------------------------------------------------------------------------------------------------------

    def skip_to(self, txn: Txn, seq: int) -> None:
        self.stager.skip_to(txn, seq)

    def depend(self, txn: Txn) -> None:
        self.stager.depend(txn)

    def put_consumer(self, txn: Txn, name: str, config: bytes, state: bytes) -> None:
        self.stager.put_consumer(txn, name, config, state)

    def put_consumer_state(self, txn: Txn, name: str, state: bytes) -> None:
        self.stager.put_consumer_state(txn, name, state)

    def delete_consumer(self, txn: Txn, name: str) -> None:
        self.stager.delete_consumer(txn, name)

    def put_position(self, txn: Txn, key: bytes, value: bytes) -> None:
        self.stager.put_position(txn, key, value)

    def delete_position(self, txn: Txn, key: bytes) -> None:
        self.stager.delete_position(txn, key)

    def join(self, txn: Txn) -> LogPart:
        return self.stager.join(txn)

    # -- removals ----------------------------------------------------------------------------------------------------

    def remove(self, txn: Txn, seq: int, why: str = "deleted") -> bool:
        return self.removals.remove(txn, seq, why)

    def remove_first(self, txn: Txn, at_most: int, why: str, excess_bytes: int = 0) -> list[int]:
        return self.removals.remove_first(txn, at_most, why, excess_bytes)

    def count_bytes(self, seqs: Sequence[int]) -> list[Weighed]:
        return self.removals.count_bytes(seqs)

    def remove_all(self, txn: Txn, found: list[Weighed], why: str = "deleted") -> None:
        self.removals.remove_all(txn, found, why)

    def purge(
        self, txn: Txn, below_seq: int = 0, subject_filter: bytes = b"", keep: int = 0, why: str = "purge"
    ) -> int:
        return self.removals.purge(txn, below_seq, subject_filter, keep, why)

    def purge_some(self, txn: Txn, first: int, last: int, subject_filter: bytes, at_most: int) -> tuple[int, int]:
        return self.removals.purge_some(txn, first, last, subject_filter, at_most)

    def sweep(
        self, txn: Txn, first: int, last: int, unwanted: Unwanted, at_most: int, why: str = "max_msgs_per_subject"
    ) -> tuple[list[int], int]:
        return self.removals.sweep(txn, first, last, unwanted, at_most, why)

    def from_end(self, keep: int) -> FromEnd:
        return self.removals.from_end(keep)
