"""The signed repository of `make apt-repo`, read by apt-get itself in a root of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
APT_REPO = TOP / "packaging/apt-repo"
#: What apt 2.6 and 3.0 say of a file that is not what the signed index names.
CHANGED = "unexpected size|Hash Sum mismatch|Undetermined Error"


def make_key(folder: Path, name: str, passphrase: str = "") -> Path:
    """A throw-away secret key in a file, its keyring gone again."""
    home = folder / f"gnupg-{name}"
    home.mkdir(mode=0o700)
    (home / "gpg-agent.conf").write_text("s2k-count 65536\n")  # else the agent measures the machine for seconds
    gpg = [
        "gpg",
        "--homedir",
        str(home),
        "--batch",
        "--quiet",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        passphrase,
    ]
    subprocess.run([*gpg, "--quick-generate-key", name, "ed25519", "sign", "never"], check=True)
    key = folder / f"{name}.asc"
    key.write_bytes(
        subprocess.run([*gpg, "--armor", "--export-secret-keys"], stdout=subprocess.PIPE, check=True).stdout
    )
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    # The agent removes its sockets while it ends: rm takes no offence at what is gone already.
    subprocess.run(["rm", "-rf", str(home)], check=True)
    return key


def make_package(folder: Path, version: str, architecture: str = "amd64", content: str = "") -> Path:
    """A package named eyot of which only the version and one file matter."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share/eyot").mkdir(parents=True)
    (tree / "usr/share/eyot/version").write_text(f"{version}{content}\n")
    (tree / "DEBIAN/control").write_text(
        f"Package: eyot\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: a test <test@example>\n"
        "Description: a package of a test\n"
    )
    tree.chmod(0o755)
    (tree / "DEBIAN").chmod(0o755)
    package = folder / f"eyot_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return package


