"""`make image-run`: the OCI image, unpacked by umoci and run as its configuration says, without a container engine.

skopeo checks every digest; umoci unpacks the image and derives the runtime's configuration. The daemon runs as that says: in its root file
system, as its user, in mount and process namespaces of its own, the store on a folder that outlives the root. Messages are
published and acknowledged, the daemon is killed, and a second container over a fresh root must have every message. The health check
must pass while the daemon runs and fail when it does not. SIGTERM must end it cleanly although it is process 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nats
from nats.js.api import StreamConfig

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.servers.server_process import ServerProcess

TOP = Path(__file__).parents[3]
MESSAGES = 200
#: Generous: others may use the machine.
PATIENCE_S = 60.0
#: The device's own settings, mounted over conf.d as an operator does. The runner is root and shares its network.
DEVICE = "listen: 127.0.0.1:%CLIENT_PORT%\nhttp: 127.0.0.1:%MONITOR_PORT%\n"
#: What a runtime mounts: gone with the namespace.
ENTER = """
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount --bind "$2" "$1/var/lib/eyot"
mount --bind -o ro "$3" "$1/etc/eyot/conf.d"
root="$1" user="$4"
shift 4
exec chroot --userspec="$user" "$root" "$@"
"""


class Image:
    """The archive in dist for this machine's Debian and architecture, as an OCI layout in `folder`."""

    def __init__(self, folder: Path) -> None:
        architecture = subprocess.run(
            ["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
        release = platform.freedesktop_os_release()["VERSION_ID"]
        (archive,) = (TOP / "dist").glob(f"eyot_*+deb{release}_{architecture}.oci.tar")
        self._layout = folder / "layout"
        # Copying reads every blob and compares its digest.
        subprocess.run(
            ["skopeo", "copy", "--quiet", "--insecure-policy", f"oci-archive:{archive}", f"oci:{self._layout}:image"],
            check=True,
        )
        inspected = ["skopeo", "inspect", "--config", f"oci:{self._layout}:image"]
        self.config: dict[str, Any] = json.loads(subprocess.run(inspected, stdout=subprocess.PIPE, check=True).stdout)[
            "config"
        ]

    def unpack(self, bundle: Path) -> dict[str, Any]:
        """Unpack into `bundle`; return the runtime's configuration."""
        command = ["umoci", "unpack", "--image", f"{self._layout}:image", str(bundle)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        configuration: dict[str, Any] = json.loads((bundle / "config.json").read_text())
        return configuration


class Container(ServerProcess):
    """The image's daemon over the folder `store`."""

    name = "container"

    def __init__(self, image: Image, store: Path, workdir: Path) -> None:
        self.bundle = workdir / "bundle"
        process = image.unpack(self.bundle)["process"]
        self._user = f"{process['user']['uid']}:{process['user']['gid']}"
        assert process["user"]["uid"] != 0, "the image runs as root"
        self._environment = process["env"]
        self._arguments = process["args"]
        self._store = store
        self._conf_d = workdir / "conf.d"
        self._conf_d.mkdir(parents=True)
        super().__init__(DEVICE, workdir)
        shutil.copy(self.config_path, self._conf_d / "10-device.conf")
        (self._conf_d / "10-device.conf").chmod(0o644)

    def command(self) -> list[str]:
        return self._inside(self._arguments)

    def _inside(self, arguments: list[str]) -> list[str]:
        """What runs `arguments` in the root, with its mounts and environment, as its user."""
        enter = [ENTER, "enter", self.bundle / "rootfs", self._store, self._conf_d, self._user]
        unshare = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "bash", "-euc", *enter]
        return [str(word) for word in [*unshare, "/usr/bin/env", "-i", *self._environment, *arguments]]

    def first_process(self) -> int:
        """The daemon's process id as this machine sees it."""
        return self._children()[0]

    def _children(self) -> list[int]:
        return [int(child) for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def kill(self) -> None:
        """SIGKILL for process 1 of the namespace, which takes all others along.

        `unshare` alone would not do: the kernel forgets --kill-child where chroot changes the user.
        """
        if self.running and (children := self._children()):
            os.kill(children[0], signal.SIGKILL)
            assert self.process is not None
            self.process.wait(PATIENCE_S)
        super().kill()

    def healthy(self, test: list[str]) -> bool:
        """Run the image's health check in the container's root, as its user."""
        assert test[0] == "CMD"
        done = subprocess.run(self._inside(test[1:]), capture_output=True, text=True, check=False)
        print(f"health check: exit code {done.returncode} {done.stderr.strip()}")
        return done.returncode == 0


async def publish(server: ServerProcess) -> None:
    client = await nats.connect(server.client_url())
    jetstream = client.jetstream(timeout=PATIENCE_S)
    await jetstream.add_stream(StreamConfig(name="READINGS", subjects=["readings.>"]))
    for number in range(MESSAGES):
        await jetstream.publish("readings.a", b"%d" % number)
    await client.close()


async def stored(server: ServerProcess) -> list[bytes]:
    client = await nats.connect(server.client_url())
    jetstream = client.jetstream(timeout=PATIENCE_S)
    found = [(await jetstream.get_msg("READINGS", sequence)).data or b"" for sequence in range(1, MESSAGES + 1)]
    await client.close()
    return found


def run(image: Image, work: Path) -> None:
    store = work / "store"
    store.mkdir(mode=0o750)
    user, group = map(int, image.config["User"].split(":"))
    os.chown(store, user, group)
    assert set(image.config["Volumes"]) == {"/var/lib/eyot"}
    health = (
        image.config["Healthcheck"]["Test"]
        if "Healthcheck" in image.config
        else ["CMD", "/usr/libexec/eyot/container-health"]
    )

    first = Container(image, store, work / "first")
    first.start()
    try:
        status = Path(f"/proc/{first.first_process()}/status").read_text()
        assert f"\nUid:\t{user}\t{user}\t{user}\t{user}\n" in status, status
        assert "\nCapEff:\t0000000000000000\n" in status, status
        asyncio.run(publish(first))
        assert first.healthy(health)
    finally:
        first.kill()
    assert not first.healthy(health)

    second = Container(image, store, work / "second")
    second.start()
    try:
        assert asyncio.run(stored(second)) == [b"%d" % number for number in range(MESSAGES)]
        os.kill(second.first_process(), signal.SIGTERM)
        assert second.process is not None
        code = second.process.wait(PATIENCE_S)
        assert code == 0, f"exit code {code} after SIGTERM:\n{second.log()[-2000:]}"
    finally:
        second.kill()
    print(f"{MESSAGES} messages outlive SIGKILL and the container; user {user}, no capabilities; SIGTERM ends it")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)
        run(Image(work), work)


if __name__ == "__main__":
    main()
