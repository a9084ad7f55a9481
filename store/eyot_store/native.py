"""The store's functions that run once per record: compiled where possible, else in plain Python.

As in `eyot_wire.native`, `EYOT_PLAIN=1` in the environment forces the plain twins (`page_check.py`, `record_run.py`,
`subject_change.py`, `subject_table.py`), which document the functions. Tests compare both. COMPILED says which twin
this process runs.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_store.frame_writer import FrameWriter
    from eyot_store.page_check import (
        check_page,
        child_at,
        data_at,
        is_branch,
        key_at,
        mark_children,
        next_unknown,
        next_unsound_run,
        nodes_of,
        runs_of,
        search,
        way_is_known,
    )
    from eyot_store.record_run import checksum, count_bytes, encode_run, pub_acks, scan_batch
    from eyot_store.subject_change import Change
    from eyot_store.subject_table import SubjectTable

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_store._frame_writer import FrameWriter
        from eyot_store._page_check import (
            check_page,
            child_at,
            data_at,
            is_branch,
            key_at,
            mark_children,
            next_unknown,
            next_unsound_run,
            nodes_of,
            runs_of,
            search,
            way_is_known,
        )
        from eyot_store._record_run import checksum, count_bytes, encode_run, pub_acks, scan_batch
        from eyot_store._subject_change import Change
        from eyot_store._subject_table import SubjectTable

        COMPILED = True
    except ImportError:
        from eyot_store.frame_writer import FrameWriter
        from eyot_store.page_check import (
            check_page,
            child_at,
            data_at,
            is_branch,
            key_at,
            mark_children,
            next_unknown,
            next_unsound_run,
            nodes_of,
            runs_of,
            search,
            way_is_known,
        )
        from eyot_store.record_run import checksum, count_bytes, encode_run, pub_acks, scan_batch
        from eyot_store.subject_change import Change
        from eyot_store.subject_table import SubjectTable

        COMPILED = False

__all__ = [
    "COMPILED",
    "Change",
    "FrameWriter",
    "SubjectTable",
    "check_page",
    "checksum",
    "child_at",
    "count_bytes",
    "data_at",
    "encode_run",
    "is_branch",
    "key_at",
    "mark_children",
    "next_unknown",
    "next_unsound_run",
    "nodes_of",
    "pub_acks",
    "runs_of",
    "scan_batch",
    "search",
    "way_is_known",
]
