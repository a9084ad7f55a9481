"""A stream on disk: its committed records are in LMDB, the newest perhaps in the journal only."""

from __future__ import annotations

from eyot_store.environment import Environment
from eyot_store.journal.overlay import OverlayReader, Overlays
from eyot_store.lmdb.reader import LmdbReader
from eyot_store.reader import RecordReader
from eyot_store.records.record import file_message_bytes
from eyot_store.txn import LogPart


class DiskBackend:
    """A `Backend` on LMDB. `overlays`: what the journal holds and LMDB lacks; None without a journal."""

    durable = True
    header_bytes = 4
    message_bytes = staticmethod(file_message_bytes)

    def __init__(self, environment: Environment, stream_id: int, overlays: Overlays | None = None) -> None:
        reader = LmdbReader(environment, stream_id)
        self._overlay = None if overlays is None else OverlayReader(reader, overlays)
        self.records: RecordReader = self._overlay or reader

    def committed(self, part: LogPart) -> None:
        if self._overlay is None:
            return
        if part.txn.frame:
            self._overlay.absorb(part.ops, part.txn.frame)
        else:
            # LMDB has it, and all that was in the overlay: else the overlay would hide it.
            self._overlay.passed(part.txn.passed)
