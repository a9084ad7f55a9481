"""Passwords of bridges: from private files only, and systemd's credentials first."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.bridge.login import LoginError, login_of
from eyot_daemon.config.bridges import BridgeOptions
from eyot_daemon.config.leaf import LeafUrl
from eyot_daemon.config.tls import TlsOptions

URL = LeafUrl(scheme="mqtt", host="h", port=1883)


def bridge(**options: object) -> BridgeOptions:
    return BridgeOptions(name="b", urls=(URL,), **options)  # type: ignore[arg-type]


def test_a_password_of_the_configuration() -> None:
    assert login_of(bridge(), {}) == (None, None)
    assert login_of(bridge(user="u"), {}) == ("u", None)
    assert login_of(bridge(user="u", password="p"), {}) == ("u", b"p")
    url = LeafUrl(scheme="mqtt", host="h", port=1883, user="x", password="y")
    assert login_of(BridgeOptions(name="b", urls=(url,)), {}) == ("x", b"y")


def test_a_password_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    options = bridge(user="u", password_file=str(file))
    with pytest.raises(LoginError, match="No such file"):
        login_of(options, {})
    file.write_bytes(b"p w\n")
    for mode in (0o644, 0o604, 0o660, 0o666):
        file.chmod(mode)
        with pytest.raises(LoginError, match="others may read it") as caught:
            login_of(options, {})
        assert "p w" not in str(caught.value)
    file.chmod(0o600)
    assert login_of(options, {}) == ("u", b"p w")
    file.write_bytes(b"x" * 70_000)
    with pytest.raises(LoginError, match="longer than"):
        login_of(options, {})


def test_systemds_credentials_first(tmp_path: Path) -> None:
    file = tmp_path / "cloud.password"
    file.write_bytes(b"secret")
    file.chmod(0o400)
    options = bridge(user="u", password_file="cloud.password")
    assert login_of(options, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == ("u", b"secret")
    with pytest.raises(LoginError):
        login_of(options, {})


def test_the_key_of_a_certificate_is_private_too(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("key")
    key.chmod(0o644)
    options = bridge(tls=TlsOptions(cert_file="c", key_file=str(key)))
    with pytest.raises(LoginError, match="key file"):
        login_of(options, {})
    key.chmod(0o600)
    assert login_of(options, {}) == (None, None)
