"""The store floor: streams on flash, one committing writer. Start reading at `store.py`."""

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
