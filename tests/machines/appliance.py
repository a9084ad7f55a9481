"""`make appliance`: the package on a machine of Debian that boots systemd: everything that happens to it in its life.

    .venv/bin/python tests/machines/appliance.py --release bookworm [--package FILE] [--seed 1] [STEP...]

The machine is emulated, with one core and 512 MB (`debian_machine.py`). Each step ends with the same question: is every message
that was ever acknowledged there, once, under its sequence? Steps build on each other; those that are named run, in their order.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from debian_machine import TOP, DebianImage, Machine
from failed_starts import FailedStarts
from ledger import Ledger
from over_the_air import OverTheAir, broken_version

from support.devices.upgrades import next_version
from support.servers.server_process import free_port
from support.termination import exit_at_sigterm

CONF = """
listen: "0.0.0.0:4222"
server_name: gateway
jetstream { domain: gateway }
leafnodes { remotes: [ { url: "nats-leaf://10.0.2.77:7422" } ] }
"""
#: Places of the device.
CONFIG_FILE = "/etc/eyot/conf.d/10-device.conf"
STORE_KEY = "only-this-machine-knows-it"
#: Ids of systemd's and Eyot's records in the journal: systemd/eyot.catalog.
LINK_NOT_ESTABLISHED, RELOAD_REFUSED = "f4acb930cd7a46189337ffb11c7a6ce8", "0a786fb76feb48a6a02db541152b871d"
WAIT_S = 300.0
#: Power cuts of each way, to the next version and back.
CUTS = 2


class Packages(NamedTuple):
    """`broken` and `newer` are later versions; the daemon of `broken` ends at once."""

    package: Path
    broken: Path
    newer: Path


class Appliance:
    """The machine, the package and the next version of it, and what was acknowledged."""

    def __init__(self, machine: Machine, packages: Packages, ledger: Ledger, moments: random.Random) -> None:
        self.machine = machine
        self.package, self.broken, self.newer = packages
        self.ledger = ledger
        self._moments = moments
        #: how long an installation takes, seconds
        self._takes_s = 0.0

    # -- what steps share ------------------------------------------------------------------------------------------------

    def apt(self, words: str, package: Path | None = None) -> None:
        """Run apt-get in the machine, asking nothing."""
        file = f" /srv/{package.name}" if package else ""
        self.machine.run(f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y {words}{file} 2>&1")

    def configure(self, text: str) -> None:
        """Write this device's own settings."""
        self.machine.run(f"cat >{CONFIG_FILE} <<'END'\n{text}\nEND")

    def shown(self, *properties: str) -> dict[str, str]:
        """Properties of the service, as systemd knows them."""
        said = self.machine.run(f"systemctl show eyotd -p {','.join(properties)}")
        return dict(line.split("=", 1) for line in said.splitlines())

    def await_active(self) -> None:
        """Wait until the service runs. Raises AssertionError."""
        self.wait(lambda: self.machine.try_run("systemctl is-active eyotd")[0] == 0, "the service does not run")

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Ask every second. Raises AssertionError with `what` and the journal."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}\n{self.journal('-n 40')}")
            time.sleep(1)

    def journal(self, words: str) -> str:
        """Records of the daemon."""
        return self.machine.run(f"journalctl --no-pager -q -u eyotd {words}")

    def version(self) -> str:
        """The installed version."""
        status, version = self.machine.run("dpkg-query -W -f '${db:Status-Status} ${Version}' eyot").split()
        assert status == "installed", status
        return version

    def check(self) -> str:
        """Compare, and publish on. Return what to print."""
        self.await_active()
        self.ledger.publish(20)
        return f"{self.ledger.check()} messages stored, {len(self.ledger.acknowledged)} acknowledged"

    # -- steps -----------------------------------------------------------------------------------------------------------

    def install(self) -> str:
        """apt installs the package; the service starts by itself and at every boot."""
        began = time.monotonic()
        self.apt("install", self.package)
        self._takes_s = time.monotonic() - began
        self.await_active()
        assert self.machine.run("systemctl is-enabled eyotd").strip() == "enabled"
        shown = self.shown("User", "MemoryHigh", "MemoryMax", "NotifyAccess", "WatchdogUSec")
        total = int(self.machine.run("awk '/MemTotal/ {print $2}' /proc/meminfo")) << 10
        assert (shown["User"], shown["WatchdogUSec"]) == ("eyot", "30s"), shown
        assert abs(int(shown["MemoryMax"]) - total * 3 // 4) < 1 << 20, (shown, total)
        return f"{self._takes_s:.0f} s; MemoryMax {int(shown['MemoryMax']) >> 20} MiB of {total >> 20} MiB"

    def credentials(self) -> str:
        """A key that only this machine can decrypt, as a credential: the store is encrypted with it from here on."""
        self.machine.run(
            f"printf %s {STORE_KEY} | systemd-creds encrypt --name=eyot-store-key - /etc/eyot/store-key.encrypted\n"
            "mkdir -p /etc/systemd/system/eyotd.service.d\n"
            "printf '[Service]\\nLoadCredentialEncrypted=eyot-store-key:/etc/eyot/store-key.encrypted\\n'"
            " >/etc/systemd/system/eyotd.service.d/key.conf\n"
            "systemctl daemon-reload; systemctl stop eyotd; rm -rf /var/lib/eyot/*"
        )
        self.configure(CONF)
        self.machine.run("systemctl start eyotd")
        self.ledger.publish(100)
        self.machine.run(f"! grep -q {STORE_KEY} /etc/eyot/store-key.encrypted")
        # Subjects are in clear in a store that is not encrypted.
        self.machine.run("! grep -rqa readings.a /var/lib/eyot")
        return self.check()

    def sandbox(self) -> str:
        """systemd's own measure of what the service may do, of the service as it runs."""
        said = self.machine.run("systemd-analyze security --no-pager --threshold=12 eyotd.service")
        (found,) = re.findall(r"exposure level for eyotd.service: ([0-9.]+)", said)
        return f"systemd-analyze security: {found}"

    def status(self) -> str:
        """The line of `systemctl status` tells of links, backlog and disk."""
        line = self.shown("StatusText")["StatusText"]
        for word in ("Serving", "links: 0 of 1 up", "free of"):
            assert word in line, line
        return line

    def reload(self) -> str:
        """A good change is taken; a bad one is refused, with an exit status and a record, and nothing changes."""
        self.configure(CONF + "max_payload: 2MB\n")
        self.machine.run("systemctl reload eyotd")
        for bad, named in (("max_payloud: 2MB\n", "max_payloud"), ("jetstream { domain: other }\n", "JetStreamDomain")):
            self.configure(CONF + bad)
            code, _ = self.machine.try_run("systemctl reload eyotd")
            assert code != 0, "systemctl does not tell that the daemon refused"
            assert named in self.journal("-n 60"), self.journal("-n 60")
        record = json.loads(self.journal(f"-o json -n 1 MESSAGE_ID={RELOAD_REFUSED}"))
        assert int(record["PRIORITY"]) <= 4, record
        explained = self.journal(f"-x -n 1 MESSAGE_ID={RELOAD_REFUSED}")
        assert "Nothing has changed: eyotd runs with the configuration from before." in explained, explained
        self.configure(CONF)
        self.machine.run("systemctl reload eyotd")
        return self.check()

    def journal_fields(self) -> str:
        """Records name link, priority and id as fields, and the catalog explains them."""
        found = self.journal(f"-o json MESSAGE_ID={LINK_NOT_ESTABLISHED}").splitlines()
        records = [json.loads(line) for line in found]
        assert records, "no record tells that the link cannot be established"
        assert all(record["EYOT_LINK"] and record["_SYSTEMD_UNIT"] == "eyotd.service" for record in records)
        explained = self.journal(f"-x -n 1 MESSAGE_ID={LINK_NOT_ESTABLISHED}")
        assert "Being offline is normal" in explained, explained
        assert f"The link {records[-1]['EYOT_LINK']} cannot be established" in explained, explained
        named = {json.loads(line)["PRIORITY"] for line in self.journal("-o json").splitlines()}
        assert len(named) > 1, named
        return f"{len(records)} records of the link {records[-1]['EYOT_LINK']}; priorities {sorted(named)}"

    def watchdog(self) -> str:
        """systemd restarts a daemon that hangs."""
        before = int(self.shown("NRestarts")["NRestarts"])
        self.machine.run("systemctl kill -s STOP eyotd")
        self.wait(lambda: int(self.shown("NRestarts")["NRestarts"]) > before, "a daemon that hangs is not restarted")
        assert "Watchdog timeout" in self.machine.run("journalctl --no-pager -q -u eyotd | grep -i watchdog")
        return self.check()

    def kill(self) -> str:
        """systemd restarts a daemon that was killed while it stored."""
        with self.ledger.publishing():
            for _ in range(3):
                before = int(self.shown("NRestarts")["NRestarts"])
                time.sleep(self._moments.uniform(1, 5))
                self.machine.run("systemctl kill -s KILL eyotd")
                self.wait(lambda: int(self.shown("NRestarts")["NRestarts"]) > before, "a killed daemon stays down")  # noqa: B023
                self.await_active()
        return self.check()

    def mistake(self) -> str:
        """A mistake in the configuration is not tried again: a restart repairs none."""
        return FailedStarts(self, CONF).mistake()

    def newer_store(self) -> str:
        """A store that a newer release wrote is not tried again."""
        return FailedStarts(self, CONF).newer_store()

    def late_file(self) -> str:
        """A file that is missing is tried again, without end."""
        return FailedStarts(self, CONF).late_file()

    def taken_port(self) -> str:
        """A port that is taken is tried again, after pauses, without end; the service comes when the port is free."""
        before = int(self.shown("NRestarts")["NRestarts"])
        self.machine.run("systemctl stop eyotd")
        self.machine.run(
            "systemd-run --quiet --collect --unit=taker /usr/bin/python3 -c"
            " \"import socket, time; s = socket.create_server(('0.0.0.0', 4222)); time.sleep(9999)\""
        )
        self.wait(lambda: self.machine.try_run("systemctl is-active taker")[0] == 0, "nobody takes the port")
        self.machine.run("systemctl start --no-block eyotd")
        self.wait(lambda: int(self.shown("NRestarts")["NRestarts"]) > before + 2, "the start is not tried again")
        self.machine.run("systemctl stop taker")
        return self.check()

    def upgrade(self) -> str:
        """apt installs the next version while clients publish."""
        with self.ledger.publishing():
            time.sleep(3)
            self.apt("install", self.newer)
            self.await_active()
        assert self.version().startswith("99."), self.version()
        return self.check()

    def rollback(self) -> str:
        """apt goes back while clients publish."""
        with self.ledger.publishing():
            time.sleep(3)
            self.apt("install --allow-downgrades", self.package)
            self.await_active()
        assert not self.version().startswith("99."), self.version()
        return self.check()

    def interrupted(self) -> str:
        """The power goes while apt installs the next version and while it goes back, and clients publish; what docs/operate/install.md says
        completes the installation.
        """
        states = []
        for number in range(2 * CUTS):
            package = self.package if number % 2 else self.newer
            with self.ledger.publishing():
                self.machine.begin(
                    f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --allow-downgrades /srv/{package.name}"
                )
                time.sleep(self._moments.uniform(2, self._takes_s + 5))
                self.machine.cut_power()
                self.machine.boot()
                states.append(self.machine.run("dpkg-query -W -f '${db:Status-Status}' eyot"))
                self.machine.try_run("DEBIAN_FRONTEND=noninteractive dpkg --configure -a")
                # apt would find no archive of a package that dpkg has half unpacked.
                self.machine.run(f"DEBIAN_FRONTEND=noninteractive dpkg -i /srv/{package.name} 2>&1")
                self.await_active()
            assert self.version().startswith("99.") == (number % 2 == 0), self.version()
            self.check()
        return f"{len(states)} power cuts, found {', '.join(states)}; {self.check()}"

    def reboot(self) -> str:
        """After a boot the service runs; how soon, and with how much memory."""
        self.machine.run("sync")
        self.machine.cut_power()
        self.machine.boot()
        self.await_active()
        said = self.check()
        pid = self.shown("MainPID")["MainPID"]
        resident = int(self.machine.run(f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status")) / 1024
        private = int(self.machine.run(f"awk '/RssAnon/ {{print $2}}' /proc/{pid}/status")) / 1024
        return f"{said}; resident {resident:.0f} MiB, of that private {private:.0f} MiB"

    def remove(self) -> str:
        """Removal keeps streams and configuration; the package comes back to them."""
        self.apt("remove eyot")
        code, _ = self.machine.try_run("systemctl is-active eyotd")
        assert code != 0
        self.machine.run(
            f"set -ex; test -e {CONFIG_FILE}; test -s /var/lib/eyot/eyot/data.mdb; test ! -e /usr/lib/eyot"
        )
        self.apt("install", self.package)
        return self.check()

    def purge(self) -> str:
        """Purging removes streams and configuration; a new installation is empty and runs."""
        self.apt("purge eyot")
        self.machine.run(
            "test ! -e /var/lib/eyot && test ! -e /etc/eyot && test ! -e /usr/lib/eyot && test ! -e /run/eyot\n"
            "! systemctl cat eyotd.service >/dev/null 2>&1 || systemctl cat eyotd.service | grep -q key.conf"
        )
        self.machine.run("rm -r /etc/systemd/system/eyotd.service.d; systemctl daemon-reload")
        self.apt("install", self.package)
        self.await_active()
        return self.machine.run("eyot stream ls --json").strip()

    def over_the_air(self) -> str:
        """A signed package in a bucket: the device goes back from a bad one, and to a good one across a power cut."""
        return OverTheAir(self.machine, self.broken, self.newer, self.check, self._moments).run()


STEPS: list[Callable[[Appliance], str]] = [
    Appliance.install,
    Appliance.credentials,
    Appliance.sandbox,
    Appliance.status,
    Appliance.journal_fields,
    Appliance.reload,
    Appliance.watchdog,
    Appliance.kill,
    Appliance.mistake,
    Appliance.newer_store,
    Appliance.late_file,
    Appliance.taken_port,
    Appliance.upgrade,
    Appliance.rollback,
    Appliance.interrupted,
    Appliance.reboot,
    Appliance.over_the_air,
    Appliance.remove,
    Appliance.purge,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="bookworm")
    parser.add_argument("--package", type=Path, help="default: what packaging/build-for has built")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(step.__name__ for step in STEPS))
    options = parser.parse_args()
    exit_at_sigterm()
    unknown = set(options.steps) - {step.__name__ for step in STEPS}
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    package = options.package or next((TOP / "build/packages" / options.release).glob("eyot_*.deb"))
    image = DebianImage(options.release)
    print(f"{options.release}, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="eyot-appliance-") as name:
        folder = Path(name)
        packages = Packages(package, broken_version(package, folder), next_version(package, folder))
        port = free_port()
        machine = Machine(folder, image, [*packages], port)
        appliance = Appliance(machine, packages, Ledger(port), random.Random(options.seed))
        try:
            machine.boot()
            for step in STEPS:
                if step in STEPS[:2] or not options.steps or step.__name__ in options.steps:
                    began = time.monotonic()
                    print(f"{step.__name__.replace('_', ' ')}: ", end="", flush=True)
                    print(f"{step(appliance)} ({time.monotonic() - began:.0f} s)", flush=True)
        except Exception:
            print(machine.console(), file=sys.stderr)
            raise
        finally:
            machine.cut_power()


if __name__ == "__main__":
    main()
