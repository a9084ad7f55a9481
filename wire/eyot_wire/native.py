"""The classes that run once per message: compiled where possible, else in plain Python.

Both twins do the same, byte for byte (tests/unit/wire/test_twins.py). `EYOT_PLAIN=1` in the environment forces the
plain ones. The plain twin documents each class:

    FrameScanner                        frame_scanner.py
    Publishes, detach_all               frames.py
    FanOut, IngestQueue, Interest,
    Match                               fan_out.py
    OutBuffer, Traffic, send_out        out_buffer.py
    StoredRun                           stored_run.py

COMPILED says which twin this process runs.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_wire.fan_out import FanOut, IngestQueue, Interest, Match
    from eyot_wire.frame_scanner import FrameScanner
    from eyot_wire.frames import Publishes, detach_all
    from eyot_wire.out_buffer import OutBuffer, Traffic, send_out
    from eyot_wire.stored_run import StoredRun

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_wire._fan_out import FanOut, IngestQueue, Interest, Match
        from eyot_wire._frame_scanner import FrameScanner, Publishes, detach_all
        from eyot_wire._out_buffer import OutBuffer, Traffic, send_out
        from eyot_wire._stored_run import StoredRun

        COMPILED = True
    except ImportError:
        from eyot_wire.fan_out import FanOut, IngestQueue, Interest, Match
        from eyot_wire.frame_scanner import FrameScanner
        from eyot_wire.frames import Publishes, detach_all
        from eyot_wire.out_buffer import OutBuffer, Traffic, send_out
        from eyot_wire.stored_run import StoredRun

        COMPILED = False

__all__ = [
    "COMPILED",
    "FanOut",
    "FrameScanner",
    "IngestQueue",
    "Interest",
    "Match",
    "OutBuffer",
    "Publishes",
    "StoredRun",
    "Traffic",
    "detach_all",
    "send_out",
]
