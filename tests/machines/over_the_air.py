"""An upgrade over the air on a machine with systemd: a bad package, from which the device goes back, and a good one.

The bucket is the device's own: that a mirror of a hub's bucket holds the same is tested elsewhere (tests/interop/operation/test_upgrade_packages.py).
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from debian_machine import Machine

from support.devices.upgrades import changed_package

EYOT = Path(sys.executable).with_name("eyot")
SETTINGS = """
EYOT_UPGRADE_BUCKET=upgrades
EYOT_UPGRADE_RING=field
EYOT_UPGRADE_WATCH=1m
EYOT_UPGRADE_GRACE=30s
"""
#: From the fetch to the end, on an emulated processor that others use as well.
UPGRADE_S_MAX = 3600.0
STATE = "/var/lib/eyot-upgrade"
INSTALLER = "eyot-upgrade-install.service"


def broken_version(package: Path, folder: Path) -> Path:
    """A version between the package's and the next, whose daemon ends at once and stays down: only the way back starts the service."""

    def break_it(tree: Path) -> None:
        (tree / "usr/bin/eyotd").write_text("#!/bin/sh\nexit 78\n")

    return changed_package(package, folder, "98.", break_it)


class OverTheAir:
    """Publishes packages to the machine's bucket, and waits until the device has done with them."""

    def __init__(
        self, machine: Machine, broken: Path, newer: Path, check: Callable[[], str], moments: random.Random
    ) -> None:
        self._machine = machine
        self._broken, self._newer = broken, newer
        self._check = check
        self._moments = moments
        self._folder = machine.folder / "release"

    def run(self) -> str:
        """Both packages. Return what to print; raises AssertionError."""
        self._prepare()
        self._offer(self._broken)
        ended = self._await_end(lambda said: bool(said["refused"]))
        assert ended["last"]["outcome"] == "returned", ended
        former = ended["last"]["from"]
        assert ended["installed"] == former, ended
        code, _ = self._machine.try_run("eyot upgrade status")
        assert code == 4, f"the exit status after an upgrade that was rolled back is {code}"
        self._check()
        self._offer(self._newer)
        self._cut_power_during_the_installation()
        ended = self._await_end(lambda said: said["last"]["outcome"] != "returned")
        assert ended["last"]["outcome"] == "upgraded", ended
        assert ended["installed"].startswith("99."), ended
        return f"went back from {self._broken.name}, came to {ended['installed']} across a power cut; {self._check()}"

    def _prepare(self) -> None:
        """A key that the device pins, a bucket, and the units."""
        self._folder.mkdir()
        self._eyot("upgrade", "keygen", str(self._folder / "release.key"))
        public = (self._folder / "release.key.pub").read_text()
        self._eyot("object", "add", "upgrades")
        self._machine.run(
            f"install -d -m 755 /etc/eyot/upgrade-keys\ncat >/etc/eyot/upgrade-keys/release.pub <<'END'\n{public}\nEND\n"
            f"cat >/etc/eyot/upgrade.conf <<'END'\n{SETTINGS}\nEND\n"
            "systemctl enable --now eyot-upgrade.path"
        )

    def _offer(self, package: Path) -> None:
        """Sign and publish the package, and let the device look."""
        named = self._folder / package.name
        shutil.copy(package, named)
        self._eyot("upgrade", "sign", str(named), "--key", str(self._folder / "release.key"), "--ring", "field")
        self._eyot("upgrade", "publish", "upgrades", str(named))
        self._machine.run("systemctl start eyot-upgrade-fetch.service")

    def _eyot(self, *words: str) -> None:
        command = [str(EYOT), "-s", f"nats://127.0.0.1:{self._machine.port}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"

    def _cut_power_during_the_installation(self) -> None:
        states = ("activating", "active")
        self._wait(lambda: self._machine.try_run(f"systemctl is-active {INSTALLER}")[1].strip() in states)
        time.sleep(self._moments.uniform(0, 10))
        self._machine.cut_power()
        self._machine.boot()

    def _await_end(self, is_it: Callable[[Any], bool]) -> Any:
        """Wait until no upgrade is under way and `is_it` holds; return what `eyot upgrade status` says."""
        found: Any = None

        def ended() -> bool:
            nonlocal found
            # Python takes seconds to start there: it is not to slow down what it asks about.
            if self._machine.try_run(f"test -e {STATE}/last.json && test ! -e {STATE}/state.json")[0] != 0:
                return False
            _, text = self._machine.try_run("eyot upgrade status --json")
            found = json.loads(text) if text.startswith("{") else None
            return found is not None and found["under_way"] is None and found["last"] is not None and is_it(found)

        self._wait(ended)
        return found

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + UPGRADE_S_MAX
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(self._machine.run("journalctl --no-pager -q -u 'eyot*' -n 60"))
            time.sleep(2)
