"""The store: streams on flash, one committing writer.

Entry point: `store.Store`, which opens a directory; each stream is a `log.log.Log`, its changes are transactions (`txn.Txn`).
Imports `eyot_wire` only.
"""

from eyot_store.errors import StoreError
from eyot_store.log.log import Log
from eyot_store.options import StoreOptions
from eyot_store.records.record import ReadResult, StoredMessage
from eyot_store.state import LogState
from eyot_store.store import Store
from eyot_store.txn import Txn

__all__ = [
    "Log",
    "LogState",
    "ReadResult",
    "Store",
    "StoreError",
    "StoreOptions",
    "StoredMessage",
    "Txn",
]
