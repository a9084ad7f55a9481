"""What the store does for every record, in C where it could be compiled, in plain Python where not.

As with `eyot_wire.hot`, `EYOT_PLAIN=1` in the environment forces the plain twin (`record_run.py`), which says what the functions
do; tests hold both against each other. COMPILED says which twin this process runs.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_store.record_run import encode_run, note_records, plain_size, pub_acks

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_store._record_run import encode_run, note_records, plain_size, pub_acks

        COMPILED = True
    except ImportError:
        from eyot_store.record_run import encode_run, note_records, plain_size, pub_acks

        COMPILED = False

__all__ = ["COMPILED", "encode_run", "note_records", "plain_size", "pub_acks"]
