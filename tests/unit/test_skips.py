"""The rule of skips on CI."""

from __future__ import annotations

from typing import Any

import pytest

from support.skips import MAY_SKIP, refuse_skip


def report(reason: str, **more: Any) -> pytest.TestReport:
    where = ("test_x.py", 1, f"Skipped: {reason}")
    return pytest.TestReport("test_x.py::test", ("test_x.py", 1, "test"), {}, "skipped", where, "setup", **more)


@pytest.mark.parametrize(
    ("reason", "environ", "outcome"),
    [
        ("no network namespaces: iproute2 is not installed", {"CI": "true"}, "failed"),
        ("dpkg installs as root alone", {"CI": "true"}, "failed"),
        ("dpkg installs as root alone", {}, "skipped"),
        *((reason, {"CI": "true"}, "skipped") for reason in MAY_SKIP),
    ],
)
def test_a_missing_tool_hides_nothing_on_ci(reason: str, environ: dict[str, str], outcome: str) -> None:
    told = report(reason)
    refuse_skip(told, environ)
    assert told.outcome == outcome
    assert reason in str(told.longrepr)


def test_what_is_expected_to_fail_is_no_skip() -> None:
    told = report("", wasxfail="reason: known")
    refuse_skip(told, {"CI": "true"})
    assert told.outcome == "skipped"
