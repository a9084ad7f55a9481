"""`make deb-emulated`: the package of another architecture as a leaf node under qemu-user, beside a hub of this machine's.

The package is unpacked, not installed, and runs on that architecture's own Python of Debian (packaging/foreign-python). Every
compiled module is loaded. Messages are published on the leaf node and acknowledged; it is killed by SIGKILL between rounds; the hub's
stream, which sources the leaf node's, must end with every acknowledged message once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.api import ExternalStream, StreamConfig, StreamSource

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess

TOP = Path(__file__).parents[3]
EMULATORS = {"arm64": "qemu-aarch64-static", "armhf": "qemu-arm-static"}
#: Generous: the machine emulates, others may use it, and the first start compiles all modules.
PATIENCE_S = 600.0

HUB = """
server_name: hub
jetstream { domain: hub, store_dir: "%WORKDIR%/js" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""
LEAF = """
server_name: leaf
jetstream {{ domain: leaf, store_dir: "%WORKDIR%/js" }}
leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{hub}" }} ] }}
eyot {{ control_socket: "%WORKDIR%/control.sock" }}
"""


class Package:
    """The unpacked package and what runs it."""

    def __init__(self, architecture: str, folder: Path) -> None:
        release = f"deb{platform.freedesktop_os_release()['VERSION_ID']}"
        (package,) = (TOP / "dist").glob(f"eyot_*_{architecture}.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        self.folder = folder
        self._root = TOP / "build/foreign" / f"{release}-{architecture}" / "root"
        self._emulator = EMULATORS[architecture]

    def command(self, *arguments: str | Path) -> list[str]:
        """That architecture's Python, isolated as in the launchers, with `arguments`."""
        (python,) = self._root.glob("usr/bin/python3.[0-9][0-9]")
        return [self._emulator, "-L", str(self._root), str(python), "-I", *map(str, arguments)]

    def run(self, *arguments: str | Path) -> str:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


class EmulatedEyotd(ServerProcess):
    """The package's daemon."""

    name = "emulated"

    def __init__(self, package: Package, config: str, workdir: Path) -> None:
        self.package = package
        super().__init__(config, workdir)

    def command(self) -> list[str]:
        return self.package.command(self.package.folder / "usr/bin/eyotd", "-c", self.config_path)

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        super().wait_ready(timeout_s)


def load_modules(package: Package) -> int:
    """Load every compiled module that pyproject.toml names; return how many there are."""
    named = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    # The hub's modules stay out of devices.
    modules = [module["name"] for module in named if not module["name"].startswith("eyot_hub.")]
    library = package.folder / "usr/lib/eyot/python"
    package.run(
        "-c",
        f"import sys, importlib; sys.path.insert(0, {str(library)!r}); [importlib.import_module(m) for m in {modules!r}]",
    )
    return len(modules)


def status(package: Package, leaf: ServerProcess) -> str:
    """What the package's `eyot status` shows. It waits some seconds for its answer, which an emulated daemon may need longer for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return package.run(package.folder / "usr/bin/eyot", "--control", leaf.workdir / "control.sock", "status")
        except SystemExit:
            if time.monotonic() > deadline:
                raise


async def publish(leaf: ServerProcess, first: int, count: int, *, create: bool) -> None:
    client = await nats.connect(leaf.client_url(), connect_timeout=PATIENCE_S)
    jetstream = client.jetstream(timeout=PATIENCE_S)
    if create:
        await jetstream.add_stream(StreamConfig(name="READINGS", subjects=["readings.>"]))
    for number in range(first, first + count):
        ack = await jetstream.publish("readings.a", b"%d" % number)
        assert ack.seq == number + 1, f"message {number} got sequence {ack.seq}"
    await client.close()


async def arrived(hub: ServerProcess, count: int) -> list[bytes]:
    """The hub's messages, once there are `count` of them; what there is when PATIENCE_S have passed."""
    client = await nats.connect(hub.client_url(), connect_timeout=int(PATIENCE_S))
    jetstream: JetStreamContext = client.jetstream(timeout=PATIENCE_S)
    source = StreamSource(name="READINGS", external=ExternalStream(api="$JS.leaf.API", deliver=""))
    await jetstream.add_stream(StreamConfig(name="ALL", sources=[source]))
    subscription = await jetstream.subscribe("", stream="ALL", ordered_consumer=True)
    found: list[bytes] = []
    try:
        while len(found) < count:
            found.append((await subscription.next_msg(timeout=PATIENCE_S)).data)
    except nats.errors.TimeoutError:
        pass
    await client.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=sorted(EMULATORS), default="arm64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100, help="a round's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        package = Package(options.arch, work / "package")
        print(f"{load_modules(package)} compiled modules load")
        with Eyotd(HUB, work / "hub") as hub:
            leaf = EmulatedEyotd(package, LEAF.format(hub=hub.leaf_port), work / "leaf")
            for round_number in range(options.rounds):
                leaf.start()
                first = round_number * options.messages
                asyncio.run(publish(leaf, first, options.messages, create=not round_number))
                leaf.kill()
            leaf.start()
            try:
                expected = [b"%d" % number for number in range(options.rounds * options.messages)]
                found = asyncio.run(arrived(hub, len(expected)))
                print(status(package, leaf))
            finally:
                leaf.kill()
        if found != expected:
            print(f"{len(found)} of {len(expected)} messages arrived, or not in order", file=sys.stderr)
            return 1
        print(f"{len(found)} messages, {options.rounds} kills: every message is at the hub once and in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
