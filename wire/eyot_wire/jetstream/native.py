"""Runs of copied messages: compiled where possible, else in plain Python. See `eyot_wire/native.py`."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eyot_wire.jetstream.copied_run import (
        content_bytes,
        has_headers,
        mirrored_run,
        newest_ns,
        other_kind,
        read_run,
        same_subject,
        sourced_run,
        stamp_run,
    )
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_wire._copied_run import (
            content_bytes,
            has_headers,
            mirrored_run,
            newest_ns,
            other_kind,
            read_run,
            same_subject,
            sourced_run,
            stamp_run,
        )
    except ImportError:
        from eyot_wire.jetstream.copied_run import (
            content_bytes,
            has_headers,
            mirrored_run,
            newest_ns,
            other_kind,
            read_run,
            same_subject,
            sourced_run,
            stamp_run,
        )

__all__ = [
    "content_bytes",
    "has_headers",
    "mirrored_run",
    "newest_ns",
    "other_kind",
    "read_run",
    "same_subject",
    "sourced_run",
    "stamp_run",
]