def publish(repository: Path, key: Path, *packages: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [APT_REPO, repository, *packages],
        env=os.environ | {"KEY": str(key)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


class Apt:
    """apt-get with a root of its own: no source, key, package or setting of this machine's."""

    def __init__(self, root: Path, repository: Path, suite: str, keyring: Path, architecture: str = "amd64") -> None:
        self.root = root
        for folder in (
            "etc/apt",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg/updates",
        ):
            (root / folder).mkdir(parents=True)
        for file in ("var/lib/dpkg/status", "var/lib/dpkg/available"):
            (root / file).touch()
        (root / "var/lib/dpkg/info").mkdir()
        (root / "var/lib/dpkg/triggers").mkdir()
        (root / "etc/apt/sources.list").write_text(
            f"deb [signed-by={keyring} arch={architecture}] copy:{repository} {suite} main\n"
        )
        config = root / "apt.conf"
        config.write_text(
            f'Dir "{root}/";\nDir::State::status "{root}/var/lib/dpkg/status";\nDir::Log "{root}/";\n'
            f'APT::Architecture "{architecture}";\nAPT::Architectures "{architecture}";\n'
            'APT::Sandbox::User "root";\nAPT::Install-Recommends "false";\nAcquire::Languages "none";\n'
            f'DPkg::Options {{ "--root={root}"; "--force-not-root"; "--force-bad-path"; "--force-architecture"; }};\n'
        )
        self._environment = os.environ | {"APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}

    def get(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["apt-get", "--yes", "-o", "APT::Update::Error-Mode=any", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    def done(self, *arguments: str) -> str:
        """What apt-get prints; it must succeed."""
        result = self.get(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def refused(self, *arguments: str) -> str:
        """What apt-get says; it must fail."""
        result = self.get(*arguments)
        assert result.returncode != 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def installed(self) -> str:
        return (self.root / "usr/share/eyot/version").read_text().strip()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"), "archive")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    packages = [
        make_package(folder, "0.1.0+deb12"),
        make_package(folder, "0.2.0+deb12"),
        make_package(folder, "0.2.0+deb12", "arm64"),
        make_package(folder, "0.2.0+deb13"),
    ]
    done = publish(folder / "apt", key, *packages)
    assert done.returncode == 0, done.stderr
    return folder / "apt"


@pytest.fixture
def repository(published: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(published, tmp_path / "apt")


def apt(tmp_path: Path, repository: Path, suite: str = "bookworm", **others: str) -> Apt:
    return Apt(tmp_path / "root", repository, suite, repository / "eyot-archive.gpg", **others)


def test_apt_installs_upgrades_and_goes_back(repository: Path, tmp_path: Path) -> None:
    device = apt(tmp_path, repository)
    device.done("update")
    device.done("install", "eyot=0.1.0+deb12")
    assert device.installed() == "0.1.0+deb12"
    device.done("upgrade")
    assert device.installed() == "0.2.0+deb12"
    device.done("install", "--allow-downgrades", "eyot=0.1.0+deb12")
    assert device.installed() == "0.1.0+deb12"


@pytest.mark.parametrize(
    ("suite", "architecture", "version"),
    [
        ("bookworm", "arm64", "0.2.0+deb12"),
        ("trixie", "amd64", "0.2.0+deb13"),
    ],
)
def test_a_device_gets_its_releases_own_package(
    repository: Path, tmp_path: Path, suite: str, architecture: str, version: str
) -> None:
    device = apt(tmp_path, repository, suite, architecture=architecture)
    device.done("update")
    device.done("install", "eyot")
    assert device.installed() == version
    assert f"Architecture: {architecture}\n" in (device.root / "var/lib/dpkg/status").read_text()


def test_the_detached_signature_serves_too(repository: Path, tmp_path: Path) -> None:
    (repository / "dists/bookworm/InRelease").unlink()
    device = apt(tmp_path, repository)
    device.done("update")
    device.done("install", "eyot")
    assert device.installed() == "0.2.0+deb12"


def test_a_changed_release_is_refused(repository: Path, tmp_path: Path) -> None:
    signed = repository / "dists/bookworm/InRelease"
    signed.write_text(signed.read_text().replace("Origin: Eyot", "Origin: Nobody"))
    assert "signature" in apt(tmp_path, repository).refused("update")


def test_a_changed_index_is_refused(repository: Path, tmp_path: Path) -> None:
    folder = repository / "dists/bookworm/main/binary-amd64"
    changed = (folder / "Packages").read_text().replace("0.2.0", "9.9.9")
    for file in folder.iterdir():
        file.unlink()
    (folder / "Packages").write_text(changed)
    device = apt(tmp_path, repository)
    assert re.search(CHANGED, device.refused("update"))
    assert "9.9.9" not in device.get("install", "--simulate", "eyot").stdout


def test_a_changed_package_is_refused(repository: Path, tmp_path: Path) -> None:
    package = repository / "pool/bookworm/eyot_0.2.0+deb12_amd64.deb"
    content = bytearray(package.read_bytes())
    content[-1] ^= 1
    package.write_bytes(content)
    device = apt(tmp_path, repository)
    device.done("update")
    assert re.search(CHANGED, device.refused("install", "eyot"))
    assert not (device.root / "usr/share/eyot/version").exists()
    assert not (device.root / "usr").exists()


def test_another_key_is_refused(repository: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other")
    package = make_package(tmp_path, "0.3.0+deb12")
    keyring = tmp_path / "pinned.gpg"
    shutil.copy(repository / "eyot-archive.gpg", keyring)
    assert publish(repository, other, package).returncode == 0
    device = Apt(tmp_path / "root", repository, "bookworm", keyring)
    assert "not signed" in device.refused("update")


def test_what_was_published_stays(repository: Path, key: Path, tmp_path: Path) -> None:
    added = publish(repository, key, make_package(tmp_path, "0.3.0+deb12"))
    assert added.returncode == 0, added.stderr
    device = apt(tmp_path, repository)
    device.done("update")
    for version in ("0.3.0+deb12", "0.1.0+deb12"):
        device.done("install", "--allow-downgrades", f"eyot={version}")
        assert device.installed() == version


def test_a_version_is_published_once(repository: Path, key: Path, tmp_path: Path) -> None:
    before = (repository / "dists/bookworm/InRelease").read_bytes()
    again = publish(repository, key, make_package(tmp_path, "0.2.0+deb12", content=" changed"))
    assert again.returncode == 65
    assert "raise the version" in again.stderr
    assert (repository / "dists/bookworm/InRelease").read_bytes() == before


def test_a_version_without_release_is_refused(key: Path, tmp_path: Path) -> None:
    done = publish(tmp_path / "apt", key, make_package(tmp_path, "0.2.0"))
    assert done.returncode == 65
    assert "neither in +deb12 nor in +deb13" in done.stderr
    assert not (tmp_path / "apt").exists()


def test_a_key_may_have_a_passphrase(tmp_path: Path) -> None:
    secret = make_key(tmp_path, "guarded", "open sesame")
    package = make_package(tmp_path, "0.2.0+deb13")
    assert publish(tmp_path / "shut", secret, package).returncode != 0
    assert not (tmp_path / "shut/dists").exists()
    (tmp_path / "passphrase").write_text("open sesame\n")
    done = publish(tmp_path / "apt", secret, package, KEY_PASSPHRASE=os.path.relpath(tmp_path / "passphrase"))
    assert done.returncode == 0, done.stderr
    apt(tmp_path, tmp_path / "apt", "trixie").done("update")


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    done = publish(tmp_path / "apt", tmp_path / "none.asc", make_package(tmp_path, "0.2.0+deb13"))
    assert done.returncode == 66
    assert "KEY names no readable file" in done.stderr
