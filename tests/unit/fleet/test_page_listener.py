"""Where the page of the fleet service listens."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from eyot_fleet.errors import ConfigError
from eyot_fleet.web.site import _bound
from eyot_fleet.web_options import WebOptions
from eyot_serving.listen_address import listen_address
from support.trust.certificates import Authority

SIX = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
FOUR = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))


def resolved(patch: pytest.MonkeyPatch, *found: Any) -> None:
    """Every name has these addresses, in this order."""
    patch.setattr(socket, "getaddrinfo", lambda *_given, **_more: list(found))


@pytest.mark.parametrize("found", [(SIX, FOUR), (FOUR, SIX), (FOUR,)])
def test_a_name_with_both_kinds_of_addresses_means_its_ipv4_address(
    found: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        resolved(patch, *found)
        listener, tls = _bound(WebOptions(listen="gateway:0"))
    with listener:
        assert (listener.family, listener.getsockname()[0], tls) == (socket.AF_INET, "127.0.0.1", None)


def test_a_name_with_an_ipv6_address_alone_means_that(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved(monkeypatch, SIX)
    assert listen_address("gateway", 0) == (socket.AF_INET6, ("::1", 0, 0, 0))


def test_numbers_are_taken_as_they_are() -> None:
    assert listen_address("127.0.0.1", 8300) == (socket.AF_INET, ("127.0.0.1", 8300))
    assert listen_address("::1", 8300)[1][:2] == ("::1", 8300)


def test_the_files_of_its_certificate_are_named(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "ca").issue("fleet")
    assert WebOptions(cert=str(certificate), key=str(key)).tls_context() is not None
    assert WebOptions().tls_context() is None
    with pytest.raises(ConfigError, match=r"web.key: /none/fleet.key: No such file"):
        WebOptions(cert=str(certificate), key="/none/fleet.key").tls_context()
    other = Authority(tmp_path / "ca").issue("other")[1]
    with pytest.raises(ConfigError, match=r"web.cert and web.key: .*(?i:mismatch)"):
        WebOptions(cert=str(certificate), key=str(other)).tls_context()
