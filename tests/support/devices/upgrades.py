"""`make upgrades`: the package by dpkg from one version to the next and back, each killed on its way, over a store in use.

dpkg installs below a root of its own, where the package's scripts run and where the daemon is started from. At every change of the
version the daemon is killed by SIGKILL while it stores; dpkg is killed by SIGKILL at a random moment of the change, and then does what an
operator or apt does after that: it configures what is half configured and installs again. The daemon of each version must give
every message that was acknowledged before, once and in order, and store more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nats
from nats.js.api import StreamConfig

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.servers.server_process import ServerProcess

TOP = Path(__file__).parents[3]
PATIENCE_S = 60.0
CONFIG = 'jetstream { store_dir: "%WORKDIR%/js" }\neyot { control_socket: "%WORKDIR%/control.sock" }\n'


class Installed(ServerProcess):
    """The daemon as dpkg installed it below `root`."""

    name = "eyotd"

    def __init__(self, root: Path, workdir: Path) -> None:
        self.root = root
        super().__init__(CONFIG, workdir)

    def command(self) -> list[str]:
        return [str(self.root / "usr/bin/eyotd"), "-c", str(self.config_path)]


class Dpkg:
    """dpkg with a root and a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        (self.root / "var/lib/dpkg/info").mkdir(parents=True)
        (self.root / "var/lib/dpkg/updates").mkdir()
        (self.root / "var/lib/dpkg/status").touch()
        self._log = (folder / "dpkg.log").open("ab")
        self._command = ["dpkg", f"--root={self.root}", f"--log={folder / 'dpkg.actions'}"]
        # What the package depends on is this machine's.
        self._command += ["--force-script-chrootless", "--force-depends", "--force-downgrade"]

    def begin(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def install(self, package: Path) -> float:
        """Install; return how long it took, seconds."""
        began_s = time.monotonic()
        code = self.begin("-i", package).wait()
        if code != 0:
            raise SystemExit(f"dpkg -i {package.name}: exit code {code}; see {self._log.name}")
        return time.monotonic() - began_s

    def install_killed(self, package: Path, after_s: float) -> bool:
        """Begin to install, kill dpkg and its scripts after `after_s`; return whether they were still at it."""
        process = self.begin("-i", package)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own group: start_new_session
            process.wait()
            return True
        return False

    def recover(self) -> None:
        """Configure what is unpacked and not configured; what is half installed waits for the next `install`."""
        self.begin("--configure", "-a").wait()

    def version(self) -> str:
        shown = subprocess.run(
            [*self._command[:2], "-s", "eyot"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": os.environ["PATH"]},
        ).stdout
        assert "Status: install ok installed" in shown, shown
        return next(line.removeprefix("Version: ") for line in shown.splitlines() if line.startswith("Version: "))


def next_version(package: Path, folder: Path) -> Path:
    """The same package as the version after it."""
    return changed_package(package, folder, "99.", lambda tree: None)


def changed_package(package: Path, folder: Path, before: str, change: Callable[[Path], None]) -> Path:
    """The package with `change` made to its files, and `before` put before its version."""
    tree = folder / "changed"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    change(tree)
    control = (tree / "DEBIAN/control").read_text()
    (tree / "DEBIAN/control").write_text(re.sub(r"(?m)^Version: ", f"Version: {before}", control))
    name, version, architecture = package.name.split("_")
    made = folder / f"{name}_{before}{version}_{architecture}"
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "-b", tree, made], check=True, capture_output=True)
    shutil.rmtree(tree)
    return made


async def publish_and_kill(daemon: ServerProcess, stored: int, count: int) -> int:
    """Check what is stored, store at least `count` messages more, and kill the daemon while it stores. Return what was acknowledged."""
    client = await nats.connect(daemon.client_url(), connect_timeout=PATIENCE_S, allow_reconnect=False)
    jetstream = client.jetstream(timeout=PATIENCE_S)
    if not stored:
        await jetstream.add_stream(StreamConfig(name="READINGS", subjects=["readings.>"]))
    info = await jetstream.stream_info("READINGS")
    assert info.state.last_seq >= stored, f"{info.state.last_seq} messages of {stored} acknowledged ones"
    assert info.state.messages == info.state.last_seq
    for seq in range(1, info.state.last_seq + 1):
        message = await jetstream.get_msg("READINGS", seq)
        assert message.data == b"%d" % seq, f"message {seq} holds {message.data!r}"
    acknowledged = info.state.last_seq
    for seq in range(acknowledged + 1, acknowledged + count + 1):
        acknowledged = (await jetstream.publish("readings.a", b"%d" % seq)).seq
        assert acknowledged == seq
    # One more is on its way when the daemon is killed: it may be stored, or not.
    await client.publish("readings.a", b"%d" % (acknowledged + 1))
    await client.flush()
    daemon.kill()
    await client.close()
    return acknowledged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="upgrades, each with its way back")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("dpkg installs as root alone")
    print(f"seed {options.seed}")
    moments = random.Random(options.seed)
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    (package,) = (TOP / "dist").glob(f"eyot_*_{architecture.stdout.strip()}.deb")
    with tempfile.TemporaryDirectory() as folder:
        dpkg = Dpkg(Path(folder))
        newer = next_version(package, Path(folder))
        takes_s = dpkg.install(package)
        former = dpkg.version()
        daemon = Installed(dpkg.root, Path(folder) / "work")
        stored = killed = 0
        for change in range(2 * options.rounds + 1):
            daemon.start()
            stored = asyncio.run(publish_and_kill(daemon, stored, 100))
            if change == 2 * options.rounds:
                break
            following = package if change % 2 else newer
            if dpkg.install_killed(following, moments.uniform(0, takes_s)):
                killed += 1
                dpkg.recover()
            dpkg.install(following)
            assert dpkg.version() == (former if change % 2 else f"99.{former}")
    print(
        f"{2 * options.rounds} changes of the version, {killed} killed on their way: {stored} messages, every one there"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
