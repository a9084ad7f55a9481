"""nkeys, credentials files and JWTs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from eyot_wire.trust import nkey
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.nkey import NkeyError, Signer

ACCOUNT = Signer(nkey.encode_seed("A", b"\1" * 32))
USER_SEED = nkey.encode_seed("U", b"\2" * 32)
USER = Signer(USER_SEED)
OPERATOR = Signer(nkey.encode_seed("O", b"\3" * 32))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims: dict[str, Any], signer: Signer = ACCOUNT, *, version: int = 2, alg: str = "") -> str:
    header = b64(json.dumps({"typ": "JWT", "alg": alg or ("ed25519-nkey" if version == 2 else "ed25519")}).encode())
    payload = b64(json.dumps({"iss": signer.public_key} | claims).encode())
    signed = f"{header}.{payload}" if version == 2 else payload
    return f"{header}.{payload}.{b64(signer.sign(signed.encode()))}"


USER_CLAIMS = {
    "sub": USER.public_key,
    "name": "gateway-7",
    "iat": 100,
    "exp": 200,
    "nats": {"type": "user", "version": 2, "pub": {"allow": ["a.>"]}, "sub": {}, "subs": -1, "tags": ["site:ridge"]},
}


def test_public_keys() -> None:
    assert nkey.decode_public(USER.public_key)[0] == "U"
    assert nkey.is_public(ACCOUNT.public_key, "A")
    assert not nkey.is_public(ACCOUNT.public_key, "U")
    assert nkey.encode_public(*nkey.decode_public(USER.public_key)) == USER.public_key
    changed = USER.public_key[:-1] + ("A" if USER.public_key[-1] != "A" else "B")
    for wrong in ("", "UABC", changed, USER_SEED, USER.public_key.lower(), "é" * 56):
        assert not nkey.is_public(wrong, "U")


def test_seeds_and_signatures() -> None:
    signature = USER.sign(b"nonce")
    assert nkey.verify(USER.public_key, b"nonce", signature)
    assert not nkey.verify(USER.public_key, b"other", signature)
    assert not nkey.verify(ACCOUNT.public_key, b"nonce", signature)
    assert not nkey.verify("nonsense", b"nonce", signature)
    assert not nkey.verify(USER.public_key, b"nonce", signature[:-1])
    assert nkey.decode_signature(nkey.encode_signature(signature)) == signature
    assert nkey.decode_signature(base64.b64encode(signature).decode()) == signature
    assert USER_SEED not in repr(USER)
    for wrong in ("", "SUABC", USER_SEED[:-1] + "A" * 1, USER.public_key, "S" * 58):
        if wrong != USER_SEED:
            with pytest.raises(NkeyError):
                Signer(wrong)


def test_credentials_files() -> None:
    jwt = token(USER_CLAIMS)
    text = f"""-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{USER_SEED}
------END USER NKEY SEED------

*************************************************************
"""
    for variant in (text, text.replace("\n", "\r\n")):
        creds = parse_creds(variant)
        assert (creds.jwt, creds.seed) == (jwt, USER_SEED)
    assert nkey.verify(creds.public_key(), b"abc", nkey.decode_signature(creds.sign("abc")))
    assert USER_SEED not in repr(creds)
    assert parse_creds(USER_SEED + "\n").seed == USER_SEED
    for wrong in ("", "nothing here", text.replace(USER_SEED, "SUAAA")):
        with pytest.raises(NkeyError) as caught:
            parse_creds(wrong)
        assert jwt not in str(caught.value)


def test_a_user_jwt() -> None:
    claims = decode(token(USER_CLAIMS))
    assert (claims.kind, claims.name, claims.sub, claims.account) == (
        "user",
        "gateway-7",
        USER.public_key,
        ACCOUNT.public_key,
    )
    assert (claims.nats.pub.allow, claims.nats.tags) == (("a.>",), ("site:ridge",))
    assert claims.valid_at(150)
    assert not claims.valid_at(200)
    nested = dict(USER_CLAIMS["nats"], issuer_account=ACCOUNT.public_key)  # type: ignore[call-overload]
    signing_key = Signer(nkey.encode_seed("A", b"\7" * 32))
    assert decode(token(USER_CLAIMS | {"nats": nested}, signing_key)).account == ACCOUNT.public_key


def test_version_one_signs_the_payload_alone() -> None:
    claims = {"sub": USER.public_key, "type": "user", "nats": {"pub": {}, "sub": {}}}
    assert decode(token(claims, version=1)).kind == "user"
    with pytest.raises(JwtError, match="signature"):
        decode(token(USER_CLAIMS, version=1, alg="ed25519-nkey"))


def test_operators_and_accounts() -> None:
    nats = {"type": "account", "version": 2, "signing_keys": ["A", {"kind": "user_scope"}], "limits": {"subs": -1}}
    assert decode(token({"sub": ACCOUNT.public_key, "nats": nats}, OPERATOR)).kind == "account"
    assert (
        decode(token({"sub": OPERATOR.public_key, "nats": {"type": "operator", "version": 2}}, OPERATOR)).kind
        == "operator"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("a.b", "expected 3 chunks"),
        (
            token(USER_CLAIMS).ljust(1024 * 1024 + 1, "A"),
            "token size 1048577 exceeds maximum of 1048576 bytes: token too large",
        ),
        ("!.!.!", "not base64"),
        (token(USER_CLAIMS)[:-4] + "AAAA", "signature"),
        (token(USER_CLAIMS, alg="none"), "algorithm"),
        (token(USER_CLAIMS, USER), "issuer"),
        (token(USER_CLAIMS | {"sub": ACCOUNT.public_key}), "subject"),
        (token(USER_CLAIMS | {"nats": {"type": "user", "version": 3}}), "unsupported claim version"),
        (token(USER_CLAIMS | {"iss": "nobody"}), "signature"),
        (token(USER_CLAIMS | {"exp": "soon"}), "malformed"),
    ],
)
def test_tokens_not_to_be_believed(wrong: str, words: str) -> None:
    with pytest.raises(JwtError, match=words):
        decode(wrong)
