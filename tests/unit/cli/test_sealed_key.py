"""A device's key sealed with systemd-creds by a key of this machine or a TPM: no seed on disk, links and renewals go on, and what
cannot be unsealed is told.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eyot_cli.enrol import command, sealing
from eyot_cli.terminal.failure import Failure
from eyot_daemon.config.leaf import LeafUrl, RemoteOptions
from eyot_daemon.leaf.credentials import CredentialsError, credentials_for, token_expiry_s
from eyot_wire.trust import nkey
from eyot_wire.trust.creds import parse_creds, token_of
from eyot_wire.trust.jwt import decode
from eyot_wire.trust.sealed_key import CREDENTIAL
from support.trust.enrolment import Hub, Places, target

URL = LeafUrl(scheme="nats", host="hub", port=7422)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "store")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(sealing, "SYSTEMD", tmp_path / "systemd")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    made = Places(tmp_path / "etc")
    made.files.seal_with = "host"
    return made


class Tpm:
    """A TPM 2.0 in a process of its own (swtpm), which keeps its seeds in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._socket = folder / "tpm"
        server = ("--tpm2", "--tpmstate", f"dir={folder}", "--server", f"type=unixio,path={self._socket}")
        control = ("--ctrl", f"type=unixio,path={self._socket}.ctrl", "--flags", "startup-clear,not-need-init")
        self._process = subprocess.Popen(["swtpm", "socket", *server, *control])
        until = time.monotonic() + 60
        while not self._socket.exists():
            assert self._process.poll() is None, "swtpm has ended"
            assert time.monotonic() < until, "swtpm does not listen"
            time.sleep(0.02)

    @property
    def name(self) -> str:
        """As SYSTEMD_TPM2_DEVICE names it for systemd-creds."""
        return f"swtpm:path={self._socket}"

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tpm]:
    made = Tpm(tmp_path / "tpm")
    monkeypatch.setenv("SYSTEMD_TPM2_DEVICE", made.name)
    yield made
    made.remove()


