"""The check of `eyot doctor` for messages that never arrived at a downstream."""

from __future__ import annotations

import msgspec

from eyot_cli.connection.target import Target
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.losses import lost_messages
from eyot_wire.status import SyncReport


def never_arrived(target: Target) -> list[Check]:
    """Return a warning for each downstream that lacks messages removed before it confirmed them; none from an older daemon."""
    try:
        report = msgspec.json.decode(target.get("/eyot/syncz"), type=SyncReport)
    except msgspec.MsgspecError:
        return []
    return lost_messages(report)
