"""Which tests may leave themselves out on CI: a tool that is missing there must not hide what it was to test."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

#: What begins the reason of a skip that CI takes, and what of the machine makes it true.
MAY_SKIP = {
    "Python's ssl here takes no X25519": "Python before 3.13 (Debian 12)",
    "the conversations are those of nats-server 2.9": "nats-server 2.10 or later (Debian 13)",
    "this server traces": "nats-server 2.11 or later",
    "with one processor, one thread sends everything": "one processor",
}


def refuse_skip(report: pytest.TestReport, environ: Mapping[str, str]) -> None:
    """Let a test that was skipped on CI fail, unless its reason may hold there."""
    if not environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(tuple(MAY_SKIP)):
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped on CI for this (tests/support/skips.py): {reason}"
