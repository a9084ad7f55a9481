"""Signed tokens are nats-io/jwt's: identifiers, hashes of activations, roles, and what a decoder reads."""

from __future__ import annotations

import pytest

from eyot_wire.trust.creds import format_creds, parse_creds
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.jwt_sign import activation_hash, decode_members, decorate, sign_members, token_id
from eyot_wire.trust.nkey import NkeyError, Signer, curve_public, encode_seed

OPERATOR, ACCOUNT, USER = (Signer(encode_seed(role, bytes([number] * 32))) for number, role in enumerate("OAU"))
IMPORTER = "ACFPRF5TTISXNCEQXMGLW7FAAJLUND6RJAXVOEV4KV2HBHAV7YWFTGQS"
EXPORTER = "AA2FSVVAEQGELQQ3YCEQE66LIZZUW4QJGR6XPAF7SRVYKEGN355VISI4"


def test_identifiers_are_nscs() -> None:
    """Two tokens that nsc 2.12 made: `jti` of an operator, and of an activation whose name has a character that Go escapes."""
    operator = "OAFP752VU3XZNMCZFRP5U4QQFLPAYIGSIPFYEVMLG3D7KYXX3NE7QRNV"
    outer = {"iat": 1795406708, "iss": operator, "name": "OP", "sub": operator}
    assert token_id(outer) == "YUATLCUFAVXSPUJQVAZFR64YNJCJULF2UBO4DFGVTRXJQPQR4O4A"
    outer = {"iat": 1795407940, "iss": EXPORTER, "name": "a.b.>", "sub": IMPORTER}
    assert token_id(outer) == "N22O5M7YFM46TSVMJDKLFFZJOY7KTVMUFHP3AUMNCET54GYLKL7A"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("priv.*.x", "KQBVRSZ7CYXO4OICS5IAHL5O2TX2OUCYH26OZZ4JRN7N72GMVKOQ===="),
        ("*.y", "SP7XCQK7KSVYD4WHT547GBVEE5VGYJFNDFQ5LHKGRMZNBWIZKJFQ===="),
        ("a.b.>", "77F2JVS7TDU7BU3U2VWBOZ4PIFRHCQBGAFPO5AMZAJNSKSMHNNDA===="),
    ],
)
def test_hashes_of_activations_are_nscs(subject: str, expected: str) -> None:
    """What `nsc describe jwt` shows of activations that it made."""
    assert activation_hash(EXPORTER, IMPORTER, subject) == expected


def test_a_signed_token_is_read_back() -> None:
    nats = {"type": "user", "pub": {"allow": ["a"]}, "subs": -1, "later": {"x": 1}}
    token = sign_members({"sub": USER.public_key, "name": "u", "exp": 2000, "nbf": 0, "nats": nats}, ACCOUNT, 1000)
    claims = decode(token)
    assert (claims.sub, claims.iss, claims.iat, claims.exp, claims.nats.version) == (
        USER.public_key,
        ACCOUNT.public_key,
        1000,
        2000,
        2,
    )
    members = decode_members(token)
    assert "nbf" not in members
    assert members["nats"] == nats | {"version": 2}
    again = decode_members(sign_members(members, ACCOUNT, 1001))
    assert again["jti"] != members["jti"]
    assert again["nats"] == members["nats"]


@pytest.mark.parametrize(
    ("kind", "subject", "signer"),
    [("user", USER, OPERATOR), ("user", ACCOUNT, ACCOUNT), ("account", ACCOUNT, USER), ("operator", OPERATOR, ACCOUNT)],
)
def test_roles_are_kept(kind: str, subject: Signer, signer: Signer) -> None:
    with pytest.raises(JwtError, match="has the role"):
        sign_members({"sub": subject.public_key, "nats": {"type": kind}}, signer, 1)


def test_a_changed_token_is_refused() -> None:
    token, other = (sign_members({"sub": USER.public_key, "nats": {"type": "user"}}, ACCOUNT, at) for at in (1, 2))
    head, body, _ = token.split(".")
    with pytest.raises(JwtError, match="signature"):
        decode_members(f"{head}.{body}.{other.split('.')[2]}")


def test_credentials_are_read_back() -> None:
    seed = encode_seed("U", bytes([2] * 32))
    token = sign_members({"sub": USER.public_key, "nats": {"type": "user"}}, ACCOUNT, 1)
    assert parse_creds(format_creds(token, seed)) == (token, seed)
    assert decorate(token, "activation").splitlines()[0] == "-----BEGIN NATS ACTIVATION JWT-----"


def test_curve_keys() -> None:
    """The public key is the one that nats-io/nkeys derives."""
    seed = encode_seed("X", bytes(range(32)))
    assert seed.startswith("SX")
    assert curve_public(seed) == "XCHUBRNNW2HSKYSK4WZBJ2TWPJXMSTMCTU6XWXQ22G5G6PRBHAUF76G7"
    with pytest.raises(NkeyError):
        curve_public(encode_seed("U", bytes(32)))
