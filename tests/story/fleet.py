"""`make demo-fleet`: a hub enrols devices; one is stolen, one gets a new disk, one is offline for three weeks of readings.

Ends with what `eyot fleet sync` and `eyot-fleet ls` show, and one line of truth, from the readings' own ids: exit status 0 when the hub holds
every acknowledged reading of a trusted device exactly once, and none of the stolen device after it was revoked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import nats
from nats.errors import Error as NatsError
from rich.console import Console

from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

EYOT = str(Path(sys.executable).with_name("eyot"))
WITHIN_S = 120.0
READINGS = 50
#: The service notices within this time that a device was revoked.
SETTLE_S = 20.0
#: One an hour for three weeks, from the device that is offline.
OFFLINE = 21 * 24
STOLEN, WIPED, FAR = 7, 12, 3
HUB = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
"""


class Hub:
    """The hub, the store with its keys, and `eyot fleet serve`."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "trust"
        self.folder = folder
        for words in (
            ("add", "operator", "-n", "OP", "--generate-signing-key", "--sys"),
            ("edit", "operator", "--require-signing-keys"),
            ("add", "account", "FLEET"),
            ("edit", "account", "FLEET", "--sk", "generate", "--js-enable", "0"),
            ("edit", "signing-key", "-a", "FLEET", "--sk", "generate", "--role", "device"),
            ("add", "user", "operator", "-a", "FLEET"),
        ):
            self.eyot("trust", *words)
        trust = self.eyot("trust", "generate", "config", "--nats-resolver").replace("'./jwt'", "'%WORKDIR%/jwt'")
        self.server = Eyotd(trust + HUB, folder / "hub")
        self.service: subprocess.Popen[bytes] | None = None
        self.fleet: subprocess.Popen[bytes] | None = None
        self.fleet_config = folder / "fleet.toml"

    def eyot(self, group: str, *words: str, status: tuple[int, ...] = (0,)) -> str:
        """Run `eyot trust` or `eyot fleet` on this store; return what it prints."""
        command = [EYOT, group, "--all-dirs", str(self.store), *words]
        environment = os.environ | {"NSC_NO_GIT_IGNORE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode not in status:
            raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr}")
        return done.stdout

    def start(self) -> None:
        self.server.start()
        self.eyot("trust", "push", "-A", "-u", self.server.client_url())
        leaf = f"nats-leaf://127.0.0.1:{self.server.leaf_port}"
        words = ["fleet", "--all-dirs", str(self.store), "serve", "-a", "FLEET", "-s", self.server.client_url()]
        with (self.folder / "serve.log").open("wb") as log:
            self.service = subprocess.Popen([EYOT, *words, "--leaf-url", leaf], stdout=log, stderr=log)

    def start_fleet(self) -> None:
        """Start `eyot-fleet`, which reads the enrolment records."""
        creds = self.store / "creds" / "OP" / "FLEET" / "operator.creds"
        folder = next(self.store.rglob("enrolment")) / "FLEET"
        self.fleet_config.write_text(
            f'[hub]\nservers = ["{self.server.client_url()}"]\ncreds = "{creds}"\n'
            f'[devices]\nenrolment = "{folder}"\n[http]\nlisten = "127.0.0.1:{free_port()}"\n'
        )
        with (self.folder / "fleet.log").open("wb") as log:
            command = [EYOT + "-fleet", "-c", str(self.fleet_config), "serve"]
            self.fleet = subprocess.Popen(command, stdout=log, stderr=log)

    def table(self, *words: str) -> str:
        """Return what `eyot-fleet` prints."""
        command = [EYOT + "-fleet", "-c", str(self.fleet_config), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def stop(self) -> None:
        for each in (self.service, self.fleet):
            if each is not None:
                each.kill()
                each.wait()
        self.server.kill()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        creds = self.store / "creds" / "OP" / "FLEET" / "operator.creds"
        client = await nats.connect(self.server.client_url(), user_credentials=str(creds))
        try:
            yield client
        finally:
            await client.close()


class Device:
    """One gateway: its folders, its daemon, and what it was acknowledged."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = f"gateway-{number:02}"
        self.folder = folder / self.name
        self.acked: list[str] = []
        self.disk = 0
        self._lay_out()

    def _lay_out(self) -> None:
        (self.folder / "conf.d").mkdir(parents=True)
        self.config = self.folder / "eyotd.conf"
        own = f'jetstream {{ store_dir: "{self.folder}/js", domain: "{self.name}" }}\n'
        self.config.write_text(own + 'include "conf.d/*.conf"\n')
        text = own + f'include "{self.folder}/conf.d/*.conf"\n'
        self.server = Eyotd(text, self.folder / "run")

    def new_disk(self) -> None:
        """The device comes back with nothing of what it had."""
        self.server.kill()
        shutil.rmtree(self.folder)
        self.disk += 1
        self._lay_out()

    def enrol(self, url: str, token: str, *words: str) -> subprocess.CompletedProcess[str]:
        places = ["--folder", self.folder / "enrolled", "--config", self.config]
        places += ["--fragment", self.folder / "conf.d/50-enrolled.conf", "--no-start"]
        command = [EYOT, "enrol", "--hub", url, "--name", self.name, *map(str, places), *words]
        environment = os.environ | {"EYOT_ENROL_TOKEN": token}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def enrolled(self, url: str, token: str) -> None:
        """Enrol; again until the hub's service answers."""
        deadline = time.monotonic() + WITHIN_S
        while (done := self.enrol(url, token)).returncode:
            if "nobody answers" not in done.stderr or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {done.stderr}")

    async def publish(self, count: int, kind: str = "reading") -> None:
        """Publish readings into the device's own stream; note those that were acknowledged."""
        client = await nats.connect(self.server.client_url())
        try:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="READINGS", subjects=[f"readings.{self.name}"])
            for number in range(count):
                reading = f"{self.name}/{self.disk}/{kind}/{number}"
                await jetstream.publish(f"readings.{self.name}", reading.encode())
                self.acked.append(reading)
        finally:
            await client.close()


