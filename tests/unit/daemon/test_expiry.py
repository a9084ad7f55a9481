"""What the log, the doctor and the metrics tell of tokens that expire."""

from __future__ import annotations

import logging
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eyot_cli.trust.keystore import KeyPair, new_pair
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.credentials import token_expiry_s
from eyot_daemon.monitor.expiry import EVERY_S, ExpiryService
from eyot_wire.doctor.links import links
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import LinkStatus
from eyot_wire.trust.creds import format_creds
from eyot_wire.trust.jwt_sign import sign_members
from support.servers.eyotd import Eyotd

DAY_S = 86_400


class Site:
    """A link whose token expires, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000
        self.expires_s = self.now_s + 90 * DAY_S
        self.waits: list[float] = []
        broker: Any = SimpleNamespace(
            clock=SimpleNamespace(now_ns=lambda: self.now_s * 10**9),
            timers=SimpleNamespace(call_later=self._later),
            options=Options(),
            providers=SimpleNamespace(links=lambda: [self.link()]),
        )
        self.service = ExpiryService(broker)

    def _later(self, wait_s: float, step: Any) -> Any:
        self.waits.append(wait_s)
        return SimpleNamespace(cancel=lambda: None)

    def link(self) -> LinkStatus:
        return LinkStatus(
            name="A@hub:7422#0",
            account="A",
            role="spoke",
            state="up",
            credentials_expire=ns_to_rfc3339(self.expires_s * 10**9),
            credentials_left_s=float(self.expires_s - self.now_s),
        )


def test_each_step_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    site, told = Site(), {}
    caplog.set_level(logging.WARNING, "eyot")
    for quarter in range(92 * 4):
        caplog.clear()
        site.service._look()
        if caplog.messages:
            told[90 - quarter / 4] = caplog.messages
        site.now_s += int(EVERY_S)
    assert list(told) == [30, 7, 1, 0]
    assert "in less than 7 days" in told[7][0]
    assert "publishing here goes on" in told[0][0]
    assert set(site.waits) == {EVERY_S}


def test_a_renewed_token_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    caplog.set_level(logging.WARNING, "eyot")
    for expires_in in (5, 90, 6, 6):
        site.expires_s = site.now_s + expires_in * DAY_S
        site.service._look()
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("days", "words"), [(8, ""), (6, "the token expires in"), (-1, "the token expired on")])
def test_the_doctor_warns_a_week_before(days: int, words: str) -> None:
    site = Site()
    site.expires_s = site.now_s + days * DAY_S
    report = SimpleNamespace(links=[site.link()])
    found = [each for each in links(report) if each.name.endswith("credentials")]  # type: ignore[arg-type]
    assert [words in each.detail and "eyot enrol --renew" in (each.remedy or "") for each in found] == [True] * bool(
        words
    )


def creds(account: KeyPair, expires_s: int) -> str:
    user = new_pair("U")
    claims = {"sub": user.public, "name": "u", "exp": expires_s, "nats": {"type": "user"}}
    return format_creds(sign_members(claims, account.signer, int(time.time())), user.seed)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file, account = tmp_path / "device.creds", new_pair("A")
    assert token_expiry_s(str(file)) == 0
    for number, expires_s in enumerate((2_000_000_000, 2_100_000_000, 0)):
        made = tmp_path / f"new{number}"
        made.write_text(creds(account, expires_s))
        made.replace(file)
        assert token_expiry_s(str(file)) == expires_s
    file.write_text("nothing")
    assert token_expiry_s(str(file)) == 0


def test_a_daemon_tells_it_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "device.creds"
    expires_s = int(time.time()) + 5 * DAY_S
    file.write_text(creds(new_pair("A"), expires_s))
    config = f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:1", credentials: "{file}" }} ] }}'
    with Eyotd(config, tmp_path / "eyotd") as server:
        (link,) = server.monitor("/eyot/status")["links"]
        assert link["credentials_expire"] == ns_to_rfc3339(expires_s * 10**9)
        assert "in less than 7 days" in server.log()
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics").read().decode()
        assert "eyot_credentials_expiry_timestamp_seconds{" in metrics
