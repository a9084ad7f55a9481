"""The functions that run over every byte of a payload: compiled where possible, else in plain Python.

As in `eyot_wire.native`, `EYOT_PLAIN=1` in the environment forces the plain twin (`payload_run.py`), which documents the
functions. Tests compare both. COMPILED says which twin this process runs.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_hub.payload_run import JsonScanner, copy_texts, hash_payloads

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_hub._payload_run import JsonScanner, copy_texts, hash_payloads

        COMPILED = True
    except ImportError:
        from eyot_hub.payload_run import JsonScanner, copy_texts, hash_payloads

        COMPILED = False

__all__ = ["COMPILED", "JsonScanner", "copy_texts", "hash_payloads"]
