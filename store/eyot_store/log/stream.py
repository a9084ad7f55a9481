"""A stream on disk."""

from __future__ import annotations

from eyot_store.environment import Environment
from eyot_store.errors import StoreError
from eyot_store.journal.overlay import OverlayReader, Overlays
from eyot_store.lmdb.reader import LmdbReader
from eyot_store.log.directory import Directory
from eyot_store.log.log import Log
from eyot_store.reader import RecordReader
from eyot_store.records.record import Counters
from eyot_store.state import LogState
from eyot_store.txn import LogPart


class StreamLog(Log):
    """A log whose committed records are in LMDB, the newest perhaps in the journal only (see ``Log`` for what it can do)."""

    def __init__(
        self,
        environment: Environment,
        *,
        account: str,
        name: str,
        stream_id: int,
        config: bytes,
        created_ns: int,
        directory: Directory,
        counters: Counters | None = None,
        overlays: Overlays | None = None,
    ) -> None:
        reader: RecordReader = LmdbReader(environment, stream_id)
        self._overlay = None if overlays is None else OverlayReader(reader, overlays)
        super().__init__(
            account=account,
            name=name,
            stream_id=stream_id,
            config=config,
            created_ns=created_ns,
            reader=self._overlay or reader,
            directory=directory,
        )
        if counters is not None:
            self.state = LogState(self, counters.messages, counters.bytes, counters.last_seq, counters.last_ts_ns)
            self.committed_seq = counters.last_seq
            self._committed_ts_ns = counters.last_ts_ns
            self._floor = counters.floor

    def settle(self, part: LogPart, error: StoreError | None) -> None:
        if error is None and self._overlay is not None:
            if part.txn.frame:
                self._overlay.absorb(part.ops, part.txn.frame)
            else:
                # LMDB has it, and all that was in the overlay: else the overlay would hide it.
                self._overlay.passed(part.txn.passed)
        super().settle(part, error)
