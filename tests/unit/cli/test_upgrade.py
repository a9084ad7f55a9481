"""What a device accepts as an upgrade: versions, packages, signatures, pinned keys, and the rules of a manifest."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eyot_cli.terminal.failure import Failure
from eyot_cli.upgrade import device as device_module
from eyot_cli.upgrade import fetching
from eyot_cli.upgrade.device import read_device
from eyot_cli.upgrade.manifest import Device, Manifest, choose
from eyot_cli.upgrade.offered import Offered
from eyot_cli.upgrade.package import read_package
from eyot_cli.upgrade.signing import (
    OpenedManifest,
    RefusedManifest,
    key_id,
    make_key,
    open_signed,
    pinned_keys,
    read_signing_key,
    read_unverified,
    sign,
)
from eyot_cli.upgrade.versions import compare
from support.devices.debian_package import CONTROL, make_dpkg, make_package

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DEVICE = Device("0.2.0+deb12", "amd64", "deb12", "field")
#: Each is older than the next.
ORDER = ["0", "0.1~~", "0.1~", "0.1-0~1", "0.1", "0.1-1", "0.1-1.1", "0.1a", "0.1+b", "0.1.0-1", "0.2.0~rc1", "0.2.0~rc1+deb12",
         "0.2.0", "0.2.0+deb12", "0.2.0+deb13", "0.2.0.1", "0.9", "0.10", "1:0.1", "1:0.1-1-1", "2:0"]  # fmt: skip


def manifest(version: str = "0.3.0+deb12", **members: Any) -> Manifest:
    described = {"format": 1, "package": "eyot", "version": version, "architecture": "amd64", "release": "deb12",
                 "sha256": "0" * 64, "size": 10, "rings": ["canary", "field"], "issued": NOW - timedelta(days=1),
                 "expires": NOW + timedelta(days=1)}  # fmt: skip
    return msgspec.convert(described | members, Manifest)


# --- versions


def test_versions_sort_as_debian_sorts_them() -> None:
    for place, version in enumerate(ORDER):
        for other_place, other in enumerate(ORDER):
            assert compare(version, other) == (place > other_place) - (place < other_place), (version, other)


def test_dpkg_sorts_them_likewise() -> None:
    for older, newer in itertools.pairwise(ORDER):
        subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.00"), ("1", "0:1"), ("1.0", "1.0-0"), ("1.", "1.0")])
def test_versions_that_are_equal(one: str, other: str) -> None:
    assert compare(one, other) == compare(other, one) == 0
    subprocess.run(["dpkg", "--compare-versions", one, "eq", other], check=True)


# --- packages


@pytest.mark.parametrize("packing", ["xz", "gz", ""])
def test_a_package_says_what_it_is(packing: str, tmp_path: Path) -> None:
    path = make_package(tmp_path, "0.3.0+deb12", architecture="arm64", packing=packing)
    package = read_package(path)
    assert (package.name, package.version, package.architecture) == ("eyot", "0.3.0+deb12", "arm64")
    assert package.size == path.stat().st_size
    summed = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout
    assert package.sha256 == summed.split()[0]
    fields = ["Package", "Version", "Architecture"]
    said = subprocess.run(["dpkg-deb", "-f", path, *fields], capture_output=True, text=True, check=True).stdout
    assert said == "Package: eyot\nVersion: 0.3.0+deb12\nArchitecture: arm64\n"


def test_every_beginning_of_a_package_is_refused(tmp_path: Path) -> None:
    path = make_package(tmp_path, "1.0")
    whole = path.read_bytes()
    until_data = whole.index(b"data.tar")
    for length in range(0, until_data - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(Failure, match="no Debian package"):
            read_package(path)


def test_packages_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="-Zxz"):
        read_package(make_package(tmp_path, "1.0", packing="zst"))
    with pytest.raises(Failure, match="no field Version"):
        read_package(make_package(tmp_path, "1.0", control=CONTROL.replace("\nVersion:", "\nRelease:")))
    with pytest.raises(Failure, match="No such file"):
        read_package(tmp_path / "none.deb")


# --- signatures


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def test_what_is_signed_is_read(key: Ed25519PrivateKey) -> None:
    trusted = {key_id(key.public_key()): key.public_key()}
    made = manifest(minimum="0.1", rollback_from=["0.4"])
    opened = open_signed(sign(made, key), trusted)
    assert opened.manifest == made
    assert opened.key in trusted


def test_every_changed_byte_is_refused(key: Ed25519PrivateKey) -> None:
    trusted = {key_id(key.public_key()): key.public_key()}
    signed = json.loads(sign(manifest(), key))
    for member in ("manifest", "signature"):
        whole = base64.b64decode(signed[member])
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1
            with pytest.raises(RefusedManifest, match="its signature is not"):
                open_signed(json.dumps(signed | {member: base64.b64encode(changed).decode()}).encode(), trusted)


def test_a_signature_for_anything_else_is_none(key: Ed25519PrivateKey) -> None:
    trusted = {key_id(key.public_key()): key.public_key()}
    signed = json.loads(sign(manifest(), key))
    bare = key.sign(base64.b64decode(signed["manifest"]))
    with pytest.raises(RefusedManifest, match="its signature is not"):
        open_signed(json.dumps(signed | {"signature": base64.b64encode(bare).decode()}).encode(), trusted)


def test_other_keys_and_other_bytes_are_refused(key: Ed25519PrivateKey) -> None:
    other = Ed25519PrivateKey.generate()
    trusted = {key_id(key.public_key()): key.public_key()}
    with pytest.raises(RefusedManifest, match="not pinned"):
        open_signed(sign(manifest(), other), trusted)
    claimed = json.loads(sign(manifest(), other)) | {"key": key_id(key.public_key())}
    with pytest.raises(RefusedManifest, match="its signature is not"):
        open_signed(json.dumps(claimed).encode(), trusted)
    for data in (
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"manifest": "!", "key": "", "signature": ""}',
        b'{"x": ' + b"[" * 100_000,
    ):
        with pytest.raises(RefusedManifest, match="no signed manifest"):
            open_signed(data, trusted)


@pytest.mark.parametrize(
    "members",
    [
        {"format": 2},
        {"only_on": "mondays"},
        {"rings": []},
        {"sha256": "0" * 63},
        {"version": "0.3.0\n"},
        {"version": "../0"},
        {"package": "../eyot"},
        {"size": 0},
        {"expires": "2026-01-01T00:00:00"},
        {"minimum": "?"},
    ],
)
def test_what_this_release_cannot_check_is_refused(members: dict[str, Any], key: Ed25519PrivateKey) -> None:
    """Also a condition of a later release: not knowing it is no reason to pass it over."""
    signed = json.loads(sign(manifest(), key))
    data = json.dumps(json.loads(base64.b64decode(signed["manifest"])) | members).encode()
    with pytest.raises(RefusedManifest, match="this release cannot read"):
        read_unverified(json.dumps(signed | {"manifest": base64.b64encode(data).decode()}).encode())


# --- keys


def test_a_key_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "release.key"
    made = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "pinned").mkdir(mode=0o755)
    (tmp_path / "release.key.pub").rename(tmp_path / "pinned" / "release.pub")
    trusted = pinned_keys(tmp_path / "pinned")
    assert list(trusted) == [made]
    with pytest.raises(Failure, match="is a public key"):
        read_signing_key(tmp_path / "pinned" / "release.pub")
    assert open_signed(sign(manifest(), read_signing_key(path)), trusted).key == made
    with pytest.raises(Failure, match="exists"):
        make_key(path)
    path.chmod(0o640)
    with pytest.raises(Failure, match="chmod 600"):
        read_signing_key(path)


def test_keys_of_openssl_are_read_and_other_kinds_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    curve = generate_private_key(SECP256R1())
    for data, why in [
        (curve.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()), "no Ed25519 key"),
        (b"text", "no private key"),
    ]:
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(Failure, match=why):
            read_signing_key(path)
    path.unlink()
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    folder = tmp_path / "pinned"
    folder.mkdir(mode=0o755)
    subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", folder / "a.pub"], check=True)
    assert open_signed(sign(manifest(), read_signing_key(path)), pinned_keys(folder)).manifest == manifest()


@pytest.fixture
def pinned(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    folder = tmp_path / "pinned"
    folder.mkdir(mode=0o755)
    public = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    (folder / "release.pub").write_bytes(public)
    (folder / "release.pub").chmod(0o644)
    pinned_keys(folder)
    return folder


def test_pinned_keys_that_others_may_change_are_refused(pinned: Path) -> None:
    pinned.chmod(0o775)
    with pytest.raises(Failure, match="chmod go-w"):
        pinned_keys(pinned)
    pinned.chmod(0o755)
    (pinned / "release.pub").chmod(0o666)
    with pytest.raises(Failure, match="chmod go-w"):
        pinned_keys(pinned)


@pytest.mark.parametrize("name", ["", "release.pub"])
def test_pinned_keys_of_another_user_are_refused(pinned: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(pinned / name, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(Failure, match="chown root"):
        pinned_keys(pinned)


def test_what_is_no_key_among_the_pinned_is_refused(pinned: Path) -> None:
    (pinned / "README").write_text("not looked at")
    pinned_keys(pinned)
    other = pinned / "other.pub"
    other.symlink_to(pinned / "release.pub")
    with pytest.raises(Failure, match="symbolic link"):
        pinned_keys(pinned)
    other.unlink()
    os.mkfifo(other, 0o644)
    with pytest.raises(Failure, match="no regular file"):
        pinned_keys(pinned)
    other.unlink()
    other.write_text("text")
    with pytest.raises(Failure, match="no public key"):
        pinned_keys(pinned)
    other.unlink()
    (pinned / "release.pub").unlink()
    with pytest.raises(Failure, match="has no public key"):
        pinned_keys(pinned)
    with pytest.raises(Failure, match="No such file"):
        pinned_keys(pinned / "none")


# --- the rules


def refusal(*manifests: Manifest, device: Device = DEVICE, now: datetime = NOW) -> str:
    """Why the first of these is not installed."""
    choice = choose(manifests, device, now)
    assert choice.manifest is not manifests[0]
    return {id(each): why for each, why in choice.refused}[id(manifests[0])]


def test_the_highest_version_is_installed() -> None:
    offered = [manifest("0.3.0+deb12"), manifest("0.10.0+deb12"), manifest("0.9.0+deb12")]
    choice = choose(offered, DEVICE, NOW)
    assert choice.manifest is offered[1]
    assert {each.version: why for each, why in choice.refused} == {
        "0.3.0+deb12": "0.10.0+deb12 is newer",
        "0.9.0+deb12": "0.10.0+deb12 is newer",
    }


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"package": "other"}, "for the package other"),
        ({"architecture": "arm64"}, "for arm64, the device is amd64"),
        ({"release": "deb13"}, "for deb13, the device runs deb12"),
        ({"rings": ["canary"]}, "open to canary, the device is in field"),
        ({"issued": NOW + timedelta(hours=2), "expires": NOW + timedelta(days=9)}, "set the device's clock"),
        ({"expires": NOW}, "it expired at 2026-06-01 12:00:00 UTC"),
        ({"minimum": "0.2.1"}, "needs 0.2.1 first"),
        ({"version": "0.2.0+deb12"}, "it is installed"),
        ({"version": "0.1.0+deb12"}, "no rollback from it"),
        ({"version": "0.1.0+deb12", "rollback_from": ["0.3.0+deb12"]}, "no rollback from it"),
        ({"version": "0.2.0+deb12", "rollback_from": ["0.2.0+deb12"]}, "it is installed"),
    ],
)
def test_what_a_device_does_not_install(members: dict[str, Any], why: str) -> None:
    assert why in refusal(manifest(**members))


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"minimum": "0.2.0+deb12"},
        {"expires": NOW + timedelta(seconds=1)},
        {"issued": NOW + timedelta(minutes=59)},
        {"version": "0.1.0+deb12", "rollback_from": ["0.2.0+deb12"]},
    ],
)
def test_what_it_does_install(members: dict[str, Any]) -> None:
    offered = manifest(**members)
    assert choose([offered], DEVICE, NOW).manifest is offered


def test_a_rollback_withdraws_what_it_leaves() -> None:
    """A device must not go forth and back for ever."""
    bad = manifest("0.3.0+deb12")
    back = manifest("0.2.0+deb12", rollback_from=["0.3.0+deb12"])
    with_bad = Device("0.3.0+deb12", "amd64", "deb12", "field")
    assert choose([bad, back], with_bad, NOW).manifest is back
    assert refusal(bad, back) == "the rollback to 0.2.0+deb12 withdrew it"
    older = Device("0.1.0+deb12", "amd64", "deb12", "field")
    assert choose([bad, back], older, NOW).manifest is back
    better = manifest("0.4.0+deb12")
    assert choose([bad, back, better], with_bad, NOW).manifest is better


def test_the_hub_decides_when_among_what_is_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the released version is installed, with Debian's part or without; a way back applies when the hub says so."""
    next_one, later = manifest("0.3.0+deb12"), manifest("0.4.0+deb12")
    back = manifest("0.1.0+deb12", rollback_from=["0.3.0+deb12"])
    there = [Offered(each.object_name, OpenedManifest(each, "key"), "", None) for each in (next_one, later, back)]
    monkeypatch.setattr(fetching, "datetime", SimpleNamespace(now=lambda _: NOW))

    def chosen(released: str | None, version: str = DEVICE.version) -> str:
        found, _ = fetching._chosen(there, Device(version, "amd64", "deb12", "field"), {}, released)
        return "" if found is None else found.version

    file = tmp_path / "release"
    assert fetching._read_released(file) == ""
    file.write_text("0.3.0\n")
    assert chosen(fetching._read_released(file)) == "0.3.0+deb12"
    assert chosen("") == ""
    assert chosen("0.3") == ""
    assert chosen("0.4.0") == "0.4.0+deb12"
    assert chosen("0.1.0", "0.3.0+deb12") == "0.1.0+deb12"
    assert chosen("0.4.0", "0.3.0+deb12") == "0.4.0+deb12"
    assert chosen(None) == "0.4.0+deb12"
    _, refused = fetching._chosen(there, DEVICE, {}, "0.3.0")
    assert {each["name"]: each["why"] for each in refused}[later.object_name].startswith("the hub has not released")


