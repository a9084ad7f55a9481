"""`eyot-fleet check` names what the logins may not publish or subscribe to, and what it names is what the service needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_fleet.login import Login
from support.devices.fleet_service import Service, eventually, fleet_service, status
from support.links.leaf_pair import server

KINDS = ["eyotd", "2.14.6"]
#: what docs/operate/fleet.md says that the login needs
PUBLISH = ["$JS.API.>", "EYOT_FLEET.AUDIT.*", "_INBOX.>", "$SYS.REQ.USER.INFO"] + [
    f"$KV.EYOT_FLEET_{name}.>" for name in ("DEVICES", "HISTORY", "DESIRED", "REPORTED", "STATE")
]
SUBSCRIBE = ["fleet.>", "_INBOX.>"]
LEAFZ = "$SYS.REQ.SERVER.PING.LEAFZ"


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with fleet_service(request.param, tmp_path) as made:
        yield made


def start_hub(service: Service, publish: list[str], subscribe: list[str], denied: str = "", system: str = "") -> None:
    """Start a hub whose user of the devices' account, and user of the system account, have these permissions."""

    def quoted(subjects: list[str]) -> str:
        return ", ".join(f'"{each}"' for each in subjects)

    permissions = f"publish: [{quoted(publish)}], subscribe: [{quoted(subscribe)}]"
    if denied:
        permissions = (
            f"publish: {{ allow: [{quoted(publish)}], deny: [{quoted([denied])}] }}, subscribe: [{quoted(subscribe)}]"
        )
    text = (
        'server_name: hub\njetstream { store_dir: "%WORKDIR%/js" }\n'
        f"accounts {{ A {{ users: [{{user: a, password: a, permissions: {{ {permissions} }} }}, {{user: d, password: d}}], jetstream: enabled }}\n"
        f"SYS {{ users: [{{user: s, password: s{system} }}] }} }}\nsystem_account: SYS\n"
    )
    service.hub = server(service.kind, text, service.folder / "limited")
    service.hub.start()
    service.write_config()


def test_what_the_page_says_is_enough(service: Service) -> None:
    start_hub(service, PUBLISH, SUBSCRIBE)
    found = service.json("check")
    assert (found["permissions"], found["system"]) == ("ok", "ok")
    service.start()
    told = "eyot-fleet: no device pump is known yet: this waits for it\n"
    service.run("label", "pump", "site:berlin", told=told)
    service.run("sources", "set", "ALL", "--stream", "READINGS")
    eventually(lambda: service.health() == 200)
    assert [line["event"] for line in service.json("audit")]
    service.publish(
        [("fleet.pump.status", status("pump"))], Login(servers=(service.hub.client_url(),), user="d", password="d")
    )
    eventually(lambda: "pump" in service.devices())
    service.run("label", "pump", "site:oslo", told="")
    service.stop()
    log = (service.folder / "fleet.log").read_text()
    assert "violation" not in log.lower()
    assert "not allow" not in log


@pytest.mark.parametrize("gone", [each for each in PUBLISH if each != "$SYS.REQ.USER.INFO"])
def test_a_subject_that_may_not_be_published_is_named(service: Service, gone: str) -> None:
    start_hub(service, [each for each in PUBLISH if each != gone], SUBSCRIBE)
    named = service.run("check", status=1)
    assert "[hub]" in named
    assert f"publish to {gone.removesuffix('>')}" in named
    assert "subscribe" not in named


@pytest.mark.parametrize("gone", ["fleet.>"])
def test_a_subject_that_may_not_be_heard_is_named(service: Service, gone: str) -> None:
    start_hub(service, PUBLISH, [each for each in SUBSCRIBE if each != gone])
    named = service.run("check", status=1)
    assert "subscribe to fleet.*.status" in named
    assert "publish" not in named


def test_a_denied_part_is_named(service: Service) -> None:
    start_hub(service, PUBLISH, SUBSCRIBE, denied="$JS.API.STREAM.UPDATE.*")
    assert "publish to $JS.API.STREAM.UPDATE.*" in service.run("check", status=1)


def test_permissions_that_cannot_be_asked_for_are_not_called_right(service: Service) -> None:
    start_hub(service, [each for each in PUBLISH if "USER.INFO" not in each], SUBSCRIBE)
    assert "not known" in service.json("check")["permissions"]


def test_the_login_of_the_system_account_is_checked_too(service: Service) -> None:
    allowed = 'permissions: { publish: ["$SYS.REQ.USER.INFO"], subscribe: ["_INBOX.>", "$SYS.ACCOUNT.*.CONNECT"] }'
    start_hub(service, PUBLISH, SUBSCRIBE, system=f", {allowed}")
    named = service.run("check", status=1)
    assert f"[system]: the login may not publish to {LEAFZ}, subscribe to $SYS.ACCOUNT.*.DISCONNECT" in named