def given(places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Do what systemd does for a unit with LoadCredentialEncrypted; return the seed."""
    seed = sealing.unseal_file(places.files.sealed)
    (folder / CREDENTIAL).write_text(seed)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    return seed


def remote(places: Places) -> RemoteOptions:
    return RemoteOptions(urls=(URL,), credentials=str(places.files.creds))


def on_disk(places: Places) -> bytes:
    return b"".join(path.read_bytes() for path in places.files.folder.iterdir())


def test_no_file_holds_the_seed_and_the_daemon_signs_with_it(
    hub: Hub, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = places.enrol(target(hub), hub.token("pump"))
    names = {path.name for path in places.files.folder.iterdir()}
    assert names == {"device.creds", "device.seed.cred", "enrolment.json"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in places.files.folder.iterdir())
    for unit in ("eyotd.service", "eyot-renew.service"):
        drop_in = (tmp_path / "systemd" / f"{unit}.d" / "60-sealed-key.conf").read_text()
        assert f"LoadCredentialEncrypted={CREDENTIAL}:{places.files.sealed}" in drop_in
    with pytest.raises(CredentialsError, match="the key is sealed"):
        credentials_for(remote(places), URL)
    seed = given(places, tmp_path, monkeypatch)
    assert seed.encode() not in on_disk(places)
    found = credentials_for(remote(places), URL)
    assert found.sign is not None
    assert nkey.verify(str(done["key"]), b"nonce", found.sign(b"nonce"))
    assert found.jwt == token_of(places.files.creds.read_text())
    assert decode(found.jwt).sub == done["key"]
    assert token_expiry_s(str(places.files.creds)) == decode(found.jwt).exp


def test_renewals_keep_the_sealed_key(
    hub: Hub, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.enrol(target(hub), hub.token("pump"))
    seed = given(places, tmp_path, monkeypatch)
    places.files.seal_with = ""
    before, sealed = places.files.creds.read_text(), places.files.sealed.read_bytes()
    monkeypatch.setattr(sealing, "_run", _never)  # the unit that renews is not root
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    assert command._renew(target(hub), places.files, None, if_due=False, start=False)["renewed"]
    assert places.files.creds.read_text() != before
    assert places.files.sealed.read_bytes() == sealed
    assert seed.encode() not in on_disk(places)


def _never(*_: object, **__: object) -> bytes:
    raise AssertionError("systemd-creds was asked")


def test_a_present_key_is_sealed_by_a_renewal(hub: Hub, places: Places) -> None:
    places.files.seal_with = ""
    done = places.enrol(target(hub), hub.token("pump"))
    seed = parse_creds(places.files.creds.read_text()).seed
    assert seed.encode() in on_disk(places)
    places.files.seal_with = "host"
    command._renew(target(hub), places.files, None, if_due=False, start=False)
    assert seed.encode() not in on_disk(places)
    assert nkey.Signer(places.files.kept().seed).public_key == done["key"]


def test_a_new_key_of_a_sealed_device_is_sealed_too(hub: Hub, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    first = places.enrol(target(hub), hub.token("pump"))
    monkeypatch.setattr("eyot_cli.fleet.revoke.push_accounts", lambda remote, names: None)
    hub.trust.run("fleet", "revoke", "pump", "-a", "A", "-u", "nats://127.0.0.1:1")
    places.files.seal_with = ""
    second = places.enrol(target(hub), hub.token("pump"), new_key=True)
    assert second["key"] != first["key"]
    assert nkey.Signer(places.files.kept().seed).public_key == second["key"]
    assert b"USER NKEY SEED" not in on_disk(places)


def test_an_answer_that_is_lost_is_asked_for_again_with_the_sealed_key(hub: Hub, places: Places) -> None:
    def lose(answer: Any) -> Any:
        raise Failure("the link broke")

    token = hub.token("pump")
    with pytest.raises(Failure, match="the link broke"):
        places.enrol(target(hub, instead=lose), token)
    assert [path.name for path in places.files.folder.iterdir()] == ["device.cred"]
    done = places.enrol(target(hub), token)
    assert done["key"] == hub.records().device("pump").key  # type: ignore[union-attr]


def test_what_cannot_be_sealed_or_unsealed_is_told_and_changes_nothing(
    hub: Hub, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.files.seal_with = ""
    places.enrol(target(hub), hub.token("pump"))
    before = on_disk(places)
    places.files.seal_with = "host"
    with monkeypatch.context() as patch:
        patch.setattr(sealing.shutil, "which", lambda _: None)
        with pytest.raises(Failure, match="systemd-creds is not here"):
            command._renew(target(hub), places.files, None, if_due=False, start=False)
    with monkeypatch.context() as patch:
        broken = SimpleNamespace(returncode=0, stdout=b"other", stderr=b"")
        patch.setattr(sealing.subprocess, "run", lambda *_, **__: broken)
        with pytest.raises(Failure, match="does not give back"):
            command._renew(target(hub), places.files, None, if_due=False, start=False)
    assert on_disk(places) == before
    command._renew(target(hub), places.files, None, if_due=False, start=False)
    places.files.sealed.write_bytes(places.files.sealed.read_bytes()[:-9] + b"AAAAAAAA\n")
    with pytest.raises(Failure, match="systemd-creds decrypt"):
        places.files.kept()


def test_a_key_sealed_by_a_tpm_is_of_use_with_that_tpm_alone(
    hub: Hub, places: Places, tpm: Tpm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.files.seal_with = "tpm2"
    done = places.enrol(target(hub), hub.token("pump"))
    assert b"USER NKEY SEED" not in on_disk(places)
    seed = given(places, tmp_path, monkeypatch)
    assert seed.encode() not in on_disk(places)
    assert nkey.Signer(seed).public_key == done["key"]
    found = credentials_for(remote(places), URL)
    assert found.sign is not None
    assert nkey.verify(str(done["key"]), b"nonce", found.sign(b"nonce"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    other = Tpm(tmp_path / "other machine's")
    try:
        monkeypatch.setenv("SYSTEMD_TPM2_DEVICE", other.name)
        with pytest.raises(Failure, match="systemd-creds decrypt"):
            places.files.kept()
    finally:
        other.remove()
    tpm.remove()
    monkeypatch.setenv("SYSTEMD_TPM2_DEVICE", tpm.name)
    with pytest.raises(Failure, match="systemd-creds decrypt"):
        places.files.kept()
