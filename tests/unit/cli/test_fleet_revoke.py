"""`eyot fleet revoke` where the servers do not take the revocation, or clocks are wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eyot_cli.fleet import revoke
from eyot_cli.terminal.failure import Failure
from support.trust.trust_tool import TrustTool

#: Nothing listens on port 1.
_NOWHERE = ("-u", "nats://127.0.0.1:1")


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    made = TrustTool(tmp_path / "store")
    made.run("add", "operator", "-n", "OP", "--sys")
    made.run("add", "account", "A")
    for name in ("pump", "valve"):
        made.run("add", "user", name, "-a", "A")
    return made


def revocations(trust: TrustTool) -> dict[str, int]:
    return dict(trust.json("describe", "account", "A")["nats"].get("revocations") or {})


def test_without_an_answer_the_user_stays_and_the_command_goes_on(
    trust: TrustTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = trust.key("user", "pump", "-a", "A")
    said = trust.refused("fleet", "revoke", "pump", "-a", "A", *_NOWHERE)
    assert "revoked in the store" in said
    assert "run the command again" in said
    assert list(revocations(trust)) == [key]
    assert trust.creds("OP", "A", "pump").exists()
    assert len(list(trust.folder.rglob(f"{key}.nk"))) == 1
    monkeypatch.setattr(revoke, "push_accounts", lambda remote, names: None)  # now the servers take it
    trust.run("fleet", "revoke", "pump", "-a", "A", *_NOWHERE)
    assert list(revocations(trust)) == [key]
    assert not trust.creds("OP", "A", "pump").exists()
    assert "does not exist" in trust.refused("describe", "user", "pump", "-a", "A")
    assert not list(trust.folder.rglob(f"{key}.nk"))
    assert trust.key("user", "valve", "-a", "A") not in revocations(trust)


@pytest.mark.parametrize("words", [("pump",), ("pump", "missing", *_NOWHERE)])
def test_what_cannot_be_done_changes_nothing(trust: TrustTool, words: tuple[str, ...]) -> None:
    """No server is named, or one of the users does not exist."""
    trust.refused("fleet", "revoke", "-a", "A", *words)
    assert revocations(trust) == {}
    assert trust.creds("OP", "A", "pump").exists()


def test_a_clock_in_1970_leaves_no_token_valid(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    user = trust.json("describe", "user", "pump", "-a", "A")
    with monkeypatch.context() as wrong:
        wrong.setattr(revoke, "push_accounts", _refuse)
        wrong.setattr(time, "time", lambda: 1000.0)
        trust.refused("fleet", "revoke", "pump", "-a", "A", *_NOWHERE)
    assert revocations(trust) == {user["sub"]: user["iat"]}


def test_a_token_of_a_clock_ahead_is_revoked(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = time.time() + 86400
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: ahead)
        trust.run("edit", "user", "pump", "-a", "A")
    key = trust.key("user", "pump", "-a", "A")
    monkeypatch.setattr(revoke, "push_accounts", lambda remote, names: None)
    trust.run("fleet", "revoke", "pump", "-a", "A", *_NOWHERE)
    assert revocations(trust) == {key: int(ahead)}


def _refuse(remote: object, names: list[str]) -> None:
    raise Failure("no server takes it")
