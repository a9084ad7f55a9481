"""A log as readers see it: committed messages, without those that a staged removal covers."""

from __future__ import annotations

from collections.abc import Iterator, KeysView

from eyot_store.errors import StoreError
from eyot_store.log.damaged_messages import DamagedMessages
from eyot_store.reader import RecordReader
from eyot_store.records.record import CRC_SIZE, Counters, StoredMessage, decode_body, pack_u64
from eyot_store.state import LogState
from eyot_store.txn import HiddenRange, LogPart, Op

KEYS_MAX = 1024
"""Keys or record heads looked at in one read transaction."""


class LogView:
    """State that a log's components share: the committed records, and the staged changes on top of them.

    Only the stager, the removals and the application of results write here.
    """

    __slots__ = (
        "committed_seq",
        "damaged",
        "failures",
        "floor",
        "hidden",
        "hidden_ranges",
        "parts",
        "records",
        "state",
        "stream",
        "taken",
        "untold",
    )

    def __init__(self, stream: str, records: RecordReader, counters: Counters) -> None:
        #: `account/name`, for errors.
        self.stream = stream
        self.records = records
        self.damaged = DamagedMessages()
        #: The live counters, staged operations included; `state.last_seq >= committed_seq`.
        self.state = LogState(self, counters.messages, counters.bytes, counters.last_seq, counters.last_ts_ns)
        #: Highest committed sequence: every message up to it is on disk or was removed; never decreases.
        self.committed_seq = counters.last_seq
        #: Everything below was purged; the disk may still hold some of it. It never falls.
        self.floor = counters.floor
        #: Parts of transactions without a result yet, in the order in which they began.
        self.parts: list[LogPart] = []
        #: Number of committed transactions that removed what somebody may have wanted.
        self.taken = 0
        #: Number of transactions whose changes were taken back: numbers that were counted meanwhile are wrong.
        self.failures = 0
        #: Committed parts whose removals nobody was told of yet.
        self.untold: list[LogPart] = []
        #: Sequence -> the pending part that removes the message; a range purged later may cover it.
        self.hidden: dict[int, LogPart] = {}
        #: Ranges of committed messages that unsettled purges remove.
        self.hidden_ranges: list[HiddenRange] = []

    def get(self, seq: int) -> StoredMessage | None:
        """Return the committed message at `seq`. StoreError("corrupt") names stream and sequence."""
        if not self.floor <= seq <= self.committed_seq or not seq or self.is_hidden(seq):
            return None
        try:
            return self.records.get(seq)
        except StoreError as error:
            raise self.named(error) from None

    def get_readable(self, seq: int) -> StoredMessage | None:
        """Return the committed message at `seq`; None also for a corrupt record."""
        try:
            return self.get(seq)
        except StoreError as error:
            if not error.is_record_at(seq):
                raise
            return None

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        """(name, config, state) of each committed consumer, by name."""
        try:
            return self.records.consumers()
        except StoreError as error:
            raise self.named(error) from None

    def positions(self) -> dict[bytes, bytes]:
        """Return the committed positions of the stream's mirror and sources."""
        try:
            return self.records.positions()
        except StoreError as error:
            raise self.named(error) from None

    def staged_removals(self) -> KeysView[int]:
        """Return the single messages whose removal is staged and not yet on disk: excluded from every read and count."""
        return self.hidden.keys()

    def untold_removals(self) -> set[int]:
        """Return the single messages that no read and no count has, and of whose removal nobody was told yet."""
        return set(self.hidden).union(*[part.removed for part in self.untold])

    def staged_live(self) -> Iterator[tuple[int, bytes]]:
        """(sequence, subject) of messages that are staged and not yet on disk, ascending."""
        return ((seq, subject) for seq, subject, _ in self.staged_messages())

    # -- FirstFinder (for the state) -------------------------------------------------------------------------------

    def find_first(self, from_seq: int) -> int:
        seq = self.next_live(from_seq)
        if seq:
            return seq
        return next((seq for seq, _, _ in self.staged_messages(from_seq)), 0)

    def time_of(self, seq: int) -> int:
        """Return the stored time of the live message at `seq`; of a corrupt one a time that it was not stored after.

        That is the time of the next message that can be read, or of the last one.
        """
        try:
            message = self.readable(seq)
        except StoreError:
            return 0  # the stream goes offline
        return message.ts_ns if message else self.state.last_ts_ns

    # -- for other components of the log -------------------------------------------------------------------------------

    def readable(self, from_seq: int) -> StoredMessage | None:
        """Return the first live message at or after `from_seq` that can be read, staged messages included; passes over corrupt records."""
        seq = from_seq
        while seq := self.find_first(seq):
            try:
                return self.get(seq) or self._staged(seq)
            except StoreError as error:
                if not error.is_record_at(seq):
                    raise
                seq += 1
        return None

    def named(self, error: StoreError) -> StoreError:
        """Return the error with the stream's name; note the message that it says to be damaged."""
        stream = self.stream
        if error.reason == "corrupt" and error.seq:
            self.damaged.met((error.seq,))
        where = f"stream {stream} sequence {error.seq}" if error.seq else f"stream {stream}"
        return StoreError(error.reason, f"{where}: {error.message}", stream=stream, seq=error.seq, size=error.size)

    def is_hidden(self, seq: int) -> bool:
        return seq in self.hidden or self.range_over(seq) is not None

    def range_over(self, seq: int) -> HiddenRange | None:
        """Return the first unsettled purge of a range that `seq` is in."""
        return next((hidden for hidden in self.hidden_ranges if seq <= hidden.last), None)

    def is_dense(self) -> bool:
        """Every sequence from the first to the last one holds a message. What is staged for removal is below, or holds none."""
        return not self.state.num_deleted

    def next_live(self, seq: int) -> int:
        """Lowest committed sequence >= `seq` that no staged removal hides; 0 = none."""
        seq = max(seq, self.floor)
        while True:
            for hidden in self.hidden_ranges:
                seq = max(seq, hidden.last + 1)
            while seq in self.hidden:
                seq += 1
            seq = self.records.next_seq(seq) if seq <= self.committed_seq else 0
            if not seq or seq > self.committed_seq:
                return 0
            if not self.is_hidden(seq):
                return seq
            seq += 1

    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        """Do as `RecordReader.heads`; the damaged messages are noted."""
        heads, corrupt, next_seq = self.records.heads(first, last, limit)
        if corrupt:
            self.damaged.met(seq for seq in corrupt if not self.is_hidden(seq))
        return heads, corrupt, next_seq

    def heads_between(self, low: int, high: int) -> list[tuple[int, bytes]]:
        """Return (sequence, subject) of the committed records in [low, high] that can be read."""
        found: list[tuple[int, bytes]] = []
        while low <= high:
            heads, _, low = self.heads(low, high, KEYS_MAX)
            found += heads
        return found

    def live_seqs(self, low: int, high: int) -> list[int]:
        """Return the committed live sequences in [low, high]."""
        return [seq for seq in self.records.seqs(low, high, high + 1 - low) if not self.is_hidden(seq)]

    def live_seqs_from(self, from_seq: int) -> Iterator[int]:
        """Every live sequence >= `from_seq`, staged messages included, by their keys alone."""
        seq = max(from_seq, self.floor)
        while seq <= self.committed_seq:
            chunk = self.records.seqs(seq, self.committed_seq, KEYS_MAX)
            yield from (seq for seq in chunk if not self.is_hidden(seq))
            if len(chunk) < KEYS_MAX:
                break
            seq = chunk[-1] + 1
        yield from (seq for seq, _, _ in list(self.staged_messages(from_seq)))

    def staged_messages(self, from_seq: int = 0) -> Iterator[tuple[int, bytes, int]]:
        """(seq, subject, bytes counted) of staged messages from `from_seq` on that nothing staged removes again, ascending."""
        for part in self.parts:
            yield from (each for each in part.added.since(from_seq) if each[0] not in self.hidden)

    def _staged(self, seq: int) -> StoredMessage | None:
        """Return the staged message at `seq`."""
        key = pack_u64(seq)
        for part in self.parts:
            if seq in part.added:
                for op, data in part.ops:
                    items = data.items if op is Op.APPEND and data is not None else ()
                    record = next((record for at, record in items if at == key), None)
                    if record is not None:
                        message = decode_body(record[:-CRC_SIZE])
                        message.seq = seq
                        return message
        return None
