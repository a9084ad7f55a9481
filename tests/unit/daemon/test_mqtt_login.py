"""Credentials of an MQTT CONNECT as those of a client of NATS."""

from __future__ import annotations

import pytest

from eyot_daemon.mqtt.login import connect_of
from support.trust.claims import ALPHA, USER


def test_a_password_may_be_a_token_of_the_configuration() -> None:
    connect = connect_of("u", b"p\xc3\xa9", "sensor")
    assert (connect.user, connect.password, connect.auth_token, connect.jwt) == ("u", "pé", "pé", "")
    assert connect_of("u", "pé", "sensor") == connect


def test_nothing_presented_is_nothing() -> None:
    connect = connect_of("", b"", "sensor")
    assert not any((connect.user, connect.password, connect.auth_token, connect.jwt, connect.sig))


def test_a_password_of_the_form_of_a_jwt_is_one() -> None:
    token = ALPHA.user(USER, bearer_token=True)
    assert connect_of("any", token.encode(), "sensor").jwt == token


@pytest.mark.parametrize("password", [b"eyJ", b"eyJhbGciOiJ.x", b"a.b.c", b"eyJa.b.c.d", b"\xff\xfe"])
def test_other_passwords_are_not(password: bytes) -> None:
    """Services that authenticate would show them where tokens are shown."""
    assert connect_of("any", password, "sensor").jwt == ""


def test_secrets_are_not_printed() -> None:
    assert "geheim" not in repr(connect_of("u", b"geheim", "sensor"))
