"""The package's scripts and dpkg, ended by a power cut before everything that they change, and completed as docs/operate/install.md says.

EYOT_CUTS_EVERY=1 takes every cut of dpkg (`make upgrades`), else every ninth.
"""

from __future__ import annotations

import marshal
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.store.memory_folder import memory_folder
from support.store.power_cuts_of_files import PowerCuts

FORMER_CONFFILE = Path(__file__).with_name("eyotd-0.1.0.conf")
EDITED = "port: 4333\n"
MODULES = ("__init__.py", "inner/__init__.py")
EVERY = int(os.environ.get("EYOT_CUTS_EVERY", "9"))
#: debhelper's, which nobody cuts here: they would take most of the time
FAKED = ("deb-systemd-helper", "deb-systemd-invoke")
#: in memory, bytes: the whole package once, and the states of its scripts
ROOM = 1 << 30
LEFT_OUT = ("python", "doc", "man", "grafana", "prometheus", "lintian")


class Unpacked:
    """The package's files below a root of their own, with two small modules instead of all that it carries."""

    def __init__(self, package: Path, folder: Path) -> None:
        self.root, self._scripts, programs = folder / "root", folder / "scripts", folder / "programs"
        whole = folder / "whole"
        subprocess.run(["dpkg-deb", "-x", package, whole], check=True)
        shutil.copytree(whole, self.root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        shutil.rmtree(whole)
        subprocess.run(["dpkg-deb", "-e", package, self._scripts], check=True)
        self.python = self.root / "usr/lib/eyot/python"
        for name in MODULES:
            path = self.python / "eyot_small" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("ANSWER = 42\n")
        programs.mkdir()
        for name in FAKED:
            (programs / name).symlink_to("/bin/true")
        self.environment = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin", "DPKG_ROOT": str(self.root)}
        self.environment |= {"DPKG_MAINTSCRIPT_PACKAGE": "eyot", "LC_ALL": "C.UTF-8"}
        self.conf = self.root / "etc/eyot/eyotd.conf"
        self.stub = (self.root / "usr/share/eyot/eyotd.conf").read_text()

    def command(self, script: str, *words: str) -> list[str | Path]:
        self.environment["DPKG_MAINTSCRIPT_NAME"] = script
        return [self._scripts / script, *words]

    def run(self, script: str, *words: str) -> None:
        done = subprocess.run(
            self.command(script, *words), capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def packed(self, version: str, module: str) -> Path:
        """A package of these files and the package's own scripts, with a further module, and without units and dependencies."""
        tree = self.root.with_name(version)
        shutil.copytree(self.root, tree, symlinks=True, ignore=shutil.ignore_patterns("systemd", "etc"))
        (tree / "usr/lib/eyot/python/eyot_small" / module).write_text("ANSWER = 43\n")
        (tree / "usr/share/version").write_text(version)
        shutil.copytree(self._scripts, tree / "DEBIAN", ignore=shutil.ignore_patterns("md5sums", "triggers"))
        control = (tree / "DEBIAN/control").read_text()
        control = re.sub(r"(?m)^(Pre-)?Depends:.*\n( .*\n)*", "", control)
        (tree / "DEBIAN/control").write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", control))
        made = self.root.with_name(f"{version}.deb")
        command: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, made]
        subprocess.run(command, check=True, capture_output=True)
        return made

    def consists_of(self, tree: Path) -> None:
        """Its files are whole, and nothing of another version is left."""
        files = {path.relative_to(tree): path for path in (tree / "usr").rglob("*") if path.is_file()}
        assert len(files) > 10
        for name, path in files.items():
            assert (self.root / name).read_bytes() == path.read_bytes(), name
        found = {path.relative_to(self.root) for path in (self.root / "usr").rglob("*") if path.is_file()}
        assert {path for path in found - files.keys() if path.suffix != ".pyc"} == set()
        self.has_bytecode()

    def has_bytecode(self) -> None:
        """Every module's is whole."""
        for source in self.python.rglob("*.py"):
            (compiled,) = source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
            assert marshal.loads(compiled.read_bytes()[16:]).co_names == ("ANSWER",)


@pytest.fixture
def unpacked(package: Path) -> Iterator[Unpacked]:
    with memory_folder(ROOM) as folder:
        yield Unpacked(package, folder)


@pytest.fixture(scope="module")
def power_cuts(tmp_path_factory: pytest.TempPathFactory) -> PowerCuts:
    return PowerCuts(tmp_path_factory.mktemp("power-cuts"))


@pytest.mark.skipif(os.geteuid() != 0, reason="files get owners")
@pytest.mark.parametrize("before", ["nothing", "former", "edited"])
def test_a_configuration_that_is_cut_anywhere_is_completed(
    unpacked: Unpacked, power_cuts: PowerCuts, before: str
) -> None:
    """`before`: of 0.1.0's configuration file, which dpkg's own helper has put aside if somebody edited it."""
    unpacked.conf.parent.mkdir(parents=True, exist_ok=True)
    aside = unpacked.conf.with_name("eyotd.conf.dpkg-backup")
    if before == "former":
        shutil.copy(FORMER_CONFFILE, unpacked.conf)
    elif before == "edited":
        aside.write_text(EDITED)
    root = unpacked.root
    cuts = power_cuts.of(
        unpacked.command("postinst", "configure", "0.1.0"), root, root.with_name("snapshots"), unpacked.environment
    )
    assert len(cuts) >= 10
    # Nothing of it may be lost once dpkg has noted that the package is configured.
    assert cuts[-1].unflushed == ()
    for cut in cuts:
        try:
            cut.put(root)
            kept = [path.read_text() for path in (unpacked.conf, aside) if path.exists()]
            assert before != "edited" or EDITED in kept
            unpacked.run("postinst", "configure", "0.1.0")
            assert unpacked.conf.read_text() == (EDITED if before == "edited" else unpacked.stub)
            assert unpacked.conf.stat().st_mode & 0o777 == 0o640
            assert not aside.exists()
            assert sorted(each.name for each in unpacked.conf.parent.iterdir()) == ["conf.d", "eyotd.conf"]
            unpacked.has_bytecode()
        except BaseException as error:
            error.add_note(str(cut))
            raise


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root alone")
@pytest.mark.slow
def test_an_upgrade_that_is_cut_anywhere_is_completed(unpacked: Unpacked, power_cuts: PowerCuts) -> None:
    """Cut inside of dpkg, too; then `dpkg --configure -a` and the same installation again."""
    former, new = unpacked.packed("1.0", "former.py"), unpacked.packed("2.0", "new.py")
    shutil.rmtree(unpacked.root)
    for name in ("info", "updates"):
        (unpacked.root / "var/lib/dpkg" / name).mkdir(parents=True)
    (unpacked.root / "var/lib/dpkg/status").touch()
    dpkg: list[str | Path] = ["dpkg", f"--root={unpacked.root}", f"--log={unpacked.root}/log", "--no-triggers"]
    dpkg += ["--force-script-chrootless", "--no-force-unsafe-io"]
    environment = unpacked.environment

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*dpkg, *words], capture_output=True, text=True, check=False, env=environment)

    assert run("-i", former).returncode == 0
    own = unpacked.conf.parent / "conf.d/10-device.conf"
    own.write_text(EDITED)
    cuts = power_cuts.of([*dpkg, "-i", new], unpacked.root, unpacked.root.with_name("snapshots"), unpacked.environment)
    assert len(cuts) >= 100
    for cut in (*cuts[::EVERY], cuts[-1]):
        try:
            cut.put(unpacked.root)
            run("--configure", "-a")
            done = run("-i", new)
            assert done.returncode == 0, done.stdout + done.stderr
            status = (unpacked.root / "var/lib/dpkg/status").read_text()
            assert "Status: install ok installed" in status
            assert "Version: 2.0" in status
            unpacked.consists_of(unpacked.root.with_name("2.0"))
            assert (unpacked.conf.read_text(), own.read_text()) == (unpacked.stub, EDITED)
        except BaseException as error:
            error.add_note(str(cut))
            raise


def test_a_change_that_does_not_come_about_leaves_bytecode(unpacked: Unpacked) -> None:
    """The disk is full, for example: dpkg tells the package that is there by `abort-`."""
    unpacked.run("postinst", "configure", "")
    for undone in (("abort-upgrade", "99"), ("abort-remove",)):
        unpacked.run("prerm", "upgrade", "99")
        assert not list(unpacked.python.rglob("*.pyc"))
        unpacked.run("postinst", *undone)
        unpacked.has_bytecode()
