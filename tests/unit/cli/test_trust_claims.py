"""`eyot trust`: the tokens it makes are those that nsc makes and nats-server decodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eyot_wire.trust.jwt import decode
from eyot_wire.trust.jwt_account import decode_account, decode_activation, decode_operator
from eyot_wire.trust.jwt_rules import Templates
from eyot_wire.trust.jwt_sign import decode_members, sign_members
from eyot_wire.trust.nkey import Signer, encode_seed
from support.trust.trust_tool import TrustTool

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    """An operator OP with the account A."""
    made = TrustTool(tmp_path / "store")
    made.run("add", "operator", "-n", "OP", "--generate-signing-key")
    made.run("add", "account", "A")
    return made


def token(trust: TrustTool, *what: str) -> str:
    return trust.run("describe", *what, "--raw").strip()


def test_new_claims_are_nscs(trust: TrustTool) -> None:
    """Member by member what nsc 2.12 writes, but for keys and times."""
    trust.run("add", "user", "U")
    operator, account, user = (trust.json("describe", kind) for kind in ("operator", "account", "user"))
    assert operator["nats"] == {"signing_keys": operator["nats"]["signing_keys"], "type": "operator", "version": 2}
    assert account["nats"] == {
        "authorization": {},
        "default_permissions": {"pub": {}, "sub": {}},
        "limits": UNLIMITED | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1},
        "type": "account",
        "version": 2,
    }
    assert user["nats"] == {"pub": {}, "sub": {}, "type": "user", "version": 2} | UNLIMITED
    for claims in (operator, account, user):
        assert set(claims) == {"iat", "iss", "jti", "name", "sub", "nats"}
    assert (operator["iss"], account["iss"], user["iss"]) == (operator["sub"], operator["sub"], account["sub"])


def test_members_that_are_not_known_stay(trust: TrustTool) -> None:
    """A later nsc writes more than this release knows: an edit here keeps it."""
    path = trust.folder / "OP" / "accounts" / "A" / "A.jwt"
    members = decode_members(path.read_text())
    members["nats"]["from_the_future"] = {"depth": [1, 2]}
    members["nats"]["limits"]["moons"] = 3
    seed = next((trust.folder / "keys" / "O").rglob(f"{trust.key('operator')}.nk")).read_text()
    path.write_text(sign_members(members, Signer(seed), 1))
    trust.run("edit", "account", "A", "--conns", "5")
    nats = trust.json("describe", "account")["nats"]
    assert nats["from_the_future"] == {"depth": [1, 2]}
    assert (nats["limits"]["moons"], nats["limits"]["conn"]) == (3, 5)


def test_limits_of_accounts(trust: TrustTool) -> None:
    trust.run(
        "edit", "account", "--conns", "5", "--payload", "1k", "--no-wildcard-exports", "--js-disk-storage", "1GiB"
    )
    limits = decode_account(token(trust, "account")).body.limits
    assert (limits.conn, limits.payload, limits.wildcards, limits.disk_storage) == (5, 1000, False, 1 << 30)
    assert "--js-tier" not in trust.run("edit", "account", "--js-disable")
    trust.run("edit", "account", "--js-tier", "1", "--js-mem-storage", "10M", "--js-streams", "3")
    tiers = decode_account(token(trust, "account")).body.limits.tiered_limits
    assert tiers is not None
    assert (tiers["R1"].mem_storage, tiers["R1"].streams) == (10_000_000, 3)
    assert "--js-tier" in trust.refused("edit", "account", "--js-streams", "1")
    trust.run("edit", "account", "--rm-js-tier", "1", "--js-streams", "1")
    assert "--rm-js-tier 0" in trust.refused("edit", "account", "--js-tier", "1", "--js-streams", "1")


def test_switches_have_values_as_in_nsc(trust: TrustTool) -> None:
    trust.run("edit", "account", "--wildcard-exports=false", "--disallow-bearer=true")
    limits = decode_account(token(trust, "account")).body.limits
    assert (limits.wildcards, limits.disallow_bearer) == (False, True)
    trust.run("edit", "account", "--wildcard-exports=T", "--disallow-bearer=0")
    limits = decode_account(token(trust, "account")).body.limits
    assert (limits.wildcards, limits.disallow_bearer) == (True, False)
    trust.run("add", "user", "U", "--bearer=true")
    trust.run("edit", "user", "U", "--bearer=false")
    assert not decode(token(trust, "user")).nats.bearer_token
    assert "does not take a value" in trust.result("edit", "user", "U", "--bearer=perhaps").output
    trust.run("delete", "user", "U", "--revoke=false")
    assert not decode_account(token(trust, "account")).body.revocations


def test_commands_have_the_second_names_of_nsc(trust: TrustTool) -> None:
    trust.run("create", "export", "-s", "a.*", "--private")
    trust.run("revocations", "add-activation", "-s", "a.*", "-t", "*")
    assert trust.json("describe", "account")["nats"]["exports"][0]["revocations"]
    assert "OP" in trust.run("list", "operator")


def test_an_export_with_a_token_position_is_public(trust: TrustTool) -> None:
    """Servers would not ask for the activation: they look at the subject alone."""
    position = ["--service", "--account-token-position", "2"]
    assert "public exports" in trust.refused("add", "export", "-s", "q.*.x", "--private", *position)
    trust.run("add", "export", "-s", "q.*.x", *position)
    assert "public exports" in trust.refused("edit", "export", "-s", "q.*.x", "--private")


def test_mappings_are_deleted_by_destination_and_cluster(trust: TrustTool) -> None:
    for target, cluster in (("b", "c1"), ("b", "c2"), ("d", "c1"), ("e", "c2")):
        trust.run("add", "mapping", "--from", "a", "--to", target, "--weight", "20", "--cluster", cluster)

    def left() -> list[str]:
        mappings = trust.json("describe", "account")["nats"].get("mappings") or {}
        return [f"{each['subject']} {each['cluster']}" for each in mappings.get("a", ())]

    trust.run("delete", "mapping", "--from", "a", "--to", "b", "--cluster", "c1")
    assert left() == ["b c2", "d c1", "e c2"]
    trust.run("delete", "mapping", "--from", "a", "--to", "b")
    assert left() == ["d c1", "e c2"]
    trust.run("delete", "mapping", "--from", "a", "--cluster", "c2")
    assert left() == ["d c1"]
    assert "no such mapping" in trust.refused("delete", "mapping", "--from", "a", "--to", "z")


def test_permissions_are_added_and_removed(trust: TrustTool) -> None:
    trust.run(
        "add", "user", "U", "--allow-pub", "b,a", "--allow-pubsub", "c", "--deny-sub", "d", "--allow-pub-response"
    )
    claims = decode(token(trust, "user")).nats
    assert (claims.pub.allow, claims.sub.allow, claims.sub.deny) == (("a", "b", "c"), ("c",), ("d",))
    assert claims.resp is not None
    assert (claims.resp.max, claims.resp.ttl) == (1, 0)
    trust.run("edit", "user", "U", "--rm", "a,c,d", "--max-responses", "5", "--response-ttl", "2s", "--bearer")
    claims = decode(token(trust, "user")).nats
    assert (claims.pub.allow, claims.sub.allow, claims.sub.deny, claims.bearer_token) == (("b",), (), (), True)
    assert claims.resp is not None
    assert (claims.resp.max, claims.resp.ttl) == (5, 2 * 10**9)
    trust.run(
        "edit", "user", "U", "--source-network", "192.0.2.0/24", "--conn-type", "mqtt", "--time", "08:00:00-17:00:00"
    )
    claims = decode(token(trust, "user")).nats
    assert (claims.sources, claims.allowed_connection_types) == (("192.0.2.0/24",), ("MQTT",))
    for flags in (
        ["--source-network", "nowhere"],
        ["--conn-type", "PIGEON"],
        ["--time", "8-17"],
        ["--allow-pub", "a..b"],
    ):
        assert "\n" not in trust.refused("edit", "user", "U", *flags)
    assert decode(token(trust, "user")).nats == claims


def test_a_scope_grants_by_its_template(trust: TrustTool) -> None:
    trust.run(
        "edit", "signing-key", "--sk", "generate", "--role", "device", "--allow-pub", "d.{{name()}}.{{tag(site)}}.>"
    )
    trust.run("edit", "signing-key", "--sk", "device", "--subs", "10", "--deny-pub", "d.*.*.secret")
    trust.run("add", "user", "pump", "-K", "device", "--tag", "site:north")
    account, user = decode_account(token(trust, "account")), decode(token(trust, "user"))
    scope = account.scope(user.iss)
    assert scope is not None
    assert user.nats.is_empty
    assert user.account == account.name
    granted = Templates(user, "A", ()).grant(scope.template)
    assert granted.pub.allow == ("d.pump.north.>",)
    assert (granted.pub.deny, granted.subs) == (("d.*.*.secret",), 10)
    said = trust.refused("edit", "user", "pump", "--allow-pub", "more")
    assert "has the scope device" in said
    assert "-K" in said
    assert "has the scope device" in trust.refused("add", "user", "x", "-K", "device", "--subs", "5")
    assert [row["name"] for row in trust.json("list", "users")] == ["pump"]


def test_users_are_signed_by_keys_without_a_scope_first(trust: TrustTool) -> None:
    trust.run("edit", "signing-key", "--sk", "generate", "--role", "device")
    plain = trust.json("edit", "account", "--sk", "generate")["signing_keys"][0]
    trust.run(
        "export",
        "keys",
        "--accounts",
        "--account",
        "A",
        "--filter",
        trust.key("account"),
        "-d",
        trust.folder / "x",
        "-R",
    )
    trust.run("add", "user", "U")
    assert trust.json("describe", "user")["iss"] == plain


def test_signing_keys_are_required_only_when_all_have_one(trust: TrustTool) -> None:
    assert "account A is signed by the operator's own key" in trust.refused(
        "edit", "operator", "--require-signing-keys"
    )
    signing = trust.json("describe", "operator")["nats"]["signing_keys"][0]
    trust.run("edit", "account", "A", "-K", signing)
    trust.run("edit", "operator", "--require-signing-keys")
    assert decode_operator(token(trust, "operator")).trusted_keys == (signing,)
    assert "has none" in trust.refused("add", "user", "U")
    trust.run("edit", "account", "A", "--sk", "generate")
    trust.run("add", "user", "U")
    assert trust.json("describe", "user")["nats"]["issuer_account"] == trust.key("account")
    assert trust.json("validate", "-A") == {"issues": []}


def test_an_activation_leads_to_an_import(trust: TrustTool, tmp_path: Path) -> None:
    trust.run("add", "account", "B")
    trust.run("add", "export", "-a", "A", "-n", "E", "-s", "priv.*", "--private")
    file = tmp_path / "act.jwt"
    made = trust.json("generate", "activation", "-a", "A", "-s", "priv.b", "-t", "B", "-o", file, "--expiry", "1d")
    claims, granted = decode_activation(made["token"])
    assert (claims.sub, claims.iss, granted.subject, granted.kind) == (
        trust.key("account", "B"),
        trust.key("account", "A"),
        "priv.b",
        "stream",
    )
    assert trust.json("describe", "jwt", "-f", file)["jti"] == claims.jti
    assert made["hash"] in trust.run("describe", "jwt", "-f", file)
    assert "for account" in trust.refused("add", "import", "-a", "A", "--token", file)
    trust.run("add", "import", "-a", "B", "--token", file, "--local-subject", "got")
    imported = (decode_account(token(trust, "account", "B")).body.imports or ())[0]
    assert (imported.subject, imported.local_subject, imported.account) == ("priv.b", "got", claims.iss)
    assert imported.token == made["token"]
    assert "which private export" in trust.refused("generate", "activation", "-a", "A", "-s", "other", "-t", "B")


def test_mistakes_of_an_account_change_nothing(trust: TrustTool) -> None:
    trust.run("add", "export", "-s", "a.*", "--service")
    before = token(trust, "account")
    said = trust.refused("add", "export", "-s", "a.b", "--service")
    assert said.startswith("nothing is changed")
    assert "--service" in trust.refused("add", "export", "-s", "s", "--latency", "l")
    assert token(trust, "account") == before


def test_revocations(trust: TrustTool) -> None:
    trust.run("add", "user", "U")
    user = decode(token(trust, "user"))
    trust.run("revocations", "add-user", "-n", "U")
    account = decode_account(token(trust, "account"))
    assert account.revoked(user.sub, user.iat)
    issues = json.loads(trust.result("validate", "--json").stdout)["issues"]
    assert [each["of"] for each in issues] == ["user A/U"]
    assert [row["name"] for row in trust.json("revocations", "list-users")] == ["U"]
    trust.run("revocations", "delete-user", "-n", "U")
    assert not decode_account(token(trust, "account")).revoked(user.sub, user.iat)
    assert "is not revoked" in trust.refused("revocations", "delete-user", "-n", "U")
    trust.run("revocations", "add-user", "-u", "*", "--at", "100")
    assert decode_account(token(trust, "account")).body.revocations == {"*": 100}


def test_whoever_revokes_is_told_which_account_to_push(trust: TrustTool) -> None:
    """`push` alone sends the account in use, which may be another one: the revoked would stay in."""
    trust.run("add", "user", "U")
    trust.run("add", "user", "V")
    trust.run("add", "export", "-s", "p", "--private")
    trust.run("add", "account", "B")
    said = [
        trust.run("revocations", "add-user", "-a", "A", "-n", "U"),
        trust.run("revocations", "delete-user", "-a", "A", "-n", "U"),
        trust.run("revocations", "add_activation", "-a", "A", "-s", "p", "-t", "B"),
        trust.run("revocations", "delete_activation", "-a", "A", "-s", "p", "-t", "B"),
        trust.run("delete", "user", "V", "-a", "A", "--revoke"),
    ]
    assert [text.count("`eyot trust push -a A`") for text in said] == [1] * 5


def test_revocations_of_activations(trust: TrustTool) -> None:
    trust.run("add", "account", "B")
    trust.run("add", "export", "-a", "A", "-s", "p", "--private")
    trust.run("revocations", "add_activation", "-a", "A", "-s", "p", "-t", "B", "--at", "100")
    export = (decode_account(token(trust, "account", "A")).body.exports or ())[0]
    assert export.revocations == {trust.key("account", "B"): 100}
    rows = trust.json("revocations", "list_activations", "-a", "A", "-s", "p")
    assert rows == [{"key": trust.key("account", "B"), "name": "B", "at": 100}]
    trust.run("revocations", "delete_activation", "-a", "A", "-s", "p", "-t", "B")
    assert trust.json("revocations", "list_activations", "-a", "A", "-s", "p") == []


def test_expiries_are_told_the_next_first(trust: TrustTool) -> None:
    trust.run("add", "user", "late", "--expiry", "2y")
    trust.run("add", "user", "soon", "--expiry", "3d")
    rows = trust.json("expirations", "--within", "7d", "--skip")
    assert [(row["of"].rpartition("/")[2], row["kind"], row["state"]) for row in rows] == [
        ("soon.creds", "credentials", "soon"),
        ("soon", "user", "soon"),
    ]
    assert len(trust.json("expirations", "--skip", "--within", "3y")) == 4
    assert "later --expiry" in trust.refused("edit", "user", "soon", "--expiry", "2020-01-01")


def test_texts_of_a_token_do_not_reach_the_terminal_raw(trust: TrustTool) -> None:
    trust.run("edit", "account", "--description", "red \x1b[31m text\x07")
    for output in (trust.run("describe", "account"), trust.run("describe", "account", "--json")):
        assert "\x1b" not in output
        assert "\x07" not in output


def test_configurations_hold_the_operator(trust: TrustTool, tmp_path: Path) -> None:
    assert "--system-account" in trust.refused("generate", "config", "--nats-resolver")
    text = trust.run("generate", "config", "--mem-resolver")
    assert f"  {trust.key('account')}: {token(trust, 'account')}" in text.splitlines()
    assert f"operator: {token(trust, 'operator')}" in text.splitlines()
    file = tmp_path / "server.conf"
    trust.run("generate", "config", "--mem-resolver", "--config-file", file)
    assert file.read_text() == text
    assert "--force" in trust.refused("generate", "config", "--mem-resolver", "--config-file", file)


def test_a_key_of_the_wrong_kind_is_named(trust: TrustTool) -> None:
    other = Signer(encode_seed("U", bytes(32))).public_key
    assert f"{other} is a key of a user, not of an account" in trust.refused("add", "account", "B", "-k", other)
    assert "may not sign for operator OP" in trust.refused("add", "account", "B", "-K", encode_seed("O", bytes(32)))
    assert "exists already" in trust.refused("add", "account", "A")
    assert trust.json("list", "accounts") == [{"name": "A", "key": trust.key("account", "A")}]
