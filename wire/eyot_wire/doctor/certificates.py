"""The doctor's checks of the daemon's own certificates, from the daemon's report."""

from __future__ import annotations

from eyot_wire.doctor.check import Check, failure, ok, warning
from eyot_wire.status import CertificateStatus, StatusReport

CERTIFICATE_REMEDY = "replace the file, then: eyotd --signal reload"


def certificates(report: StatusReport) -> list[Check]:
    """Return a check of each certificate."""
    return [_certificate(each) for each in report.certificates]


def _certificate(each: CertificateStatus) -> Check:
    name = f"certificate {each.file}"
    if not each.trouble:
        return ok(name, f"valid until {each.not_after}")
    make = failure if each.is_invalid else warning
    return make(name, each.trouble, CERTIFICATE_REMEDY)
