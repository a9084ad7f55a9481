"""The functions of MQTT that run once per message: compiled where possible, else in plain Python.

As in `eyot_wire.native`, `EYOT_PLAIN=1` in the environment forces the plain twins (`publish_run.py`). Tests compare both.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_wire.mqtt.publish_run import payloads, scan_acked, scan_mixed, scan_run

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_wire._publish_run import payloads, scan_acked, scan_mixed, scan_run

        COMPILED = True
    except ImportError:
        from eyot_wire.mqtt.publish_run import payloads, scan_acked, scan_mixed, scan_run

        COMPILED = False

__all__ = ["COMPILED", "payloads", "scan_acked", "scan_mixed", "scan_run"]
