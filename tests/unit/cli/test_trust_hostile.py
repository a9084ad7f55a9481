"""`eyot trust` with tokens that somebody signed with a valid key, and anything in them: shown or refused, never a traceback."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eyot_cli.terminal.failure import Failure
from eyot_wire.trust.nkey import Signer, encode_seed
from support.trust.trust_tool import TrustTool

KEYS = {role: Signer(encode_seed(role, bytes([7] * 32))) for role in "OAU"}
ROLES = {"operator": "OO", "account": "OA", "user": "AU", "activation": "AA", "generic": "OO", "": "OO"}
MEMBERS = (
    *(
        "imports",
        "exports",
        "limits",
        "signing_keys",
        "revocations",
        "default_permissions",
        "mappings",
        "authorization",
    ),
    *(
        "trace",
        "pub",
        "sub",
        "resp",
        "subs",
        "src",
        "times",
        "tags",
        "issuer_account",
        "subject",
        "kind",
        "description",
    ),
    *("account_server_url", "operator_service_urls", "system_account", "allowed_connection_types", "info_url"),
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def signed(kind: str, body: Any, outer: dict[str, Any]) -> str:
    issuer, subject = (KEYS[role] for role in ROLES[kind])
    claims = {"sub": subject.public_key, "iss": issuer.public_key, "iat": 1, "nats": body} | outer
    parts = [json.dumps(each).encode() for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)]
    head = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return (head + b"." + base64.urlsafe_b64encode(issuer.sign(head)).rstrip(b"=")).decode()


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> TrustTool:
    return TrustTool(tmp_path_factory.mktemp("hostile") / "store")


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(sorted(ROLES)),
    members=st.dictionaries(st.sampled_from(MEMBERS), values, max_size=3),
    outer=st.dictionaries(st.sampled_from(("name", "exp", "nbf", "aud", "jti")), values, max_size=2),
)
@example(kind="account", members={"signing_keys": [{"template": {"times": [{}], "resp": {}}}]}, outer={"exp": 2**62})
@example(kind="user", members={"src": "10.0.0.0/8", "resp": {"max": 2**70}}, outer={"name": "\x1b[2J\r\n"})
@example(kind="account", members={"revocations": {"*": 10**30}, "mappings": {"a": [{}]}}, outer={})
@example(kind="generic", members={"limits": [1]}, outer={})
def test_any_signed_token(trust: TrustTool, kind: str, members: dict[str, Any], outer: dict[str, Any]) -> None:
    file = trust.folder.parent / "token.jwt"
    file.write_text(signed(kind, {"type": kind, "version": 2} | members, outer))
    for words in (("describe", "jwt", "-f", file), ("validate", "-f", file)):
        result = trust.result(*words)
        assert result.exception is None or isinstance(result.exception, Failure | SystemExit), result.exception
        assert "\x1b" not in result.output
        assert "\r" not in result.output


def test_an_account_of_another_operator_stays_out(trust: TrustTool, tmp_path: Path) -> None:
    trust.run("add", "operator", "OP")
    file = tmp_path / "account.jwt"
    file.write_text(signed("account", {"type": "account", "version": 2}, {"name": "../../evil"}))
    assert "another operator" in trust.refused("import", "account", "--file", file)
    assert "cannot be the name" in trust.refused("import", "account", "--file", file, "--force")
    assert not (trust.folder / "evil").exists()
