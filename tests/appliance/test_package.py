"""The Debian package: built, unpacked, and run from where it was unpacked, with nothing of this checkout in reach."""

from __future__ import annotations

import asyncio
import gzip
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from support.servers.server_process import ServerProcess

TOP = Path(__file__).parents[2]
#: What 0.1.0 shipped as /etc/eyot/eyotd.conf, to the byte: packaging/debian/rules knows its sum.
FORMER_CONFFILE = Path(__file__).with_name("eyotd-0.1.0.conf")


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's files and what its scripts make of them, as dpkg would install it under a root of its own (`dpkg --root`)."""
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    subprocess.run(["dpkg-deb", "-e", package, root / "DEBIAN"], check=True)
    script(root, "postinst", "configure", "")
    return root


def script(root: Path, name: str, *arguments: str) -> None:
    """Run one of the package's scripts on `root` alone."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DPKG_ROOT": str(root), "DPKG_MAINTSCRIPT_PACKAGE": "eyot"}
    env["DPKG_MAINTSCRIPT_NAME"] = name
    subprocess.run([root / "DEBIAN" / name, *arguments], check=True, env=env, stdin=subprocess.DEVNULL)


class Unpacked(ServerProcess):
    """The daemon of the package."""

    name = "eyotd"

    def __init__(self, root: Path, workdir: Path) -> None:
        self.root = root
        super().__init__(
            'jetstream { store_dir: "%WORKDIR%/store" }\neyot { control_socket: "%WORKDIR%/control.sock" }\n', workdir
        )

    def command(self) -> list[str]:
        return [str(self.root / "usr/bin/eyotd"), "-c", str(self.config_path)]


@pytest.fixture
def daemon(unpacked: Path, tmp_path: Path) -> Iterator[Unpacked]:
    process = Unpacked(unpacked, tmp_path)
    process.start()
    yield process
    assert process.stop() == 0


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_its_configuration_is_valid(unpacked: Path) -> None:
    assert "is valid" in run(unpacked / "usr/bin/eyotd", "-t", "-c", unpacked / "etc/eyot/eyotd.conf")


def test_it_has_the_files_that_its_pages_name(unpacked: Path) -> None:
    pages = [*(unpacked / "usr/share/doc/eyot/docs").rglob("*.md"), unpacked / "usr/share/doc/eyot/README.md"]
    named = {
        found
        for page in pages
        for found in re.findall(r"/usr/[a-z/]*/eyot/[A-Za-z0-9_./-]*[A-Za-z0-9]", page.read_text())
    }
    named.discard("/usr/libexec/eyot/container-health")  # of the OCI image
    assert "/usr/share/doc/eyot/examples/fleet.toml" in named
    assert {each for each in named if not (unpacked / each[1:]).exists()} == set()


def test_its_version_names_the_release(unpacked: Path) -> None:
    release = platform.freedesktop_os_release()
    version = re.search(r"^Version: (.*)$", (unpacked / "DEBIAN/control").read_text(), re.MULTILINE)
    assert version is not None
    assert version.group(1).endswith(f"+deb{release['VERSION_ID']}")
    with gzip.open(unpacked / "usr/share/doc/eyot/changelog.gz", "rt") as changelog:
        assert changelog.readline() == f"eyot ({version.group(1)}) {release['VERSION_CODENAME']}; urgency=medium\n"


def test_no_upgrade_asks_about_the_configuration(unpacked: Path) -> None:
    """dpkg asks about conffiles that somebody edited, and has no answer for those that somebody deleted: there are none."""
    assert not (unpacked / "DEBIAN/conffiles").exists()
    conf = unpacked / "etc/eyot/eyotd.conf"
    stub = conf.read_text()
    conf.write_text("port: 4333\n")
    script(unpacked, "postinst", "configure", "0.1.0+deb12")
    assert conf.read_text() == "port: 4333\n"
    conf.unlink()
    script(unpacked, "postinst", "configure", "0.1.0+deb12")
    assert conf.read_text() == stub
    conf.write_text("")  # left by a power cut
    script(unpacked, "postinst", "configure", "0.1.0+deb12")
    assert conf.read_text() == stub
    conf.write_text(FORMER_CONFFILE.read_text())
    script(unpacked, "postinst", "configure", "0.1.0")
    assert conf.read_text() == stub


def former_package(folder: Path) -> Path:
    """What matters of 0.1.0: the configuration as a conffile."""
    tree = folder / "former"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: eyot\nVersion: 0.1.0\nArchitecture: all\nMaintainer: Nobody <nobody@localhost>\nDescription: former\n"
    )
    (tree / "DEBIAN/conffiles").write_text("/etc/eyot/eyotd.conf\n")
    (tree / "etc/eyot").mkdir(parents=True)
    shutil.copy(FORMER_CONFFILE, tree / "etc/eyot/eyotd.conf")
    package = folder / "eyot_0.1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
    return package


def present_package(unpacked: Path, folder: Path) -> Path:
    """The package that was built, without what it depends on and without Python's modules, which take long to pack."""
    tree = folder / "present"
    shutil.copytree(
        unpacked, tree, symlinks=True, ignore=shutil.ignore_patterns("md5sums", "triggers", "python", "etc")
    )
    control = (tree / "DEBIAN/control").read_text()
    (tree / "DEBIAN/control").write_text(re.sub(r"(?m)^(Pre-)?Depends:.*\n( .*\n)*", "", control))
    (tree / "usr/lib/eyot/python").mkdir()
    package = folder / "present.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
    return package


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")
@pytest.mark.parametrize("edit", ["nothing", "edited", "deleted"])
def test_an_upgrade_leaves_no_obsolete_conffile(unpacked: Path, tmp_path: Path, edit: str) -> None:
    """By dpkg itself, below a root of its own, from 0.1.0: what was edited stays in force."""
    root = tmp_path / "root"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={root}", f"--log={tmp_path}/log", "--force-script-chrootless"]

    def install(package: Path) -> None:
        done = subprocess.run(
            [*dpkg, "-i", package], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr

    install(former_package(tmp_path))
    conf = root / "etc/eyot/eyotd.conf"
    if edit == "edited":
        conf.write_text("port: 4333\n")
    elif edit == "deleted":
        conf.unlink()
    install(present_package(unpacked, tmp_path))
    stub = (root / "usr/share/eyot/eyotd.conf").read_text()
    assert conf.read_text() == ("port: 4333\n" if edit == "edited" else stub)
    assert sorted(file.name for file in conf.parent.iterdir()) == ["conf.d", "eyotd.conf"]
    shown = subprocess.run(
        ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Conffiles}", "eyot"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == ""
    assert subprocess.run([*dpkg, "-V", "eyot"], capture_output=True, text=True, check=True).stdout == ""
    install(present_package(unpacked, tmp_path / "again"))
    assert conf.read_text() == ("port: 4333\n" if edit == "edited" else stub)


def test_what_is_the_devices_own_lies_in_conf_d(unpacked: Path) -> None:
    eyotd, conf = unpacked / "usr/bin/eyotd", unpacked / "etc/eyot/eyotd.conf"
    own = conf.parent / "conf.d" / "10-device.conf"
    own.write_text((unpacked / "usr/share/doc/eyot/examples/eyotd.conf").read_text())
    assert "is valid" in run(eyotd, "-t", "-c", conf)
    own.write_text("max_payloud: 1\n")
    done = subprocess.run([eyotd, "-t", "-c", conf], capture_output=True, text=True, check=False)
    assert (done.returncode, "10-device.conf:1:1" in done.stderr) == (1, True)
    own.unlink()


def test_its_configuration_is_not_for_everybody(unpacked: Path) -> None:
    assert (unpacked / "etc/eyot/eyotd.conf").stat().st_mode & 0o007 == 0


def unit_of(unpacked: Path) -> str:
    """The service's unit: debhelper installs it below /lib in Debian 12, below /usr/lib in Debian 13."""
    (unit,) = (path for top in ("lib", "usr/lib") if (path := unpacked / top / "systemd/system/eyotd.service").exists())
    return unit.read_text()


def test_its_unit_starts_what_it_ships(unpacked: Path) -> None:
    unit = unit_of(unpacked)
    assert "Type=notify" in unit
    assert "ExecStart=/usr/bin/eyotd -c /etc/eyot/eyotd.conf" in unit
    assert "StateDirectory=eyot" in unit
    assert "Documentation=man:eyotd(8) " in unit


def test_its_unit_is_closed_to_all_but_what_a_broker_needs(unpacked: Path, tmp_path: Path) -> None:
    """By systemd's own measure, from 0 (nothing is open) to 10."""
    unit = tmp_path / "eyotd.service"
    unit.write_text(unit_of(unpacked))
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=12", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Overall exposure level for eyotd.service" in checked.stdout + checked.stderr
    for line in ("MemoryHigh=60%", "MemoryMax=75%"):
        assert f"\n{line}\n" in unit.read_text()


def test_pauses_between_starts_grow(unpacked: Path, tmp_path: Path) -> None:
    """By systemd where it can (254 and later), else by a script before each start; a start that succeeds begins anew."""
    unit = unit_of(unpacked)
    script = unpacked / "usr/libexec/eyot/growing-pause"
    assert ("\nRestartSteps=" in unit) != script.exists()
    paused = tmp_path / "paused"
    pause = tmp_path / "pause"
    pause.write_text(f'#!/bin/sh\necho "$1" >>{paused}\n')
    pause.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "RUNTIME_DIRECTORY": str(tmp_path), "PAUSE": str(pause)}
    for word in ("begin",) * 9 + ("ready",) + ("begin",) * 2:
        subprocess.run([TOP / "packaging/growing-pause", word], env=env, check=True)
    assert paused.read_text().split() == ["2", "4", "8", "16", "32", "60", "60", "60", "2"]


