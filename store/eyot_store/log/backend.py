"""What a log needs of the store of its committed records: LMDB with the journal in front of it, or memory."""

from __future__ import annotations

from typing import Protocol

from eyot_store.reader import RecordReader
from eyot_store.txn import LogPart


class Backend(Protocol):
    """See `stream.py` and `memory.py`."""

    @property
    def records(self) -> RecordReader:
        """The committed records."""

    @property
    def durable(self) -> bool:
        """A transaction that touches the log waits for the disk."""

    @property
    def header_bytes(self) -> int:
        """Return what a header adds to a message's size beyond its own bytes."""

    def message_bytes(self, subject: bytes, header: bytes, payload: bytes) -> int:
        """Return what a message adds to `state.bytes`, as nats-server counts for this kind of storage."""

    def committed(self, part: LogPart) -> None:
        """Make the operations of the committed `part` visible in `records`."""
