"""What operators are told about a bridge that does not forward."""

from __future__ import annotations

import pytest

from eyot_sync.bridge.errors import remedy
from eyot_wire.doctor.report import checks_of
from eyot_wire.status import LinkStatus, StatusReport, SyncReport, SyncStatus

NOW = "2026-11-25T00:00:00Z"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("the remote refuses the connection: not authorized (0x87)", "credentials"),
        ("the remote refuses the connection: bad user name or password (0x86): who are you", "credentials"),
        ("the remote refuses the connection: client identifier not valid (0x85)", "client_id"),
        ("the remote ended the connection: session taken over (0x8E)", "client_id"),
        ("the remote does not keep to MQTT: the flags of PUBACK are 1000", "no MQTT broker"),
        ("the remote answers CONNECT with PUBLISH", "no MQTT broker"),
        ("Connection refused", "that the broker runs"),
        ("broker.example: Name or service not known", "DNS"),
        ("TLS alert of the remote: unknown ca", "cert_file"),
        ("TLS handshake error: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "speaks no TLS"),
        ("TLS handshake error: certificate verify failed: self-signed certificate", "ca_file"),
        ("password file /etc/eyot/p: others may read it (chmod 600 /etc/eyot/p)", "owner and mode"),
    ],
)
def test_an_error_has_a_remedy_that_speaks_of_brokers(error: str, word: str) -> None:
    assert word in remedy(error)
    assert "hub" not in remedy(error)
    assert "leaf" not in remedy(error)


def test_an_unknown_error_has_none() -> None:
    assert remedy("the remote closed the connection") == ""


def told(link: LinkStatus, *out: SyncStatus) -> dict[str, tuple[str, str]]:
    """What the doctor says of a device with a bridge alone: state and remedy by check."""
    status = StatusReport(
        server_name="gw", server_id="N", version="1", domain="", now=NOW, uptime_s=1.0, links=[link], streams=[]
    )
    sync = SyncReport(server_name="gw", now=NOW, synced=False, out=list(out))
    return {each.name: (each.state, each.remedy) for each in checks_of(status, sync)}


def bridge(**more: object) -> LinkStatus:
    return LinkStatus(name="bridge:cloud", account="$G", role="bridge", **{"state": "up", "since": NOW, **more})  # type: ignore[arg-type]


def test_the_doctor_names_what_keeps_a_bridge_from_its_work() -> None:
    missing = SyncStatus(
        account="$G", stream="NO", peer="cloud", kind="bridge", linked=True, uncertain=True, error="no stream NO"
    )
    found = told(bridge(last_error="no stream NO"), missing)
    assert found["bridge cloud: stream NO"] == ("failure", "see the broker's log")
    assert found["link bridge:cloud"][0] == "ok"
    assert "link bridge:cloud: subscriptions" not in found
    found = told(bridge(last_error="the remote refuses the subscription to cmd/#", remedy="allow it at the remote"))
    assert found["link bridge:cloud: subscriptions"] == ("failure", "allow it at the remote")
    assert found["domain"][0] != "failure", "no leaf node, no domain"
