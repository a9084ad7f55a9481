"""Leaf links over WebSocket."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.links.leaf_pair import LeafPair, bulk, eventually
from support.servers.server_process import free_port
from support.trust.certificates import Authority

ACCOUNTS = """
accounts { ACC: { users: [{user: acc, password: acc}] } }
"""
HUB = """
server_name: hub-server
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
websocket { listen: "127.0.0.1:WS_PORT", WS_OPTIONS }
"""
LEAF = """
server_name: leaf-server
leafnodes { reconnect: 1, remotes = [ { urls: ["SCHEME://acc:acc@127.0.0.1:WS_PORTPATH"], account: ACC, REMOTE } ] }
"""
PAIRS = [("nats-server", "eyotd"), ("eyotd", "nats-server"), ("eyotd", "eyotd")]
#: With servers from 2.10 on, which compress leaf links with S2 unless the other side declines.
NEWER_PAIRS = [("2.10.26", "eyotd"), ("eyotd", "2.10.26"), ("2.14.6", "eyotd"), ("eyotd", "2.14.6")]


def configs(options: str, *, scheme: str = "ws", path: str = "", remote: str = "") -> dict[str, str]:
    port = str(free_port())
    hub = HUB.replace("WS_PORT", port).replace("WS_OPTIONS", options)
    leaf = LEAF.replace("WS_PORT", port).replace("SCHEME", scheme).replace("PATH", path).replace("REMOTE", remote)
    return {"hub_config": hub, "leaf_config": leaf}


@pytest.mark.parametrize(("hub", "leaf"), [*PAIRS, *NEWER_PAIRS])
@pytest.mark.parametrize("compression", [False, True])
def test_link_over_websocket(hub: str, leaf: str, compression: bool, tmp_path: Path) -> None:
    options = "no_tls: true" + (", compression: true" if compression else "")
    remote = "ws_compression: true" if compression else ""
    with LeafPair(hub, leaf, tmp_path, accounts=ACCOUNTS, **configs(options, remote=remote)) as pair:
        pair.play(bulk)


@pytest.mark.parametrize(("hub", "leaf"), [*PAIRS, *NEWER_PAIRS])
def test_link_over_wss(hub: str, leaf: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    remote = f'tls {{ ca_file: "{authority.ca_file}" }}'
    config = configs(authority.block("hub"), scheme="wss", remote=remote)
    with LeafPair(hub, leaf, tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.play(bulk)


def test_path_of_the_url_is_kept(tmp_path: Path) -> None:
    """(Neither side of nats-server 2.9 knows a path before `/leafnode`.)"""
    with LeafPair(
        "eyotd", "eyotd", tmp_path, accounts=ACCOUNTS, **configs("no_tls: true", path="/behind/a/proxy")
    ) as pair:
        pair.play(bulk)


def test_a_port_that_is_no_websocket_is_named(tmp_path: Path) -> None:
    with LeafPair("eyotd", "eyotd", tmp_path, accounts=ACCOUNTS, **configs("no_tls: true")) as pair:
        pair.play(bulk)
        pair.leaf.stop()
        for port, words in ((pair.hub.monitor_port, "refused with HTTP status"), (pair.hub.client_port, "")):
            remote = (
                LEAF.replace("WS_PORT", str(port)).replace("SCHEME", "ws").replace("PATH", "").replace("REMOTE", "")
            )
            pair.leaf.set_config(remote + ACCOUNTS)
            pair.leaf.start()
            _wait_for_error(pair, words)
            pair.leaf.stop()


def _wait_for_error(pair: LeafPair, words: str) -> None:
    import asyncio

    def failed() -> bool:
        error = pair.leaf.monitor("/eyot/status")["links"][0]["last_error"]
        return bool(error) and words in error

    async def run() -> None:
        await eventually(failed)

    asyncio.run(run())
