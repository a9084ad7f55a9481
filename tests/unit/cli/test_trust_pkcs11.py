"""Keys in a PKCS#11 token (SoftHSM): no seed outside, signatures that everybody accepts, wrong PINs and tokens, and nothing half-done."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust import key_token
from eyot_cli.trust.keystore import Keystore, new_pair
from eyot_wire.trust import nkey
from support.trust.enrolment import Hub, Places, target
from support.trust.trust_tool import TrustTool

#: the module by Debian's release
MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")
MODULE = next((each for each in MODULES if Path(each).exists()), MODULES[0])


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SoftHSM of its own: the module reads its configuration once in a process."""
    folder = tmp_path_factory.mktemp("hsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        for label in ("FLEET", "OTHER"):
            words = ["softhsm2-util", "--init-token", "--free", "--label", label, "--pin", "1234", "--so-pin", "4321"]
            subprocess.run(words, check=True, capture_output=True)
        yield folder


@pytest.fixture
def trust(tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> TrustTool:
    monkeypatch.setenv("SOFTHSM2_CONF", str(tokens / "softhsm2.conf"))
    pin = tmp_path / "pin"
    pin.write_text("1234\n")
    monkeypatch.setenv(key_token.VARIABLE, str(pin))
    return TrustTool(tmp_path / "store")


def use(trust: TrustTool, *more: str, token: str = "FLEET") -> None:
    trust.run("keystore", "pkcs11", "--module", MODULE, "--token", token, *more)


def contents(trust: TrustTool) -> dict[str, str]:
    """What the keystore's files hold, by public key."""
    return {path.stem: path.read_text() for path in (trust.folder / "keys").rglob("*.nk")}


def test_keys_are_made_in_the_token_and_sign_everything(trust: TrustTool) -> None:
    use(trust)
    trust.run("add", "operator", "OP", "--sys", "--generate-signing-key")
    trust.run("add", "account", "A")
    trust.run("edit", "account", "A", "--sk", "generate")
    trust.run("add", "user", "U")
    found = contents(trust)
    assert {text for public, text in found.items() if public[0] in "OA"} == {key_token.MARK}
    user = trust.key("user", "-a", "A", "U")
    assert nkey.Signer(found[user]).public_key == user
    assert trust.json("validate", "-A") == {"issues": []}
    assert trust.creds("OP", "A", "U").exists()
    for row in trust.json("list", "keys", "--all", "--show-seeds"):
        assert bool(row["seed"]) == (row["role"] == "user")
    said = trust.refused("export", "keys", "--all", "--dir", str(trust.folder / "out"))
    assert "does not give its seed away" in said
    assert not list((trust.folder / "out").glob("O*"))


def test_present_keys_move_and_their_seeds_are_gone(trust: TrustTool) -> None:
    trust.run("add", "operator", "OP", "--sys")
    trust.run("add", "account", "A")
    seeds = [path.read_text() for path in (trust.folder / "keys").rglob("*.nk") if path.name[0] in "OA"]
    use(trust, "--move")
    assert trust.json("keystore", "pkcs11", "--move")["moved"] == 0
    kept = "".join(path.read_text(errors="replace") for path in trust.folder.rglob("*") if path.is_file())
    assert len(seeds) == 4
    assert not any(seed in kept for seed in seeds)
    trust.run("add", "account", "B")
    assert trust.json("validate", "-A") == {"issues": []}
    trust.run("keystore", "pkcs11", "--off")
    trust.run("add", "account", "C")
    public = trust.key("account", "C")
    assert nkey.Signer(Keystore(trust.folder).path(public).read_text()).public_key == public
    assert trust.json("validate", "-A") == {"issues": []}


def test_a_seed_that_is_imported_signs_as_before(trust: TrustTool) -> None:
    use(trust)
    store, pair = Keystore(trust.folder), new_pair("A")
    store.add(pair)
    found = store.find(pair.public)
    assert found is not None
    assert not found.has_seed
    assert found.signer.sign(b"text") == pair.signer.sign(b"text")  # Ed25519 signs the same text the same way
    assert store.remove(pair.public)
    assert not store.token.holds(pair.public)
    store.close()


def test_wrong_pins_tokens_and_modules_change_nothing(trust: TrustTool, tmp_path: Path) -> None:
    assert "which token" in trust.refused("keystore", "pkcs11")
    assert "cannot be used" in trust.refused("keystore", "pkcs11", "--module", MODULE, "--token", "NONE")
    assert "cannot be used" in trust.refused("keystore", "pkcs11", "--module", "/nowhere.so", "--token", "FLEET")
    (tmp_path / "pin").write_text("9999\n")
    said = trust.refused("keystore", "pkcs11", "--module", MODULE, "--token", "FLEET")
    assert "pin incorrect" in said
    assert "9999" not in said
    assert not (trust.folder / key_token.FILE).exists()
    (tmp_path / "pin").write_text("1234\n")
    use(trust)
    trust.run("add", "operator", "OP")
    use(trust, token="OTHER")
    assert "does not hold" in trust.refused("add", "account", "A")
    assert trust.json("list", "accounts") == []


def test_a_command_that_fails_leaves_no_key_in_the_token(trust: TrustTool) -> None:
    use(trust)
    trust.run("add", "operator", "OP")
    store = Keystore(trust.folder)
    made = store.make("A")
    assert store.token.holds(made.public)
    store.close()
    token = key_token.open_token(trust.folder)
    assert not token.holds(made.public)
    token.close()


def test_a_token_that_signs_otherwise_is_refused(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    use(trust)
    monkeypatch.setattr(key_token.KeyToken, "sign", lambda *_: bytes(64))
    store, pair = Keystore(trust.folder), new_pair("A")
    with pytest.raises(Failure, match="not Ed25519"):
        store.make("A")
    with pytest.raises(Failure, match="not Ed25519"):
        store.add(pair)
    assert not store.holds(pair.public)
    assert not store.token.holds(pair.public)
    store.close()


def test_devices_enrol_with_keys_of_the_token(trust: TrustTool, tmp_path: Path) -> None:
    hub = Hub(trust.folder)
    use(hub.trust, "--move")
    done = Places(tmp_path / "etc").enrol(target(hub), hub.token("pump"))
    record = hub.records().device("pump")
    assert record is not None
    assert record.key == done["key"]