def test_its_programs_have_pages_that_man_shows(unpacked: Path) -> None:
    pages = {page.name.split(".")[0]: page for page in (unpacked / "usr/share/man").glob("man*/*.gz")}
    programs = {program.name for program in (unpacked / "usr/bin").iterdir()}
    commands = pages.keys() - programs
    assert programs <= pages.keys()
    assert commands == {"eyot-trust", "eyot-upgrade"}, "commands of `eyot`, and units, with a page of their own"
    for name, page in pages.items():
        # -Z: warnings of what shows pages in a terminal are none of the page's
        shown = subprocess.run(
            ["man", "--warnings=w", "-E", "UTF-8", "-Tutf8", "-Z", "-l", page],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""},
        )
        assert shown.stderr == "", page
        named = subprocess.run(["lexgrog", page], capture_output=True, text=True, check=True).stdout
        assert f'"{name} - ' in named, page  # what apropos finds it by


def test_it_carries_dashboards_and_alert_rules(unpacked: Path) -> None:
    carried = unpacked / "usr/share/eyot"
    for name in ("grafana/eyot-device.json", "grafana/eyot-fleet.json", "prometheus/eyot.rules.yml"):
        assert (carried / name).read_bytes() == (TOP / "packaging" / name).read_bytes()
    assert (unpacked / "usr/share/doc/eyot/docs/operate/alerts.md").exists() or (
        unpacked / "usr/share/doc/eyot/docs/operate/alerts.md.gz"
    ).exists()