def test_a_rollback_of_another_ring_withdraws_nothing() -> None:
    good, back = manifest("0.3.0+deb12"), manifest("0.2.0+deb12", rings=["canary"], rollback_from=["0.3.0+deb12"])
    assert choose([good, back], DEVICE, NOW).manifest is good


# --- the device


def test_the_device_is_as_dpkg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_ID="12"\n')
    monkeypatch.setattr(device_module, "OS_RELEASE", release)
    make_dpkg(tmp_path / "bin", "0.2.0+deb12")
    assert read_device("field") == DEVICE
    for status, remedy in (("half-configured", "dpkg --configure -a"), ("half-installed", "dpkg -i eyot_VERSION.deb")):
        make_dpkg(tmp_path / "bin", "0.2.0+deb12", status=status)
        with pytest.raises(Failure, match=f"dpkg has eyot as {status}: {remedy} completes"):
            read_device("field")
    (tmp_path / "bin" / "dpkg-query").write_text("#!/bin/sh\necho 'no packages found matching eyot' >&2\nexit 1\n")
    with pytest.raises(Failure, match="no packages found matching eyot: install eyot as a package first"):
        read_device("field")
    make_dpkg(tmp_path / "bin", "0.2.0+deb12")
    release.write_text("ID=debian\n")
    with pytest.raises(Failure, match="VERSION_ID"):
        read_device("field")
