"""What each target of the Makefile installs of Debian's packages: its own and no other's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LISTED = {
    package.strip(): set(groups.replace(" ", "").split(","))
    for line in (TOP / "packaging/debian-packages.txt").read_text().splitlines()
    if not line.startswith("#")
    for groups, package, _ in [line.split("|", 2)]
}
OF_TESTS = {
    "nodejs",
    "npm",
    "libnats-dev",
    "libpaho-mqtt-dev",
    "util-linux",
    "systemd",
    "chromium",
    "libfaketime",
    "softhsm2",
    "swtpm",
    "libtss2-tcti-swtpm0",
    "tpm2-tools",
    "lintian",
    "mosquitto",
    "mosquitto-clients",
    "prometheus",
}
OF_DEB = {"debhelper", "dpkg-dev", "man-db", "fakeroot"}
OF_APT_REPO = {"apt-utils", "gpg", "gpg-agent", "xz-utils"}


def installs(*words: str) -> set[str]:
    """The packages that `make WORDS` would see to on a machine that has none."""
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", *words], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout
    groups = {group for line in re.findall(r"packaging/ensure-packages ([\w -]+)", said) for group in line.split()}
    assert groups <= {group for found in LISTED.values() for group in found}
    return {package for package, found in LISTED.items() if found & groups}


BASE = {"python3", "python3-venv", "gcc", "python3-dev", "ca-certificates"}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["venv"], set()),
        (["lint"], set()),
        (["unit"], set()),
        (["slow"], set()),
        (["simulate"], set()),
        (["fuzz"], set()),
        (["soak"], set()),
        (["mqtt-kills"], set()),
        (["demo"], {"default-jre-headless"}),
        (["demo", "DEMO=--hub nats-server"], {"default-jre-headless", "nats-server"}),
        (["damage"], set()),
        (["hub-dag"], set()),
        (["cuts"], {"nats-server"}),
        (["storm"], {"nats-server"}),
        (["walkthrough"], {"nats-server"}),
        (["bench"], {"nats-server", "iproute2", "mosquitto"}),
        (["bench-compare"], {"iproute2"}),
        (["bench-hub"], {"nats-server", "default-jre-headless"}),
        (["hub-kills"], {"nats-server", "default-jre-headless"}),
        (["hub-wheel"], {"nats-server", "default-jre-headless"}),
        (["hub-cluster"], {"nats-server", "default-jre-headless"}),
        (["hub-cluster-kills"], {"nats-server", "default-jre-headless"}),
        (["upgrades"], OF_DEB),
        (["image-run"], {"skopeo", "umoci"}),
        (["power-loss"], {"qemu-system-x86", "busybox-static", "e2fsprogs"}),
        (["appliance"], OF_DEB | {"qemu-system-x86", "mmdebstrap", "e2fsprogs"}),
        (["test"], {"nats-server", "iproute2", "default-jre-headless"} | OF_TESTS | OF_DEB | OF_APT_REPO),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_target_installs_its_own(words: list[str], more: set[str]) -> None:
    assert installs(*words) == BASE | more


@pytest.mark.parametrize("target", ["deb", "reproducible"])
def test_the_package_is_built_with_what_it_names(target: str) -> None:
    assert installs(target) == {"python3", "python3-venv", "gcc", "python3-dev"} | OF_DEB


def test_another_architecture_needs_its_compiler() -> None:
    for name in ("arm64", "armhf"):
        assert installs("deb", f"ARCH={name}") == installs("deb") | {f"crossbuild-essential-{name}"}
    assert installs("deb-emulated") == BASE | OF_DEB | {"crossbuild-essential-arm64", "qemu-user-static"}


def test_repository_and_image_are_made_without_building() -> None:
    assert installs("apt-repo", "KEY=secret.asc") == OF_APT_REPO
    assert installs("image") == {"mmdebstrap", "uidmap"}


def test_no_target_was_forgotten() -> None:
    """A new target that needs packages is named above."""
    makefile = (TOP / "Makefile").read_text()
    needing = {
        target
        for target, recipe in re.findall(r"^([a-z-]+):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
        if "$(NEEDS)" in recipe
    }
    named = {
        "demo",
        "walkthrough",
        "bench",
        "bench-compare",
        "bench-hub",
        "hub-kills",
        "hub-wheel",
        "hub-cluster",
        "hub-cluster-kills",
        "cuts",
        "storm",
        "upgrades",
        "power-loss",
        "image-run",
        "appliance",
    }
    assert needing == named | {
        "test",
        "packages",
        "deb",
        "deb-emulated",
        "apt-repo",
        "image",
        "reproducible",
        "test-debian",
    }
