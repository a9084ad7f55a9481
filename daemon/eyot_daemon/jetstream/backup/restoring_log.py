"""A stream that is coming back: written to the store as it arrives, and no stream before all of it is there.

Its record in the store begins with RESTORING instead of a configuration. One transaction at the end puts the configuration
and the consumers in; a store that is opened with such a record left in it (the power went) forgets what was written so far.
Messages gather in a transaction of some MiB, so that there is not a flush for every few; two may be on their way to the disk.
When they are, `has_room` is false and `on_room` is called later.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eyot_store.errors import StoreError
from eyot_wire.archive.values import ArchivedMessage, GonePart

if TYPE_CHECKING:
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn

RESTORING = b"restoring "
#: Messages staged in one turn.
SLICE_MESSAGES = 1024
SLICE_BYTES = 512 << 10
#: Bytes of one transaction.
TXN_BYTES = 4 << 20
UNDER_WAY_MAX = 2
#: Deletions looked at in one turn.
GONE_SLICE = 1024


def is_restoring(config: bytes) -> bool:
    """Whether a stream's record in the store is of one that did not come back whole."""
    return config.startswith(RESTORING)


class RestoringLog:
    """`allow(size, messages)` is asked before so many bytes are stored; it raises when there is no room for them."""

    def __init__(
        self,
        store: "Store",
        account: str,
        name: str,
        created_ns: int,
        *,
        memory: bool,
        allow: Callable[[int, int], None],
    ) -> None:
        self.store = store
        self.failure: StoreError | None = None
        self.on_room: Callable[[], None] = lambda: None
        self._allow = allow
        self._under_way = 0
        self._open: Txn | None = None  # gathers messages
        txn = store.begin()
        self.log: Log = store.create_stream(txn, account, name, RESTORING + name.encode(), created_ns, memory=memory)
        self.log.subjects()  # counted from the first message on, instead of all at the end
        self._submit(txn)

    @property
    def has_room(self) -> bool:
        return self._under_way < UNDER_WAY_MAX

    @property
    def is_settled(self) -> bool:
        """Everything that was stored is on flash, or has failed."""
        return not self._under_way and self._open is None

    def flush(self) -> None:
        """Hand in what has gathered."""
        if self._open is not None:
            txn, self._open = self._open, None
            self._submit(txn)

    def store_slice(self, messages: list[ArchivedMessage], at: int) -> int:
        """Store some of `messages` from `at` on; returns where to go on. Raises what `allow` raises."""
        log = self.log
        end = at
        size = 0
        for each in messages[at : at + SLICE_MESSAGES]:
            size += log.message_bytes(each.subject, each.header, each.payload)
            end += 1
            if size >= SLICE_BYTES:
                break
        self._allow(size, end - at)
        txn = self._open = self._open or self.store.begin()
        for seq, ts_ns, subject, header, payload in messages[at:end]:
            log.append(txn, subject, header, payload, ts_ns, seq)
        if txn.bytes >= TXN_BYTES:
            self.flush()
        return end

    def remove_slice(self, seqs: Iterator[int]) -> bool:
        """Remove some of what `seqs` gives, all of it on flash; False when it gives no more."""
        txn = self.store.begin()
        more = False
        try:
            for count, seq in enumerate(seqs, 1):
                self.log.remove(txn, seq)
                if count == GONE_SLICE:
                    more = True
                    break
        except BaseException:
            self.store.abort(txn)
            raise
        if txn.parts:
            self._submit(txn)
        else:
            self.store.abort(txn)
        return more

    def gone(self, part: GonePart) -> Iterator[int]:
        """The sequences of a part; those of its ranges and sets as far as they hold messages, however large they are."""
        yield from part.seqs
        for first, last in part.ranges:
            yield from self._sequences_in(first, last)
        for first, last, dead in part.among:
            for base, bits in dead.nodes(first, last):
                for seq in self._sequences_in(max(base, first), min(base + bits.bit_length() - 1, last)):
                    if bits >> (seq - base) & 1:
                        yield seq

    def _sequences_in(self, first: int, last: int) -> Iterator[int]:
        """Sequences of the messages in a range."""
        seq = first
        while seq <= min(last, self.log.committed_seq):
            read = self.log.read(seq, max_messages=GONE_SLICE, max_bytes=SLICE_BYTES, up_to=last)
            yield from [message.seq for message in read.messages]
            if read.next_seq <= seq:
                return
            seq = read.next_seq

    def go_to(self, txn: "Txn", last_seq: int, last_ts_ns: int) -> None:
        """Make `last_seq` the last sequence, stored at `last_ts_ns`, though its message is gone."""
        if last_seq <= self.log.state.last_seq:
            return
        if not last_ts_ns:
            self.log.skip_to(txn, last_seq)
            return
        # Only a message brings its time with it; it goes again in the same transaction.
        self.log.append(txn, b"gone", b"", b"", last_ts_ns, last_seq)
        self.log.remove(txn, last_seq)

    def discard(self) -> None:
        """Forget everything."""
        if self._open is not None:
            self.store.abort(self._open)
            self._open = None
        if self.log.void:
            return
        txn = self.store.begin()
        self.log.delete(txn)
        self.store.submit(txn)

    def _submit(self, txn: "Txn") -> None:
        self._under_way += 1
        self.store.submit(txn, self._settle)

    def _settle(self, failure: StoreError | None) -> None:
        self._under_way -= 1
        self.failure = self.failure or failure
        self.on_room()
