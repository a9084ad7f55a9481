"""A device from its one-time token to its link, at real hubs: enrolled, renewed, revoked, replaced."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ExternalStream, StreamSource

from eyot_cli.trust import resolver
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.jwt import decode
from eyot_wire.trust.jwt_sign import decode_members, sign_members
from eyot_wire.trust.nkey import Signer
from support.links.leaf_pair import Clients, eventually, reaches, server
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess
from support.trust.trust_tool import TrustTool

EYOT = str(Path(sys.executable).with_name("eyot"))
DOCS = Path(__file__).parents[3] / "docs" / "operate"
WAIT_S = 60.0
#: What nobody who has a device's credentials may publish to: streams of the hub and of others, their settings, their names.
FORBIDDEN = (
    "$JS.API.STREAM.DELETE.ALL",
    "$JS.hub.API.STREAM.PURGE.ALL",
    "$JS.other.API.STREAM.DELETE.READINGS",
    "$KV.EYOT_FLEET_DESIRED.group.all",
    "fleet.other.status",
    "readings.other.a",
    "$EYOT.DEVICE.other.support-bundle",
    "$EYOT.RENEW.other",
)
#: What nobody who has a device's credentials may hear.
UNHEARD = (">", "fleet.*.config", "readings.>", "$JS.S.*", "$JS.other.API.>", "$EYOT.DEVICE.other.status")


class Hub:
    """A server that trusts the operator of a store, and `eyot fleet serve` beside it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.trust = made = TrustTool(folder / "store")
        made.run("add", "operator", "-n", "OP", "--generate-signing-key", "--sys")
        made.run("edit", "operator", "--require-signing-keys")
        made.run("add", "account", "A")
        made.run("edit", "account", "A", "--sk", "generate")
        made.run("edit", "signing-key", "-a", "A", "--sk", "generate", "--role", "device")
        made.run("add", "user", "alice", "-a", "A")
        config = made.run("generate", "config", "--nats-resolver").replace("'./jwt'", "'%WORKDIR%/jwt'")
        store = '\njetstream { store_dir: "%WORKDIR%/js", domain: hub }'
        listener = store + '\nleafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }\n'
        self.process: ServerProcess = server(kind, config + listener, folder / kind)
        self.log = folder / "serve.log"
        self.service: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.process.client_url()

    def start(self) -> None:
        self.process.start()
        self.trust.run("push", "-A", "-u", self.url, "--timeout", str(WAIT_S))
        words = ["fleet", "--all-dirs", str(self.trust.folder), "serve", "-a", "A", "-s", self.url]
        leaf = f"nats-leaf://127.0.0.1:{self.process.leaf_port}"
        with self.log.open("wb") as log:
            command = [EYOT, *words, "--leaf-url", leaf]
            self.service = subprocess.Popen(command, stdout=log, stderr=log, env={"PYTHONUNBUFFERED": "1"})

    def kill(self) -> None:
        if self.service is not None:
            self.service.kill()
            self.service.wait()
        self.process.kill()

    def token(self, name: str) -> str:
        return str(self.trust.json("fleet", "enrol", name, "-a", "A")["tokens"][0]["token"])

    async def alice(self) -> nats.aio.client.Client:
        path = self.trust.creds("OP", "A", "alice")
        return await nats.connect(self.url, user_credentials=str(path), connect_timeout=int(WAIT_S))


