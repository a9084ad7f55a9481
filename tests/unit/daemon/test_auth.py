"""Authentication in configuration mode: who gets in, as whom, and who does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bcrypt
import pytest

from eyot_daemon.auth.configured import AuthResult, ConfigAuthenticator
from eyot_daemon.auth.login import Deferred, Login, Peer
from eyot_daemon.config import passwords
from eyot_daemon.config.passwords import PasswordChecker, is_bcrypt
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.config.read import read_options
from eyot_wire.conf import parse_text
from eyot_wire.info import ClientConnect, LeafConnect
from eyot_wire.trust import nkey

PEER = Peer(host="127.0.0.1", port=1)
NONCE = "fqqCuB8Cx4LW0qU"
SIGNER = nkey.Signer(nkey.encode_seed("U", b"\1" * 32))
OTHER = nkey.Signer(nkey.encode_seed("U", b"\2" * 32))
SECRET_HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2a$")


def authenticator(text: str, **env: str) -> ConfigAuthenticator:
    return ConfigAuthenticator(read_options(parse_text(text, env=env)).options)


def client(auth: ConfigAuthenticator, peer: Peer = PEER, nonce: str = NONCE, **fields: Any) -> AuthResult | None:
    return auth.client(ClientConnect(**fields), nonce, peer)


def signed(signer: nkey.Signer, nonce: str = NONCE) -> dict[str, Any]:
    return {"nkey": signer.public_key, "sig": nkey.encode_signature(signer.sign(nonce.encode()))}


def test_without_authorization_everybody_is_in_the_global_account() -> None:
    auth = authenticator("")
    assert not auth.auth_required
    assert not auth.wants_nonce
    assert client(auth, user="x", password="y") == AuthResult(account="$G")
    assert auth.anonymous(PEER) == AuthResult(account="$G")


def test_users_of_accounts() -> None:
    auth = authenticator(
        f"accounts {{ A {{ users [{{user: a, password: plain}}] }}, B {{ users [{{user: b, password: {SECRET_HASH}}}] }} }}"
    )
    assert auth.auth_required
    assert client(auth, user="a", password="plain") == AuthResult(account="A", user="a")
    assert client(auth, user="b", password="secret") == AuthResult(account="B", user="b")
    wrong: list[dict[str, Any]] = [
        {},
        {"user": "a"},
        {"user": "a", "password": "plain2"},
        {"user": "a", "password": "Plain"},
        {"user": "b", "password": SECRET_HASH},
        {"user": "c", "password": "plain"},
        {"password": "plain"},
        {"auth_token": "plain"},
    ]
    for fields in wrong:
        assert client(auth, **fields) is None
    assert auth.anonymous(PEER) is None


def test_single_user_and_token() -> None:
    auth = authenticator("authorization { user: u, password: p }")
    assert client(auth, user="u", password="p") == AuthResult(account="$G", user="u")
    assert client(auth, user="u", password="q") is None
    auth = authenticator(f"authorization {{ token: {SECRET_HASH} }}")
    assert client(auth, auth_token="secret") == AuthResult(account="$G")
    assert client(auth, auth_token="secret2") is None
    assert client(auth, user="secret") is None
    assert client(auth) is None


def test_nkeys_sign_the_nonce() -> None:
    auth = authenticator("accounts { A { users [{nkey: $KEY}] } }", KEY=SIGNER.public_key)
    assert auth.wants_nonce
    assert client(auth, **signed(SIGNER)) == AuthResult(account="A", user=SIGNER.public_key)
    padded = signed(SIGNER) | {"sig": signed(SIGNER)["sig"].replace("-", "+").replace("_", "/") + "=="}
    assert client(auth, **padded) == AuthResult(account="A", user=SIGNER.public_key)
    assert client(auth, **signed(OTHER)) is None
    assert client(auth, **signed(SIGNER, nonce="another")) is None
    assert client(auth, **dict(signed(SIGNER), sig="")) is None
    assert client(auth, **dict(signed(SIGNER), sig="not base64!")) is None
    assert client(auth, nonce="", **signed(SIGNER, nonce="")) is None
    assert client(auth, nkey=SIGNER.public_key, sig=signed(OTHER)["sig"]) is None


def test_no_auth_user_stands_in_for_those_who_present_nothing() -> None:
    auth = authenticator("accounts { A { users [{user: a, password: p}, {user: guest}] } }\nno_auth_user: guest")
    assert not auth.auth_required
    assert client(auth) == AuthResult(account="A", user="guest")
    assert auth.anonymous(PEER) == AuthResult(account="A", user="guest")
    assert client(auth, user="a", password="p") == AuthResult(account="A", user="a")
    assert client(auth, user="a", password="wrong") is None
    # Without users who have one, an nkey and its signature are not looked at.
    assert client(auth, **signed(SIGNER)) == AuthResult(account="A", user="guest")
    assert client(auth, sig="x") == AuthResult(account="A", user="guest")
    assert client(auth, user="a", password="p", nkey=SIGNER.public_key) == AuthResult(account="A", user="a")


def test_permissions_of_user_then_account_then_authorization() -> None:
    def only(subject: bytes) -> Permissions:
        return Permissions(publish=SubjectPermission(allow=(subject,)))

    auth = authenticator(
        """
        authorization { default_permissions { publish: g }, users [{user: global, password: p}] }
        accounts { A { default_permissions { publish: a }, users [
            {user: own, password: p, permissions: {publish: u}}, {user: plain, password: p}] } }
        """
    )
    for user, expected in (("own", only(b"u")), ("plain", only(b"a")), ("global", only(b"g"))):
        result = client(auth, user=user, password="p")
        assert result is not None
        assert result.permissions == expected


def test_connection_types() -> None:
    auth = authenticator(
        "authorization { users [{user: a, password: p, allowed_connection_types: [LEAFNODE]}, {user: b, password: p}] }"
    )
    leaf_peer = Peer(connection_type="LEAFNODE")
    assert client(auth, user="a", password="p") is None
    assert client(auth, leaf_peer, user="a", password="p") is not None
    assert client(auth, leaf_peer, user="b", password="p") is not None


LEAF_PEER = Peer(connection_type="LEAFNODE")


def test_leaf_nodes_use_the_servers_users_unless_the_listener_has_its_own() -> None:
    auth = authenticator("accounts { A { users [{user: a, password: p}] } }\nleafnodes { port: -1 }")
    assert auth.leaf(LeafConnect(user="a", password="p"), NONCE, LEAF_PEER) == AuthResult(account="A", user="a")
    assert auth.leaf(LeafConnect(user="a", password="q"), NONCE, LEAF_PEER) is None


@pytest.mark.parametrize(
    ("block", "account"), [("user: l, password: lp", "$G"), ("user: l, password: lp, account: A", "A")]
)
def test_leaf_authorization_with_a_single_user(block: str, account: str) -> None:
    auth = authenticator(
        f"accounts {{ A {{ users [{{user: a, password: p}}] }} }}\nleafnodes {{ port: -1, authorization {{ {block} }} }}"
    )
    assert auth.leaf(LeafConnect(user="l", password="lp"), NONCE, LEAF_PEER) == AuthResult(account=account, user="l")
    assert auth.leaf(LeafConnect(user="a", password="p"), NONCE, LEAF_PEER) is None
    assert auth.leaf(LeafConnect(), NONCE, LEAF_PEER) is None


def test_leaf_authorization_with_nkey_users_and_account_only() -> None:
    fields = signed(SIGNER)
    auth = authenticator("leafnodes { port: -1, authorization { nkey: $KEY } }", KEY=SIGNER.public_key)
    found = auth.leaf(LeafConnect(nkey=fields["nkey"], sig=fields["sig"]), NONCE, LEAF_PEER)
    assert found == AuthResult(account="$G", user=SIGNER.public_key)
    assert auth.leaf(LeafConnect(nkey=fields["nkey"], sig=fields["sig"]), "other", LEAF_PEER) is None
    text = """
        accounts [A, B]
        leafnodes { port: -1, authorization { users [
            {user: a, password: p, account: A, permissions: {publish: x}}, {nkey: $KEY, account: B}] } }
    """
    auth = authenticator(text, KEY=SIGNER.public_key)
    found = auth.leaf(LeafConnect(user="a", password="p"), NONCE, LEAF_PEER)
    assert found == AuthResult(account="A", user="a", permissions=Permissions(publish=SubjectPermission(allow=(b"x",))))
    found = auth.leaf(LeafConnect(nkey=fields["nkey"], sig=fields["sig"]), NONCE, LEAF_PEER)
    assert found is not None
    assert found.account == "B"
    auth = authenticator("accounts [A]\nleafnodes { port: -1, authorization { account: A } }")
    assert auth.leaf(LeafConnect(), NONCE, LEAF_PEER) == AuthResult(account="A")


def test_what_counts_as_bcrypt() -> None:
    for prefix in "abxy":
        assert is_bcrypt(f"$2{prefix}$11$anything")
    for text in ("$2c$11$x", "$2a$1$x", "x$2a$11$y", "", "plain"):
        assert not is_bcrypt(text)


def test_bcrypt_outcomes_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = PasswordChecker()
    calls: list[str] = []

    def check(configured: str, presented: str) -> bool:
        calls.append(presented)
        return presented == "secret"

    monkeypatch.setattr(passwords, "_check_bcrypt", check)
    monkeypatch.setattr(passwords, "OUTCOMES_MAX", 2)
    assert checker.matches(SECRET_HASH, "secret")
    assert checker.matches(SECRET_HASH, "secret")
    assert not checker.matches(SECRET_HASH, "wrong")
    assert not checker.matches(SECRET_HASH, "wrong")
    assert calls == ["secret", "wrong"]
    assert not checker.matches(SECRET_HASH, "third")  # pushes out "secret", the least recently used
    assert checker.matches(SECRET_HASH, "secret")
    assert calls == ["secret", "wrong", "third", "secret"]


def test_malformed_hashes_and_odd_passwords_match_nothing() -> None:
    checker = PasswordChecker()
    assert not checker.matches("$2a$11$short", "x")
    assert not checker.matches(SECRET_HASH, "sec\0ret")
    assert not checker.matches(SECRET_HASH, "\udc80")
    assert checker.matches(bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode(), "x" * 100)


def test_a_leafs_bcrypt_check_runs_elsewhere() -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    user = f'user: edge, password: "{hashed}"'
    for text in (
        f"accounts {{ A {{ users: [ {{ {user} }} ] }} }}",
        f"accounts {{ A {{}} }}, leafnodes {{ authorization {{ {user}, account: A }} }}",
    ):
        options = read_options(parse_text(text)).options
        jobs: list[tuple[Callable[[], bool], Callable[[bool], None]]] = []
        authenticator = ConfigAuthenticator(
            options, background=lambda check, then, jobs=jobs: jobs.append((check, then))
        )  # type: ignore[misc]
        for password, account in (("secret", "A"), ("wrong", None)):
            decision = authenticator.leaf(LeafConnect(user="edge", password=password), "", Peer())
            assert isinstance(decision, Deferred)
            got: list[Login | None] = []
            decision.when_done(got.append)
            check, then = jobs.pop()
            then(check())
            assert [login and login.account for login in got] == [account]
        assert isinstance(
            authenticator.leaf(LeafConnect(user="edge", password="secret"), "", Peer()), AuthResult
        )  # known by now