class Demo:
    """The story, step by step."""

    def __init__(self, folder: Path, count: int, console: Console) -> None:
        self.hub = Hub(folder)
        self.devices = [Device(folder, number) for number in range(1, count + 1)]
        self.stolen, self.wiped, self.far = (self.devices[number - 1] for number in (STOLEN, WIPED, FAR))
        self.console = console
        self._begun = time.monotonic()
        #: readings that must never reach the hub
        self.forbidden: list[str] = []

    def tell(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/dim]  {text}")

    async def play(self) -> bool:
        self.hub.start()
        await self.enrol_all()
        async with self.hub.client() as client:
            await self.source_all(client)
            await asyncio.gather(*(device.publish(READINGS) for device in self.devices))
            await self.until_copied(client)
            self.tell(f"{READINGS} readings of each device are at the hub")
            self.far.server.kill()
            await self.steal(client)
            await self.replace_disk()
            await self.come_back(client)
            self.show()
            return await self.truth(client)

    async def enrol_all(self) -> None:
        url = self.hub.server.client_url()
        words = ("gateway-*", "--count", str(len(self.devices)), "-a", "FLEET")
        token = self.hub.eyot("fleet", "enrol", *words).strip()
        self.tell(f"one token for {len(self.devices)} devices; each makes a key and asks")
        begun = time.monotonic()
        for device in self.devices:
            await asyncio.to_thread(device.enrolled, url, token)
        each_s = (time.monotonic() - begun) / len(self.devices)
        self.tell(f"{len(self.devices)} devices are enrolled, {each_s:.1f} s each")
        one_more = Device(self.hub.folder, len(self.devices) + 1)
        said = await asyncio.to_thread(one_more.enrol, url, token)
        self.tell(f"one more asks with the same token: {said.stderr.strip().removeprefix('eyot: ')}")
        self.hub.start_fleet()
        for device in self.devices:
            await asyncio.to_thread(device.server.start)

    async def source_all(self, client: Client) -> None:
        sources = [
            {"name": "READINGS", "external": {"api": f"$JS.{device.name}.API", "deliver": ""}}
            for device in self.devices
        ]
        body = json.dumps({"name": "FLEET", "sources": sources}).encode()
        answer = json.loads((await client.request("$JS.API.STREAM.CREATE.FLEET", body, timeout=WITHIN_S)).data)
        if "error" in answer:
            raise RuntimeError(answer["error"])

    async def steal(self, client: Client) -> None:
        """The stolen device goes on publishing; nothing of it leaves it."""
        words = ("revoke", self.stolen.name, "-a", "FLEET", "-u", self.hub.server.client_url())
        await asyncio.to_thread(self.hub.eyot, "fleet", *words)
        await self.until(lambda: self._link(self.stolen)["state"] != "up")
        before = list(self.stolen.acked)
        await self.stolen.publish(READINGS, "stolen")
        self.forbidden = [each for each in self.stolen.acked if each not in before]
        self.stolen.acked = before
        self.tell(f"{self.stolen.name} is stolen: revoked, its link is cut, its own clients go on unheard")

    async def replace_disk(self) -> None:
        """A name belongs to one key: the device with the new disk needs the old key revoked, and a token."""
        url = self.hub.server.client_url()
        self.wiped.new_disk()
        token = self.hub.eyot("fleet", "enrol", self.wiped.name, "-a", "FLEET").strip()
        said = await asyncio.to_thread(self.wiped.enrol, url, token)
        self.tell(f"{self.wiped.name} has a new disk: {said.stderr.strip().removeprefix('eyot: ')}")
        await asyncio.to_thread(self.hub.eyot, "fleet", "revoke", self.wiped.name, "-a", "FLEET", "-u", url)
        await asyncio.to_thread(self.wiped.enrolled, url, token)
        await asyncio.to_thread(self.wiped.server.start)
        await self.wiped.publish(READINGS)
        self.tell(f"{self.wiped.name} is enrolled with a new key, and publishes as if nothing had been before")

    async def come_back(self, client: Client) -> None:
        config = self.far.server
        fragment = self.far.folder / "conf.d/50-enrolled.conf"
        away = fragment.with_suffix(".away")
        fragment.rename(away)  # no link: the device is somewhere without a network
        await asyncio.to_thread(config.start)
        await self.far.publish(OFFLINE, "offline")
        await asyncio.to_thread(config.kill)
        away.rename(fragment)
        self.tell(f"{self.far.name} was offline for three weeks: {OFFLINE} hourly readings, then a power cut")
        begun = time.monotonic()
        await asyncio.to_thread(config.start)
        await self.until_copied(client)
        self.tell(
            f"{self.far.name} is back; all readings are at the hub {time.monotonic() - begun:.1f} s after its start"
        )

    def show(self) -> None:
        url = self.hub.server.client_url()
        print(self.hub.eyot("fleet", "sync", "-a", "FLEET", "-s", url, status=(0, 3)))
        time.sleep(SETTLE_S)  # the service reads enrolment records every 15 s
        print(self.hub.table("ls"))

    # -- what is at the hub ----------------------------------------------------------------------------------------

    async def until_copied(self, client: Client) -> None:
        wanted = sum(len(device.acked) for device in self.devices)

        async def copied() -> bool:
            answer = await client.request("$JS.API.STREAM.INFO.FLEET", b"", timeout=WITHIN_S)
            return int(json.loads(answer.data)["state"]["messages"]) >= wanted

        await self.until(copied)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.1)

    @staticmethod
    def _link(device: Device) -> dict[str, Any]:
        link: dict[str, Any] = device.server.monitor("/eyot/status")["links"][0]
        return link

    async def truth(self, client: Client) -> bool:
        state = json.loads((await client.request("$JS.API.STREAM.INFO.FLEET", b"")).data)["state"]
        subscription = await client.jetstream().subscribe(">", stream="FLEET", ordered_consumer=True)
        held: Counter[str] = Counter()
        for _ in range(state["messages"]):
            held[(await subscription.next_msg(timeout=WITHIN_S)).data.decode()] += 1
        acked = [each for device in self.devices for each in device.acked]
        lost = sum(each not in held for each in acked)
        doubled = sum(count - 1 for count in held.values())
        foreign = sum(each in held for each in self.forbidden)
        holds = not lost and not doubled and not foreign and len(held) == len(acked)
        line = f"acked {len(acked)}, at the hub {len(held)}, lost {lost}, duplicated {doubled}, of the stolen device {foreign}"
        self.console.print(f"[bold {'green' if holds else 'red'}]{line}[/]")
        return holds

    def close(self) -> None:
        for device in self.devices:
            device.server.kill()
        self.hub.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=20, help="how many (default 20, at least 12)")
    options = parser.parse_args()
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="eyot-fleet-"))
    console.print(f"[bold]Eyot[/bold]: a fleet enrols itself. Everything lies in {folder}")
    demo = Demo(folder, max(options.devices, WIPED), console)
    try:
        return 0 if asyncio.run(demo.play()) else 1
    except (NatsError, OSError, RuntimeError, TimeoutError) as error:
        console.print(f"{type(error).__name__}: {error}", style="bold red", markup=False)
        return 1
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(main())
