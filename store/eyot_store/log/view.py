"""A log as readers see it: committed messages, without those that a staged removal has taken away already."""

from __future__ import annotations

from collections.abc import Iterator, KeysView

from eyot_store.errors import StoreError
from eyot_store.reader import RecordReader
from eyot_store.records.record import CRC_SIZE, StoredMessage, decode_body, pack_u64
from eyot_store.state import LogState
from eyot_store.txn import HiddenRange, LogPart, Op

KEYS_MAX = 1024
"""Keys or record heads looked at in one read transaction."""


class LogView:
    """What the reading and the staging half of a log share."""

    account: str
    name: str
    committed_seq: int
    """No message above this sequence is on disk; below it everything is, or is gone."""
    state: LogState
    _reader: RecordReader
    _parts: list[LogPart]
    _hidden: dict[int, LogPart]
    _hidden_ranges: list[HiddenRange]
    _floor: int

    def get(self, seq: int) -> StoredMessage | None:
        """The committed message at ``seq``. StoreError("corrupt") names stream and sequence."""
        if not self._floor <= seq <= self.committed_seq or not seq or self._is_hidden(seq):
            return None
        try:
            return self._reader.get(seq)
        except StoreError as error:
            raise self.named(error) from None

    def get_many(self, seqs: list[int], max_bytes: int) -> list[StoredMessage]:
        """Live committed messages at ``seqs`` (ascending), up to ``max_bytes`` of them and up to the first that is damaged; if that is
        the first of all, StoreError("corrupt")."""
        try:
            return self._reader.get_many(seqs, max_bytes).messages
        except StoreError as error:
            raise self.named(error) from None

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        """(name, config, state) of each committed consumer, by name."""
        try:
            return self._reader.consumers()
        except StoreError as error:
            raise self.named(error) from None

    def positions(self) -> dict[bytes, bytes]:
        """Committed positions of the stream's mirror and sources."""
        try:
            return self._reader.positions()
        except StoreError as error:
            raise self.named(error) from None

    def staged_removals(self) -> KeysView[int]:
        """Single messages whose removal is staged and not yet on disk: already out of every read and count."""
        return self._hidden.keys()

    def staged_live(self) -> Iterator[tuple[int, bytes]]:
        """(sequence, subject) of messages that are staged and not yet on disk, ascending."""
        return ((seq, subject) for seq, subject, _ in self._staged_live())

    # -- FirstFinder (for the state) -------------------------------------------------------------------------------

    def find_first(self, from_seq: int) -> int:
        seq = self._next_live(from_seq)
        if seq:
            return seq
        return next((seq for seq, _, _ in self._staged_live() if seq >= from_seq), 0)

    def time_of(self, seq: int) -> int:
        try:
            message = self.get(seq) or self._staged(seq)
        except StoreError:
            return 0  # whoever reads the message is told
        return message.ts_ns if message else 0

    # -- inside ----------------------------------------------------------------------------------------------------

    def named(self, error: StoreError) -> StoreError:
        """The same error, naming the stream."""
        stream = f"{self.account}/{self.name}"
        where = f"stream {stream} sequence {error.seq}" if error.seq else f"stream {stream}"
        return StoreError(error.reason, f"{where}: {error.message}", stream=stream, seq=error.seq, size=error.size)

    def _is_hidden(self, seq: int) -> bool:
        if seq in self._hidden:
            return True
        return any(hidden.first <= seq <= hidden.last for hidden in self._hidden_ranges)

    def _is_dense(self) -> bool:
        """Every sequence from the first to the last committed one holds a message, and nothing is staged for removal."""
        return not self._hidden and not self._hidden_ranges and not self.state.num_deleted

    def _next_live(self, seq: int) -> int:
        """Lowest committed sequence >= ``seq`` that no staged removal hides; 0 = none."""
        seq = max(seq, self._floor)
        while True:
            for hidden in self._hidden_ranges:
                if hidden.first <= seq <= hidden.last:
                    seq = hidden.last + 1
            while seq in self._hidden:
                seq += 1
            seq = self._reader.next_seq(seq) if seq <= self.committed_seq else 0
            if not seq or seq > self.committed_seq:
                return 0
            if not self._is_hidden(seq):
                return seq
            seq += 1

    def _live_seqs(self, from_seq: int) -> Iterator[int]:
        """Every live sequence >= ``from_seq``, staged messages included, by their keys alone."""
        seq = max(from_seq, self._floor)
        while seq <= self.committed_seq:
            chunk = self._reader.seqs(seq, self.committed_seq, KEYS_MAX)
            yield from (seq for seq in chunk if not self._is_hidden(seq))
            if len(chunk) < KEYS_MAX:
                break
            seq = chunk[-1] + 1
        yield from (seq for seq, _, _ in list(self._staged_live()) if seq >= from_seq)

    def _staged_live(self) -> Iterator[tuple[int, bytes, int]]:
        """(seq, subject, bytes counted) of staged messages that nothing staged removes again, ascending."""
        for part in self._parts:
            for seq, (subject, size) in part.added.items():
                if seq not in self._hidden:
                    yield seq, subject, size

    def _staged(self, seq: int) -> StoredMessage | None:
        """The staged message at ``seq``."""
        key = pack_u64(seq)
        for part in self._parts:
            if seq in part.added:
                for op, data in part.ops:
                    items = data.items if op is Op.APPEND and data is not None else ()
                    record = next((record for at, record in items if at == key), None)
                    if record is not None:
                        message = decode_body(record[:-CRC_SIZE])
                        message.seq = seq
                        return message
        return None
