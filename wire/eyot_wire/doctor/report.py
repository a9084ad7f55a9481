"""All checks that need only the daemon's reports, the gravest first."""

from __future__ import annotations

from eyot_wire.doctor.certificates import certificates
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.installation import installation
from eyot_wire.doctor.links import links
from eyot_wire.doctor.losses import lost_messages
from eyot_wire.doctor.replication import replication
from eyot_wire.status import StatusReport, SyncReport

_ORDER = ("failure", "warning", "skipped", "ok")


def checks_of(status: StatusReport, sync: SyncReport) -> list[Check]:
    """Return failures, then warnings, then what was skipped, then what is well."""
    found = (
        installation(status) + certificates(status) + links(status) + lost_messages(sync) + replication(status, sync)
    )
    return sorted(found, key=lambda each: _ORDER.index(each.state))
