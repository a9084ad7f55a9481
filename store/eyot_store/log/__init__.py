"""A stream's log in the event loop's thread: staging, reading, removing, on disk or in memory.

Entry point: `log.Log`, which `store.Store` opens; `memory.py` is the log of a stream in memory.
Imports `records`, `subjects` and the values of `eyot_store` (`txn.py`, `state.py`); of `journal` and `lmdb` only their readers.
"""
