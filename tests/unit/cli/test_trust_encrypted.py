"""An encrypted keystore: no seed in plain text, wrong passphrases and exchanged files refused, and the way back to nsc."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust import key_cipher
from eyot_cli.trust.keystore import Keystore, new_pair
from support.trust.trust_tool import TrustTool


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrustTool:
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse\n")
    monkeypatch.setenv(key_cipher.VARIABLE, str(passphrase))
    monkeypatch.setattr(key_cipher, "_COST", 2)  # the cost is in the file; what it buys is not tested here
    made = TrustTool(tmp_path / "store")
    made.run("add", "operator", "OP", "--sys")
    return made


def seeds(trust: TrustTool) -> dict[Path, str]:
    return {path: path.read_text() for path in (trust.folder / "keys").rglob("*.nk")}


def test_there_and_back(trust: TrustTool) -> None:
    before = seeds(trust)
    assert trust.json("keystore", "encrypt")["encrypted"] == len(before)
    after = seeds(trust)
    assert set(after) == set(before)
    for path, sealed in after.items():
        assert before[path] not in sealed
        assert path.stat().st_mode & 0o777 == 0o600
    trust.run("add", "account", "A")  # signed with a sealed key, and its own is sealed
    trust.run("add", "user", "U")
    assert all(key_cipher.is_sealed(text) for text in seeds(trust).values())
    assert trust.run("generate", "creds", "-a", "A") == trust.creds("OP", "A", "U").read_text()
    assert trust.json("validate", "-A") == {"issues": []}
    assert trust.json("keystore", "decrypt")["decrypted"] == len(seeds(trust))
    assert before.items() <= seeds(trust).items()
    assert not (trust.folder / key_cipher.FILE).exists()
    assert "not encrypted" in trust.refused("keystore", "decrypt")


def test_a_wrong_passphrase_changes_nothing(trust: TrustTool, tmp_path: Path) -> None:
    trust.run("keystore", "encrypt")
    before = seeds(trust)
    (tmp_path / "passphrase").write_text("wrong horse")
    for words in (("add", "account", "A"), ("keystore", "decrypt"), ("keystore", "encrypt")):
        assert "the passphrase is wrong" in trust.refused(*words)
    assert seeds(trust) == before
    assert [row["name"] for row in trust.json("list", "accounts")] == ["SYS"]  # needs no key


def test_without_a_passphrase_the_variable_is_named(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.run("keystore", "encrypt")
    monkeypatch.delenv(key_cipher.VARIABLE)
    assert key_cipher.VARIABLE in trust.refused("add", "account", "A")


def test_an_interrupted_encryption_goes_on(trust: TrustTool) -> None:
    """Seeds in plain text, also those that nsc added meanwhile, are used, and sealed the next time."""
    trust.run("keystore", "encrypt")
    pair = new_pair("A")
    path = Keystore(trust.folder).path(pair.public)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pair.seed)
    trust.run("add", "account", "A", "-k", pair.public)
    trust.run("add", "user", "U")
    assert trust.json("keystore", "encrypt")["encrypted"] == 1


def test_a_file_under_anothers_name_is_noticed(trust: TrustTool) -> None:
    trust.run("keystore", "encrypt")
    first, second = sorted((trust.folder / "keys" / "A").rglob("*.nk"))
    shutil.copy(first, second)
    with pytest.raises(Failure, match="damaged"):
        Keystore(trust.folder).find(second.stem)


def test_weak_or_foreign_parameters_are_refused(trust: TrustTool, tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("short")
    assert "shorter than" in trust.refused("keystore", "encrypt")
    assert not (trust.folder / key_cipher.FILE).exists()
    (tmp_path / "passphrase").write_text("long enough")
    trust.run("keystore", "encrypt")
    path = trust.folder / key_cipher.FILE
    path.write_text(path.read_text().replace('"cost":2', f'"cost":{1 << 40}'))
    assert "later release" in trust.refused("add", "account", "A")
