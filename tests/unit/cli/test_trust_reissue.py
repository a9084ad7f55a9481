"""`eyot trust reissue operator`, `generate context`, and the flags that complete nsc's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eyot_cli.connection import contexts
from support.trust.trust_tool import TrustTool


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    made = TrustTool(tmp_path)
    made.run("add", "operator", "-n", "OP", "--sys")
    made.run("add", "account", "A", "--allow-pub", "a.>", "--deny-sub", "secret")
    made.run("add", "user", "u", "-a", "A")
    return made


def test_accounts_are_signed_again(trust: TrustTool) -> None:
    old = trust.key("operator")
    done = trust.json("reissue", "operator")["operator"]
    assert done["was"] == old
    assert trust.key("operator") == done["key"] != old
    for account in ("A", "SYS"):
        assert trust.json("describe", "account", account)["iss"] == done["key"]
    assert "No issues" in trust.run("validate", "-A") or trust.json("validate", "-A") is not None
    assert old not in json.dumps(trust.json("describe", "operator"))


def test_the_old_key_stays_as_a_signing_key(trust: TrustTool) -> None:
    old = trust.key("operator")
    before = trust.json("describe", "account", "A")
    trust.run("reissue", "operator", "--convert-to-signing-key")
    assert trust.json("describe", "operator")["nats"]["signing_keys"] == [old]
    assert trust.json("describe", "account", "A") == before


def test_an_operator_that_requires_signing_keys_needs_one_here(trust: TrustTool) -> None:
    trust.run("edit", "operator", "--sk", "generate")
    signing = trust.json("describe", "operator")["nats"]["signing_keys"][0]
    for account in ("A", "SYS"):
        trust.run("edit", "account", account, "-K", signing)
    trust.run("edit", "account", "A", "--sk", "generate")
    trust.run("edit", "user", "u", "-a", "A", "-K", trust.json("describe", "account", "A")["nats"]["signing_keys"][0])
    trust.run("edit", "operator", "--require-signing-keys")
    before = trust.key("operator")
    trust.run("reissue", "operator")
    assert trust.key("operator") != before
    assert trust.json("describe", "account", "A")["iss"] == signing
    next(trust.folder.glob(f"keys/O/*/{signing}.nk")).unlink()
    now = trust.key("operator")
    assert "no signing key of the operator" in trust.refused("reissue", "operator")
    assert trust.key("operator") == now


def test_what_is_no_operators_key_is_refused(trust: TrustTool) -> None:
    before = trust.key("operator")
    assert "is not an operator's key" in trust.refused("reissue", "operator", "-K", trust.key("account", "A"))
    assert trust.key("operator") == before


def test_a_new_account_has_default_permissions(trust: TrustTool) -> None:
    assert trust.json("describe", "account", "A")["nats"]["default_permissions"] == {
        "pub": {"allow": ["a.>"]},
        "sub": {"deny": ["secret"]},
    }


def test_a_context_for_a_user(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "folder", lambda: trust.folder / "nats")
    trust.run("edit", "operator", "--service-url", "nats://hub:4222", "--service-url", "nats://other:4222")
    trust.run("generate", "context", "-a", "A", "-u", "u", "--context", "one")
    made = contexts.members("one")
    assert made["creds"] == str(trust.creds("OP", "A", "u"))
    assert made["url"] == "nats://hub:4222,nats://other:4222"
    path = contexts.path_of("one")
    path.write_text(json.dumps(made | {"description": "mine", "inbox_prefix": "_X"}))
    trust.run("generate", "context", "-a", "A", "-u", "u", "--context", "one")
    assert (contexts.members("one")["description"], contexts.members("one")["inbox_prefix"]) == ("mine", "_X")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "cannot be the name" in trust.refused("generate", "context", "-a", "A", "-u", "u", "--context", "../x")
    trust.creds("OP", "A", "u").unlink()
    assert "generate creds" in trust.refused("generate", "context", "-a", "A", "-u", "u", "--context", "one")


def test_a_description_goes_to_a_file(trust: TrustTool, tmp_path: Path) -> None:
    trust.run("describe", "account", "A", "-o", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["name"] == "A"
    trust.run("describe", "account", "A", "--raw", "-o", tmp_path / "a.jwt")
    assert trust.json("describe", "jwt", "-f", tmp_path / "a.jwt")["name"] == "A"


def test_the_folder_of_a_resolver(trust: TrustTool) -> None:
    assert "dir: '/var/lib/nats/jwt'" in trust.run(
        "generate", "config", "--nats-resolver", "--dir", "/var/lib/nats/jwt"
    )
    assert "without quotes" in trust.refused("generate", "config", "--nats-resolver", "--dir", "a'b")


def test_an_expired_user_is_imported_to_be_renewed(trust: TrustTool, tmp_path: Path) -> None:
    user = trust.json("describe", "user", "u", "-a", "A")
    from eyot_cli.trust.directories import Directories, Environment
    from eyot_cli.trust.session import Report, Session

    session = Session(Environment(Directories.of(trust.folder, None, None, None)), "", Report(as_json=True))
    token = session.sign(user | {"exp": 1_000_000_000}, session.account_signer(session.store.account("A")))
    (tmp_path / "old.jwt").write_text(token)
    assert "has expired" in trust.refused("import", "user", "-f", tmp_path / "old.jwt", "--overwrite")
    trust.run("import", "user", "-f", tmp_path / "old.jwt", "--overwrite", "--skip")
    assert trust.json("describe", "user", "u", "-a", "A")["exp"] == 1_000_000_000
