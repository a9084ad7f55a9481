"""The exports of one account together: one subject exported twice, and latency that cannot be measured."""

from pathlib import Path

import pytest

from eyot_daemon.config.check import check_options
from eyot_daemon.config.read import load_options
from eyot_wire.conf import ConfError

NOT_AUTHORIZED = "service import not authorized"


def wrong_with(tmp_path: Path, exports: str, importer: str = "", kind: str = "service") -> str:
    """Return what is wrong with a configuration in which `importer` imports `s.a`; "" if nothing is."""
    imports = f'imports: [ {{ {kind}: {{account: S, subject: "s.a"}} }} ]'
    accounts = ", ".join(f"{name} {{ {imports if name == importer else ''} }}" for name in "AB")
    path = tmp_path / "eyot.conf"
    path.write_text(f"accounts {{ S {{ exports: [ {exports} ] }}, {accounts} }}")
    try:
        check_options(*load_options(path))
    except ConfError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("exports", "allowed"),
    [
        ("{service: s.a}, {service: s.a}", "AB"),
        ("{service: s.a, accounts: [B]}, {service: s.a}", "B"),
        ("{service: s.a}, {service: s.a, accounts: [B]}", "B"),
        ("{service: s.a, accounts: [A]}, {service: s.a, accounts: [B]}", "AB"),
        ("{service: 's.*'}, {service: s.a, accounts: [B]}", "B"),
        ("{service: s.a, accounts: [B]}, {service: 's.*'}", "B"),
    ],
)
def test_two_exports_of_one_subject_are_one(tmp_path: Path, exports: str, allowed: str) -> None:
    for importer in "AB":
        assert (NOT_AUTHORIZED not in wrong_with(tmp_path, exports, importer)) is (importer in allowed)
        streams = exports.replace("service", "stream")
        assert ("not authorized" not in wrong_with(tmp_path, streams, importer, "stream")) is (importer in allowed)


def test_what_is_left_out_of_the_second_export_comes_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "eyot.conf"
    path.write_text(
        "accounts { S { exports: [ {service: s.a, latency: l, allow_trace: true}, {service: s.a, threshold: '3s'} ] } }"
    )
    (account,) = load_options(path).options.accounts
    (export,) = account.exports
    assert export.latency is not None
    assert (export.latency.subject, export.response_threshold_s, export.allow_trace) == (b"l", 3.0, True)


@pytest.mark.parametrize(
    ("exports", "wrong"),
    [
        ("{service: s.a, latency: l}", ""),
        ("{service: s.a, latency: {subject: l, sampling: ' Headers '}}", ""),
        ("{service: s.a, latency: l, response: stream}", "bad service response type"),
        ("{service: s.a, latency: l, response: chunked}", "bad service response type"),
        ("{service: s.a, latency: l}, {service: s.a, response: chunked}", "bad service response type"),
        ("{service: s.a, latency: 'l.*'}", "invalid publish subject"),
        ("{service: s.a, latency: s.a}", "invalid publish subject"),
        ("{service: s.a, latency: t.x}, {service: 't.*'}", "invalid publish subject"),
        ("{stream: s.a, allow_trace: true}", "Detected allow_trace directive on non-service"),
    ],
)
def test_latency_that_cannot_be_measured(tmp_path: Path, exports: str, wrong: str) -> None:
    said = wrong_with(tmp_path, exports)
    assert wrong in said if wrong else not said


def test_an_imported_service_has_no_trace_option(tmp_path: Path) -> None:
    path = tmp_path / "eyot.conf"
    path.write_text(
        "accounts { S { exports: [ {service: s} ] }, "
        "A { imports: [ {service: {account: S, subject: s}, allow_trace: true} ] } }"
    )
    with pytest.raises(ConfError, match="Detected allow_trace directive on a non-stream"):
        load_options(path)
