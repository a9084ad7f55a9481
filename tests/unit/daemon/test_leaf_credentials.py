"""What a remote presents to its hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.config.leaf import LeafUrl, RemoteOptions
from eyot_daemon.leaf.credentials import CredentialsError, credentials_for, out_of_date
from eyot_wire.trust import nkey
from support.trust.claims import ALPHA, USER, creds

SEED = nkey.encode_seed("U", bytes(range(32)))
PUBLIC = nkey.Signer(SEED).public_key


def url(host: str = "hub", user: str = "", password: str | None = None) -> LeafUrl:
    return LeafUrl(scheme="nats", host=host, port=7422, user=user, password=password)


def remote(*urls: LeafUrl, **options: str) -> RemoteOptions:
    return RemoteOptions(urls=urls or (url(),), **options)


def test_user_of_the_url_or_of_the_first_one() -> None:
    first, second, bare = url("a", "u", "p"), url("b", "v", "q"), url("c")
    both = remote(first, second)
    assert credentials_for(both, second).user == "v"
    assert credentials_for(both, bare).user == "u"
    assert credentials_for(both, bare).password == "p"
    lone = url(user="token")
    assert credentials_for(remote(lone), lone).password is None


def test_nothing_to_present() -> None:
    found = credentials_for(remote(), url())
    assert (found.user, found.jwt, found.sign) == ("", "", None)


def test_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "device.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    found = credentials_for(remote(credentials=str(path)), url())
    assert (found.jwt, found.nkey) == ("eyJ0.eyJq.c2ln", "")
    assert found.sign is not None
    assert nkey.verify(PUBLIC, b"nonce", found.sign(b"nonce"))


@pytest.mark.parametrize("as_file", [False, True])
def test_seed_or_file_with_a_seed(as_file: bool, tmp_path: Path) -> None:
    value = SEED
    if as_file:
        path = tmp_path / "device.nk"
        path.write_text(SEED + "\n")
        value = str(path)
    found = credentials_for(remote(nkey=value), url())
    assert found.nkey == PUBLIC
    assert found.sign is not None
    assert nkey.verify(PUBLIC, b"nonce", found.sign(b"nonce"))


@pytest.mark.parametrize("option", ["credentials", "nkey"])
def test_what_cannot_be_read_is_named_and_not_shown(option: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CredentialsError, match=f"{missing}: No such file"):
        credentials_for(remote(**{option: str(missing)}), url())
    broken = tmp_path / "broken"
    broken.write_text("SUANOTASEEDATALL\n")
    with pytest.raises(CredentialsError) as refused:
        credentials_for(remote(**{option: str(broken)}), url())
    assert str(broken) in str(refused.value)
    assert "SUANOT" not in str(refused.value)


def test_a_seed_that_is_none_is_not_shown() -> None:
    with pytest.raises(CredentialsError) as refused:
        credentials_for(remote(nkey="SUANOTASEEDATALL"), url())
    assert "SUANOT" not in str(refused.value)


def test_a_token_out_of_date_is_told(tmp_path: Path) -> None:
    path = tmp_path / "device.creds"
    path.write_text(creds(ALPHA.user(USER, claims={"nbf": 1_700_000_000, "exp": 1_700_003_600}), USER))
    presented = remote(credentials=str(path))
    assert out_of_date(presented, 1_700_003_599) == ""
    late = f"the token in {path} expired on 2023-11-14 23:13 UTC by the clock here"
    assert out_of_date(presented, 1_700_003_600) == late
    assert out_of_date(presented, 0).endswith("begins on 2023-11-14 22:13 UTC by the clock here")
    assert out_of_date(remote(), 0) == ""
    path.write_text("nothing")
    assert out_of_date(presented, 0) == ""
