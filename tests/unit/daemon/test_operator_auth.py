"""Authentication in operator mode: whose token lets whom in, as what, and why not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eyot_daemon.auth.account_tokens import TokenStoreError
from eyot_daemon.auth.callout import OperatorCallout
from eyot_daemon.auth.configured import AuthResult
from eyot_daemon.auth.login import Deferred, Peer
from eyot_daemon.auth.operator import OperatorAuthenticator, Refused
from eyot_daemon.auth.trust import Trust
from eyot_daemon.config.operator import OperatorOptions, ResolverOptions
from eyot_daemon.config.permissions import Permissions, ResponsePermission, SubjectPermission
from eyot_wire.info import ClientConnect
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_account import decode_operator
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SIGNING, USER, Key, operator_token

NONCE = "fqqCuB8Cx4LW0qU"
PEER = Peer(host="192.0.2.7", port=1)
HOUR_NS = 3600 * 10**9


def authenticator(
    *accounts: str, operator: str = "", sentinel: str = "", pinned: frozenset[str] | None = None, later_ns: int = 0
) -> OperatorAuthenticator:
    claims = decode_operator(operator or operator_token())
    options = OperatorOptions(
        operators=(claims,),
        trusted_keys=claims.trusted_keys,
        resolver=ResolverOptions(kind="memory"),
        preload=tuple((key.public, token) for key, token in zip((ALPHA, BETA), accounts, strict=False)),
        default_sentinel=sentinel,
        pinned=pinned,
    )
    return OperatorAuthenticator(Trust(options, lambda: time.time_ns() + later_ns))


def login(auth: OperatorAuthenticator, token: str, key: Key = USER, peer: Peer = PEER) -> AuthResult | None:
    signature = nkey.encode_signature(key.signer.sign(NONCE.encode()))
    found = auth.client(ClientConnect(jwt=token, sig=signature), NONCE, peer)
    assert found is None or isinstance(found, AuthResult)
    return found


def test_a_users_token_and_signature() -> None:
    auth = authenticator(OPERATOR.account(ALPHA))
    found = login(auth, ALPHA.user(USER))
    assert found is not None
    assert (found.account, found.user, found.permissions, found.expires_in_s) == (ALPHA.public, USER.public, None, 0.0)
    assert login(auth, ALPHA.user(USER), OTHER) is None, "somebody else's signature"
    assert login(auth, BETA.user(USER)) is None, "an account nobody knows"
    assert login(auth, "") is None
    assert login(auth, "eyJ.x.y") is None
    assert login(auth, OPERATOR.account(ALPHA)) is None, "not a user"
    assert auth.anonymous(PEER) is None


def test_only_accounts_of_the_operator_count() -> None:
    stranger = Key("O", 99)
    auth = authenticator(stranger.account(ALPHA), OPERATOR.account(BETA))
    assert login(auth, ALPHA.user(USER)) is None
    assert login(auth, BETA.user(USER)) is not None


def test_strict_operators_sign_with_signing_keys_only() -> None:
    key = Key("O", 50)
    operator = operator_token(signing_keys=[key.public], strict_signing_key_usage=True)
    auth = authenticator(OPERATOR.account(ALPHA), key.account(BETA, signing_keys=[SIGNING.public]), operator=operator)
    assert login(auth, ALPHA.user(USER)) is None
    assert login(auth, BETA.user(USER)) is None
    assert login(auth, SIGNING.user(USER, issuer_account=BETA.public)) is not None


@pytest.mark.parametrize(
    ("nats", "allowed"),
    [
        ({}, True),
        ({"src": ["192.0.2.0/24"]}, True),
        ({"src": ["10.0.0.0/8"]}, False),
        ({"src": ["nonsense"]}, False),
        ({"allowed_connection_types": ["WEBSOCKET", "STANDARD"]}, True),
        ({"allowed_connection_types": ["WEBSOCKET"]}, False),
        ({"allowed_connection_types": ["FUTURE"]}, False),
        ({"times": [{"start": "00:00:00", "end": "23:59:59"}], "times_location": "UTC"}, True),
        ({"times": [{"start": "00:00:00", "end": "00:00:00"}], "times_location": "UTC"}, False),
        ({"times": [{"start": "00:00:00", "end": "23:59:59"}], "times_location": "Nowhere/Land"}, False),
        ({"proxy_required": True}, False),
    ],
)
def test_rules_of_a_users_token(nats: dict[str, Any], allowed: bool) -> None:
    auth = authenticator(OPERATOR.account(ALPHA))
    assert (login(auth, ALPHA.user(USER, **nats)) is not None) == allowed


def test_times() -> None:
    now = int(time.time())
    auth = authenticator(OPERATOR.account(ALPHA, exp=now + 7200))
    found = login(auth, ALPHA.user(USER, claims={"exp": now + 600}))
    assert found is not None
    assert 500 < found.expires_in_s <= 600
    assert login(auth, ALPHA.user(USER, claims={"exp": now - 1})) is None
    assert login(auth, ALPHA.user(USER, claims={"nbf": now + 600})) is None
    assert login(authenticator(OPERATOR.account(ALPHA, exp=now - 1)), ALPHA.user(USER)) is None


def test_bearer_tokens_need_no_signature_unless_the_account_forbids_them() -> None:
    token = ALPHA.user(USER, bearer_token=True)
    assert login(authenticator(OPERATOR.account(ALPHA)), token, OTHER) is not None
    assert login(authenticator(OPERATOR.account(ALPHA, limits={"disallow_bearer": True})), token) is None


def test_a_default_sentinel_stands_in() -> None:
    auth = authenticator(OPERATOR.account(ALPHA), sentinel=ALPHA.user(OTHER, bearer_token=True))
    found = login(auth, "")
    assert found is not None
    assert found.user == OTHER.public
    assert auth.anonymous(PEER) is not None


def test_pinned_accounts() -> None:
    accounts = OPERATOR.account(ALPHA), OPERATOR.account(BETA)
    auth = authenticator(*accounts, pinned=frozenset({BETA.public}))
    assert login(auth, ALPHA.user(USER)) is None
    assert login(auth, BETA.user(USER)) is not None


def test_revocations() -> None:
    now = int(time.time())
    for name in (USER.public, "*"):
        auth = authenticator(OPERATOR.account(ALPHA, revocations={name: now - 10}))
        assert login(auth, ALPHA.user(USER, claims={"iat": now - 20})) is None
        assert login(auth, ALPHA.user(USER, claims={"iat": now - 10})) is None
        assert login(auth, ALPHA.user(USER, claims={"iat": now})) is not None


def test_users_of_an_account_with_a_callout_are_asked_about() -> None:
    inner = authenticator(OPERATOR.account(ALPHA, authorization={"auth_users": [OTHER.public]}))
    asked: list[str] = []
    auth = OperatorCallout(inner, inner.trust, lambda rules, *about: asked.append(rules.account))

    def enters(key: Key) -> object:
        signature = nkey.encode_signature(key.signer.sign(NONCE.encode()))
        return auth.client(ClientConnect(jwt=ALPHA.user(key), sig=signature), NONCE, PEER)

    assert isinstance(enters(OTHER), AuthResult)
    assert asked == []
    assert isinstance(enters(USER), Deferred)
    assert asked == [ALPHA.public]
    assert auth.client(ClientConnect(jwt=ALPHA.user(USER)), NONCE, PEER) is None, "without a signature nobody is asked"


def test_permissions_and_the_accounts_defaults() -> None:
    auth = authenticator(OPERATOR.account(ALPHA, default_permissions={"pub": {"deny": ["x"]}}))
    found = login(auth, ALPHA.user(USER))
    assert found is not None
    assert found.permissions == Permissions(publish=SubjectPermission(deny=(b"x",)))
    found = login(auth, ALPHA.user(USER, sub={"allow": ["a.>", "q work"]}, resp={"max": 0, "ttl": 5 * 10**9}))
    assert found is not None
    assert found.permissions == Permissions(
        publish=SubjectPermission(allow=()),
        subscribe=SubjectPermission(allow=(b"a.>", b"q work")),
        allow_responses=ResponsePermission(max_messages=1, expires_s=5.0),
    )


def scoped(**template: Any) -> OperatorAuthenticator:
    scope = {
        "kind": "user_scope",
        "key": SIGNING.public,
        "role": "r",
        "template": {"subs": -1, "payload": -1} | template,
    }
    return authenticator(OPERATOR.account(ALPHA, signing_keys=[scope], tags=["site:north"]))


def test_scoped_signing_keys() -> None:
    auth = scoped(
        pub={"allow": ["{{name()}}.{{ tag(team) }}.{{account-tag(site)}}", "{{tag(none)}}"], "deny": ["{{subject()}}"]},
        subs=3,
    )
    token = SIGNING.user(USER, scoped=True, issuer_account=ALPHA.public, tags=["team:a", "team:b"])
    found = login(auth, token)
    assert found is not None
    assert found.permissions is not None
    assert found.permissions.publish == SubjectPermission(
        allow=(b"somebody.a.north", b"somebody.b.north"), deny=(USER.public.encode(),)
    )
    assert found.token is not None
    assert found.token.grant.subs == 3
    own_limits = SIGNING.user(USER, issuer_account=ALPHA.public)
    assert login(auth, own_limits) is None, "scoped users may have no limits of their own"


def test_templates_that_give_nothing_allow_nothing_and_deny_nobody_by_accident() -> None:
    token = SIGNING.user(USER, scoped=True, issuer_account=ALPHA.public)
    found = login(scoped(sub={"allow": ["{{tag(none)}}"]}), token)
    assert found is not None
    assert found.permissions is not None
    assert found.permissions.subscribe.deny == (b">",)
    assert login(scoped(sub={"deny": ["{{tag(none)}}"]}), token) is None
    assert login(scoped(sub={"allow": ["{{nonsense()}}"]}), token) is None


def test_judging_again_says_what_a_connected_client_is_told() -> None:
    now = int(time.time())
    before = authenticator(OPERATOR.account(ALPHA))
    found = login(before, ALPHA.user(USER))
    assert found is not None
    assert found.token is not None
    for account, text in (
        (OPERATOR.account(ALPHA, exp=now - 1), "Account Authentication Expired"),
        (OPERATOR.account(ALPHA, revocations={"*": now}), "User Authentication Revoked"),
        (Key("O", 99).account(ALPHA), "Account Authentication Expired"),
    ):
        with pytest.raises(Refused) as caught:
            authenticator(account).authorize(found.token, PEER)
        assert caught.value.text == text


def test_updates_are_believed_only_from_the_operator() -> None:
    auth = authenticator(OPERATOR.account(ALPHA))
    trust = auth.trust
    with pytest.raises(JwtError, match="not signed by trusted operator"):
        trust.accept(Key("O", 99).account(ALPHA))
    with pytest.raises(JwtError, match="validation errors"):
        trust.accept(OPERATOR.account(ALPHA, imports=[{"type": "stream", "subject": "a..b", "account": "x"}]))
    with pytest.raises(TokenStoreError, match="MEMORY"):
        trust.accept(OPERATOR.account(ALPHA, revocations={"*": int(time.time()) + 5}))
    assert login(auth, ALPHA.user(USER)) is not None
