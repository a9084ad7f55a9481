"""A hub of either kind with `eyot-fleet` beside it, and devices that link to it, as real processes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import trio

from eyot_fleet.connection import connected
from eyot_fleet.jetstream import JetStream
from eyot_fleet.login import Login
from eyot_wire.status import DeviceStatus
from support.links.leaf_pair import server
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess, free_port

FLEET = str(Path(sys.executable).with_name("eyot-fleet"))
WAIT_S = 90.0
HUB = """
server_name: hub
accounts { A { users: [{user: a, password: a}], jetstream: enabled }, SYS { users: [{user: s, password: s}] } }
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""


class Service:
    """A hub and `eyot-fleet`, with its commands."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.hub: ServerProcess = server(kind, HUB, folder / kind)
        self.folder = folder
        self.port = free_port()
        self.config = folder / "fleet.toml"
        self.process: subprocess.Popen[bytes] | None = None

    def write_config(self, more: str = "") -> None:
        self.config.write_text(
            f'[hub]\nservers = ["{self.hub.client_url()}"]\nuser = "a"\npassword = "a"\n'
            f'[system]\nuser = "s"\npassword = "s"\naccount = "A"\n[http]\nlisten = "127.0.0.1:{self.port}"\n{more}'
        )

    def start(self) -> None:
        with (self.folder / "fleet.log").open("ab") as log:
            self.process = subprocess.Popen([FLEET, "-c", str(self.config), "serve"], stdout=log, stderr=log)
        eventually(lambda: self.health() == 200)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(30) == 0
            self.process = None

    def health(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)

    def run(self, *words: str, status: int = 0, told: str | None = None) -> str:
        """Run a command and return its output, or its error. `told`: all that a command says on stderr."""
        done = subprocess.run([FLEET, "-c", str(self.config), *words], capture_output=True, text=True, check=False)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        assert told is None or done.stderr == told
        return done.stdout if status == 0 else done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run("--json", *words))

    def devices(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.json("ls")["devices"]}

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        async def run() -> dict[str, Any]:
            login = Login(servers=(self.hub.client_url(),), user="a", password="a")
            async with connected(login) as connection:
                return await JetStream(connection).api(subject, body)
            raise AssertionError("the block returns")

        return trio.run(run)

    def leader(self) -> str:
        """Return the id of the service that leads, "" if none does."""
        found = self.api("STREAM.MSG.GET.KV_EYOT_FLEET_STATE", {"last_by_subj": "$KV.EYOT_FLEET_STATE.leader"})
        return base64.b64decode(found["message"].get("data", "")).decode()

    def device(self, name: str, more: str = "") -> Eyotd:
        remote = f'{{ url: "nats-leaf://a:a@127.0.0.1:{self.hub.leaf_port}" }}'
        text = (
            f'server_name: {name}\njetstream {{ store_dir: "%WORKDIR%/js", domain: {name} }}\n'
            f"leafnodes {{ remotes [ {remote} ] }}\n"
            f'eyot {{ status {{ subject: fleet.{name}.status, every: 1s }}, control_socket: "%WORKDIR%/control.sock"\n{more} }}\n'
        )
        made = Eyotd(text, self.folder / name)
        made.start()
        return made

    def publish(self, messages: list[tuple[str, bytes]], login: Login | None = None) -> None:
        async def run() -> None:
            at = login or Login(servers=(self.hub.client_url(),), user="a", password="a")
            async with connected(at) as connection:
                for subject, payload in messages:
                    await connection.publish(subject, payload)
                await connection.request("$JS.API.INFO")  # everything before it was read

        trio.run(run)


@contextmanager
def fleet_service(kind: str, folder: Path) -> Iterator[Service]:
    """A service with its configuration, and a hub of this kind; neither is started."""
    made = Service(kind, folder)
    made.write_config()
    try:
        yield made
    finally:
        if made.process is not None:
            made.process.kill()
            made.process.wait()
        made.hub.kill()


def eventually(condition: Callable[[], object]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.2)
    return found


def status(name: str, **more: Any) -> bytes:
    made = {
        "device": name,
        "at": datetime.now(UTC).isoformat(),
        "every_s": 60.0,
        "version": "0.1.0",
        "uptime_s": 5.0,
        **more,
    }
    return msgspec.json.encode(msgspec.convert(made, DeviceStatus))


def publish_locally(device: Eyotd, count: int) -> None:
    async def run() -> None:
        async with connected(Login(servers=(device.client_url(),))) as connection:
            jetstream = JetStream(connection)
            subject = f"readings.{device.workdir.name}"  # what one device publishes, no other stores
            await jetstream.api("STREAM.CREATE.READINGS", {"name": "READINGS", "subjects": [subject]})
            for _ in range(count):
                await jetstream.publish(subject, b"hello")

    trio.run(run)