class Device:
    """A gateway's folders, and `eyot enrol` on it."""

    def __init__(self, folder: Path, domain: str = "pump") -> None:
        self.folder = folder / "enrolled"
        self.config = folder / "eyotd.conf"
        self.fragment = folder / "conf.d" / "50-enrolled.conf"
        self.fragment.parent.mkdir(parents=True)
        own = f'jetstream {{ store_dir: "{folder}/js", domain: "{domain}" }}\n'
        self.config.write_text(f'{own}include "conf.d/*.conf"\n')
        self.text = f'{own}leafnodes {{ }}\ninclude "{self.fragment}"\n'

    def enrol(self, *words: str, token: str = "") -> subprocess.CompletedProcess[str]:
        places = ["--folder", self.folder, "--config", self.config, "--fragment", self.fragment, "--no-start"]
        return subprocess.run(
            [EYOT, "enrol", *map(str, places), "--json", *words],
            env={"EYOT_ENROL_TOKEN": token} if token else {},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def enrolled(self, hub: Hub, token: str, *words: str) -> Any:
        """Enrol, once the service answers; the document that it prints."""
        while (done := self.enrol("--hub", hub.url, *words, token=token)).returncode:
            assert "nobody answers enrolments" in done.stderr, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(params=["eyotd", "2.14.6"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(resolver, "QUIET_S", 0.05)  # there is one server, whose answer has come by then
    made = Hub(request.param, tmp_path)
    made.start()
    yield made
    made.kill()


def test_the_life_of_a_device(hub: Hub, tmp_path: Path) -> None:
    device = Device(tmp_path / "device")
    token = hub.token("pump")
    first = device.enrolled(hub, token)
    assert first["name"] == "pump"
    thief = Device(tmp_path / "thief").enrol("--hub", hub.url, token=token)
    assert thief.returncode == 1
    assert "pump is another device already" in thief.stderr

    async def scenario() -> None:
        alice = await hub.alice()
        try:
            with Eyotd(device.text, tmp_path / "running") as running:
                async with Clients(running) as (local,):
                    await reaches(local, alice)
                    await asyncio.to_thread(renew, device)
                    await asyncio.to_thread(shows_who_lacks_what, hub, tmp_path)
                    await revoke_and_replace(running, local, alice)
        finally:
            await alice.close()

    async def revoke_and_replace(running: Eyotd, local: Any, alice: Any) -> None:
        stolen = decode(parse_creds((device.folder / "device.creds").read_text()).jwt).sub
        words = ("fleet", "revoke", "pump", "-a", "A", "-u", hub.url, "--timeout", str(WAIT_S))
        await asyncio.to_thread(hub.trust.run, *words)
        await eventually(lambda: running.monitor("/eyot/status")["links"][0]["state"] != "up")
        said = await asyncio.to_thread(device.enrol, "--hub", hub.url, token=hub.token("pump"))
        assert "was revoked" in said.stderr
        replaced = await asyncio.to_thread(device.enrolled, hub, hub.token("pump"), "--new-key")
        assert replaced["key"] != stolen
        await reaches(local, alice)

    asyncio.run(scenario())
    lines = map(json.loads, next(hub.trust.folder.rglob("audit.log")).read_text().splitlines())
    events = [line["event"] for line in lines if line.get("name") != "spare"]
    assert events == ["token", "enrolled", "refused", "renewed", "revoked", "token", "refused", "token", "enrolled"]
    assert not re.search(r"\bS[A-Z][A-Z2-7]{56}\b", hub.log.read_text()), "a seed is in the log"


def shows_who_lacks_what(hub: Hub, folder: Path) -> None:
    """A second device is enrolled and never linked."""
    Device(folder / "second", "spare").enrolled(hub, hub.token("spare"))
    command = [EYOT, "fleet", "--all-dirs", str(hub.trust.folder), "sync", "-a", "A", "-s", hub.url]
    done = subprocess.run([*command, "--json"], env={}, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 3, done.stderr
    assert [(each["name"], each["state"]) for each in json.loads(done.stdout)] == [
        ("pump", "unread"),
        ("spare", "not linked"),
    ]
    shown = subprocess.run([*command, "p*"], env={}, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "no mirror or source elsewhere replicates from here" in shown.stdout
    assert "0 of 1 synced, 1 unread" in shown.stdout
    asks_a_group(hub, folder)
    none = subprocess.run([*command, "--tag", "x"], env={}, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "no enrolled device has such a name or tag" in none.stderr


def asks_a_group(hub: Hub, folder: Path) -> None:
    """`eyot --group` asks both devices as a user of the moment; the one that is not linked is an error of its own."""
    store = str(hub.trust.folder)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {"NSC_HOME": store, "NKEYS_PATH": store}
        command = [EYOT, "-s", hub.url, "--json", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)

    for report in ("status", "doctor"):
        done = run("--group", "*", report)
        assert done.returncode in (3, 4), done.stderr
        pump, spare = json.loads(done.stdout)
        assert (pump["device"], spare["device"]) == ("pump", "spare")
        assert pump["answer"]
        assert spare["error"] == "spare does not answer"
    done = run("--group", "pum?", "--at-once", "1", "support-bundle", "-o", str(folder / "bundles"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["answer"]["file"] == str(folder / "bundles" / "eyot-support-pump.tar.gz")
    assert (folder / "bundles" / "eyot-support-pump.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert "no enrolled device has such a name or tag" in run("--group", "site:north", "status").stderr
    assert "--group is for status, sync, doctor and support-bundle" in run("--group", "*", "stream", "ls").stderr
    assert "leave one out" in run("--group", "*", "--device", "pump", "status").stderr


def renew(device: Device) -> None:
    before = parse_creds((device.folder / "device.creds").read_text())
    done = device.enrol("--renew")
    assert done.returncode == 0, done.stderr
    after = parse_creds((device.folder / "device.creds").read_text())
    assert json.loads(done.stdout)["renewed"] is True
    assert after.seed == before.seed
    assert decode(after.jwt).iat >= decode(before.jwt).iat
    assert json.loads(device.enrol("--renew", "--if-due").stdout)["renewed"] is False


def documented_role() -> list[str]:
    """What the page grants to devices."""
    flags = re.findall(r"--allow-(pub|sub) '([^']+)'", (DOCS / "enrolment.md").read_text())[:2]
    assert [kind for kind, _ in flags] == ["pub", "sub"]
    return [word for kind, subjects in flags for word in (f"--allow-{kind}", subjects)]


def test_the_documented_role_is_enough_and_no_more(hub: Hub, tmp_path: Path) -> None:
    """With it the hub sources a device's stream and asks the device; a thief with it reaches no other stream."""
    hub.trust.run("edit", "account", "A", "--js-enable", "0")
    hub.trust.run("edit", "signing-key", "-a", "A", "--sk", "device", *documented_role())
    hub.trust.run("push", "-A", "-u", hub.url, "--timeout", str(WAIT_S))
    device = Device(tmp_path / "device")
    device.enrolled(hub, hub.token("pump"))

    async def scenario() -> None:
        alice = await hub.alice()
        with Eyotd(device.text, tmp_path / "running") as running:
            async with Clients(running) as (local,):
                await reaches(local, alice)
                await local.jetstream().add_stream(name="READINGS", subjects=["readings.pump.>"])
                await local.jetstream().publish("readings.pump.a", b"1")
                source = StreamSource(name="READINGS", external=ExternalStream("$JS.pump.API"))
                await alice.jetstream().add_stream(name="ALL", sources=[source])
                await holds(alice, "ALL", 1)
            asked = await asyncio.to_thread(ask_pump, hub)
            assert asked.returncode == 0, asked.stderr
            await asyncio.to_thread(renew, device)
        await alice.close()

    async def theft() -> None:
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error).lower())

        url, creds = hub.url, str(device.folder / "device.creds")
        thief = await nats.connect(url, user_credentials=creds, connect_timeout=int(WAIT_S), error_cb=note)
        for subject in FORBIDDEN:
            await thief.publish(subject, b"", reply=thief.new_inbox())
        for subject in UNHEARD:
            await thief.subscribe(subject)
        await eventually(lambda: len(refused) >= len(FORBIDDEN) + len(UNHEARD))
        for subject in (*FORBIDDEN, *UNHEARD):
            called = subject.replace("$JS.hub.", "$JS.").lower()  # a server maps the API of its own domain first
            assert any(f'"{called}"' in each for each in refused), (subject, refused)
        await thief.close()

    asyncio.run(scenario())
    asyncio.run(theft())


def ask_pump(hub: Hub) -> subprocess.CompletedProcess[str]:
    creds = str(hub.trust.creds("OP", "A", "alice"))
    command = [EYOT, "-s", hub.url, "--creds", creds, "--device", "pump", "status"]
    return subprocess.run(command, env={}, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_logins_that_the_hub_does_not_take_are_explained(hub: Hub, tmp_path: Path) -> None:
    """An expired token and a device that was revoked are refused by the server itself, which does not say why."""
    device = Device(tmp_path / "device")
    device.enrolled(hub, hub.token("pump"))
    hub.trust.run("fleet", "revoke", "pump", "-a", "A", "-u", hub.url, "--timeout", str(WAIT_S))
    assert "the device was revoked, or its token has expired" in device.enrol("--renew").stderr
    expired = hub.trust.json("fleet", "enrol", "valve", "-a", "A")["tokens"][0]["token"]
    jwt, _, seed = expired.rpartition(".")
    members = decode_members(jwt) | {"exp": 1}
    [signer] = hub.trust.folder.rglob(f"{members['iss']}.nk")
    signed = sign_members(members, Signer(signer.read_text().strip()), int(time.time()))
    said = Device(tmp_path / "valve", "valve").enrol("--hub", hub.url, token=f"{signed}.{seed}").stderr
    assert "the token has expired" in said
    assert "--creds" not in said


async def holds(client: nats.aio.client.Client, stream: str, count: int) -> None:
    """Wait until a stream holds that many messages."""
    deadline = time.monotonic() + WAIT_S
    while (await client.jetstream().stream_info(stream)).state.messages < count:
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.05)


def test_a_hub_that_goes_away_in_the_middle(hub: Hub, tmp_path: Path) -> None:
    """The service is killed and comes back, the server too: the device's command is run again and enrols it once."""
    device, token = Device(tmp_path / "device"), hub.token("pump")
    hub.kill()
    said = device.enrol("--hub", hub.url, token=token)
    assert said.returncode == 1
    assert "cannot connect" in said.stderr
    assert (device.folder / "device.seed").exists()
    hub.start()
    assert device.enrolled(hub, token)["name"] == "pump"
    assert not (device.folder / "device.seed").exists()
    devices = json.loads(hub.trust.run("fleet", "ls", "-a", "A", "--json"))
    assert [each["name"] for each in devices] == ["pump"]
