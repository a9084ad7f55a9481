"""What `eyot doctor` says of messages that never arrived at those who copy from here."""

from __future__ import annotations

import msgspec

from eyot_cli.doctor_check import Check, warning
from eyot_cli.target import Target
from eyot_wire.status import SyncReport


def never_arrived(target: Target) -> list[Check]:
    """A warning for each copy that lacks what left its stream before it was confirmed; none from an older daemon."""
    try:
        report = msgspec.json.decode(target.get("/eyot/syncz"), type=SyncReport)
    except msgspec.MsgspecError:
        return []
    return [
        warning(
            "never arrived",
            f"{each.stream} at {each.peer}: {each.never_arrived} messages, "
            + "; ".join(f"{lost.messages} by {lost.reason} ({', '.join(lost.sequences)})" for lost in each.lost),
            f"give the stream room for the time that its link is down; eyot sync forget {each.stream} {each.peer} --lost when it is seen to",
        )
        for each in report.out
        if each.never_arrived
    ]
