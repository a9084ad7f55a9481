"""The doctor's check for messages that never arrived at a downstream."""

from __future__ import annotations

from eyot_wire.doctor.check import Check, warning
from eyot_wire.quantities import counted
from eyot_wire.status import SyncReport


def lost_messages(report: SyncReport) -> list[Check]:
    """Return a warning for each downstream that lacks messages removed before it confirmed them."""
    return [
        warning(
            "never arrived",
            f"{each.stream} at {each.peer}: {counted(each.never_arrived, 'message')}, "
            + "; ".join(f"{lost.messages} by {lost.reason} ({', '.join(lost.sequences)})" for lost in each.lost),
            f"raise the stream's limits to cover the time without link; then eyot sync forget {each.stream} {each.peer} --lost clears this",
        )
        for each in report.out
        if each.never_arrived
    ]