def test_it_leaves_the_hub_to_the_hub(unpacked: Path) -> None:
    carried = {path.name for path in (unpacked / "usr/lib/eyot/python").iterdir()}
    assert {"eyot_daemon", "trio", "lmdb", "msgspec"} <= carried
    assert carried.isdisjoint({"eyot_hub", "pyspark_jetstream", "pyspark", "pyarrow"})


def test_it_brings_bytecode_that_depends_on_no_time_of_files(unpacked: Path) -> None:
    python = unpacked / "usr/lib/eyot/python"
    for source in ("eyot_daemon/server.py", "eyot_wire/conf/values.py", "trio/__init__.py", "msgspec/__init__.py"):
        (compiled,) = (python / source).parent.glob(f"__pycache__/{Path(source).stem}.cpython-*.pyc")
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == 0b01, source  # by hash (PEP 552), and not even that is looked at


def test_it_stores_and_tells(unpacked: Path, daemon: Unpacked, tmp_path: Path) -> None:
    async def store() -> int:
        client = await nats.connect(daemon.client_url())
        jetstream = client.jetstream()
        await jetstream.add_stream(name="READINGS", subjects=["readings.>"])
        ack = await jetstream.publish("readings.a", b"21.5")
        await client.close()
        return ack.seq

    assert asyncio.run(store()) == 1
    eyot = unpacked / "usr/bin/eyot"
    assert "READINGS" in run(eyot, "--control", tmp_path / "control.sock", "status")
    assert "READINGS" in run(eyot, "-s", daemon.client_url(), "stream", "ls")
