"""`eyot` behind a SOCKS5 proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.socks_proxy import SocksProxy
from support.servers.eyot_tool import Tool
from support.servers.eyotd import Eyotd


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def eyot(running: Eyotd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Tool(running, tmp_path)


def test_the_proxy_reaches_the_server(eyot: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with SocksProxy() as proxy:
        assert "127.0.0.1" in eyot("rtt", "1", "--socks-proxy", f"socks5://127.0.0.1:{proxy.port}")
        assert proxy.asked == [("127.0.0.1", int(eyot.server.client_url().rpartition(":")[2]))]
        monkeypatch.setenv("NATS_SOCKS_PROXY", f"socks5h://127.0.0.1:{proxy.port}")
        eyot("rtt", "1")
        assert len(proxy.asked) == 2


def test_a_login_at_the_proxy_from_a_context(eyot: Tool) -> None:
    with SocksProxy(("me", "p@ss")) as proxy:
        eyot("context", "add", "far", "--socks-proxy", f"socks5://me:p%40ss@127.0.0.1:{proxy.port}")
        eyot("rtt", "1", "--context", "far")
        assert len(proxy.asked) == 1
        assert "p%40ss" not in eyot("context", "show", "far")
        at = f"socks5://127.0.0.1:{proxy.port}"
        assert "it wants a login" in eyot.fails("rtt", "--socks-proxy", at)
        assert "it refuses the login" in eyot.fails("rtt", "--socks-proxy", f"socks5://me:no@127.0.0.1:{proxy.port}")
        assert len(proxy.asked) == 1


def test_what_the_proxy_says_is_told(eyot: Tool) -> None:
    with SocksProxy(answer=4) as proxy:
        at = f"socks5://127.0.0.1:{proxy.port}"
        assert eyot.fails("rtt", "--socks-proxy", at).endswith(": host unreachable")
    server = f"socks5://{eyot.server.client_url().rpartition('/')[2]}"
    assert "no SOCKS5 proxy" in eyot.fails("rtt", "--socks-proxy", server)
    assert "the proxy is no socks5://" in eyot.fails("rtt", "--socks-proxy", "127.0.0.1:1080")
