"""Leaf links over TLS, in both roles, with client certificates, and with certificates that will not do."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from eyot_daemon.net.cert_names import public_key_digest
from support.links.leaf_pair import Clients, Inbox, LeafPair, bulk, linked, server
from support.links.shaper import Shaper
from support.trust.certificates import Authority

ACCOUNTS = """
accounts { ACC: { users: [{user: acc, password: acc}] } }
"""
PAIRS = [("nats-server", "eyotd"), ("eyotd", "nats-server"), ("eyotd", "eyotd")]


def hub_config(tls: str) -> str:
    return f"""
server_name: hub-server
leafnodes {{ listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true, {tls} }}
"""


def leaf_config(tls: str, scheme: str = "tls") -> str:
    return f"""
server_name: leaf-server
leafnodes {{ reconnect: 1, remotes = [ {{ urls: ["{scheme}://acc:acc@127.0.0.1:HUB_PORT"], account: ACC, {tls} }} ] }}
"""


@pytest.mark.parametrize(("hub", "leaf"), PAIRS)
@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_link_over_tls(hub: str, leaf: str, scheme: str, tmp_path: Path) -> None:
    """The scheme, the remote's block, or the hub's INFO alone asks for TLS."""
    authority = Authority(tmp_path / "ca")
    leaf_tls = f'tls {{ ca_file: "{authority.ca_file}" }}'
    config = {"hub_config": hub_config(authority.block("hub")), "leaf_config": leaf_config(leaf_tls, scheme)}
    with LeafPair(hub, leaf, tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.play(bulk)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS)
def test_client_certificates(hub: str, leaf: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    config = {
        "hub_config": hub_config(authority.block("hub", "verify: true")),
        "leaf_config": leaf_config(authority.block("leaf")),
    }
    with LeafPair(hub, leaf, tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.play(bulk)


def test_tls_before_the_first_info(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    config = {
        "hub_config": hub_config(authority.block("hub", "handshake_first: true")),
        "leaf_config": leaf_config(authority.block("leaf", "handshake_first: true")),
    }
    with LeafPair("eyotd", "eyotd", tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.play(bulk)


@pytest.mark.parametrize(
    ("leaf", "how"), [("eyotd", "handshake_first: true"), ("eyotd", ""), ("nats-server", ""), ("2.14.6", "")]
)
def test_a_hub_that_takes_either_order(leaf: str, how: str, tmp_path: Path) -> None:
    """`handshake_first: auto`: who begins with TLS gets INFO behind it, who waits gets INFO in clear."""
    authority = Authority(tmp_path / "ca")
    config = {
        "hub_config": hub_config(authority.block("hub", "handshake_first: auto")),
        "leaf_config": leaf_config(authority.block("leaf", how)),
    }
    with LeafPair("eyotd", leaf, tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.play(bulk)


@pytest.mark.parametrize("hub", ["nats-server", "eyotd"])
def test_hub_of_another_authority_is_not_trusted(hub: str, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    leaf_tls = f'tls {{ ca_file: "{ours.ca_file}" }}'
    config = {"hub_config": hub_config(theirs.block("hub")), "leaf_config": leaf_config(leaf_tls)}
    with LeafPair(hub, "eyotd", tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.leaf.wait_log("TLS handshake error.*CERTIFICATE_VERIFY_FAILED")
        _nothing_passes(pair)
        status = pair.leaf.monitor("/eyot/status")["links"][0]
        assert "CERTIFICATE_VERIFY_FAILED" in status["last_error"]
        assert "ca_file" in status["remedy"]


@pytest.mark.parametrize("pinned", [True, False])
def test_a_remote_keeps_to_pinned_certificates(pinned: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    hub_tls = authority.block("hub")
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "ca" / "hub.pem").read_text())
    pin = public_key_digest(der) if pinned else "0" * 64
    leaf_tls = f'tls {{ ca_file: "{authority.ca_file}", pinned_certs: ["{pin}"] }}'
    config = {"hub_config": hub_config(hub_tls), "leaf_config": leaf_config(leaf_tls)}
    with LeafPair("nats-server", "eyotd", tmp_path, accounts=ACCOUNTS, **config) as pair:
        if pinned:
            pair.play(bulk)
        else:
            pair.leaf.wait_log("TLS handshake error: .*certificate not pinned")
            _nothing_passes(pair)


@pytest.mark.parametrize("leaf", ["nats-server", "eyotd"])
def test_leaf_without_certificate_is_refused(leaf: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    leaf_tls = f'tls {{ ca_file: "{authority.ca_file}" }}'
    config = {"hub_config": hub_config(authority.block("hub", "verify: true")), "leaf_config": leaf_config(leaf_tls)}
    with LeafPair("eyotd", leaf, tmp_path, accounts=ACCOUNTS, **config) as pair:
        pair.hub.wait_log("TLS leafnode handshake error")
        _nothing_passes(pair)
        if leaf == "eyotd":
            pair.leaf.wait_log("TLS alert of the hub: certificate required")


def test_leaf_that_speaks_in_clear_to_a_tls_hub(tmp_path: Path) -> None:
    """A peer that ignores `tls_required` is refused; others are not."""
    authority = Authority(tmp_path / "ca")
    leaf_tls = f'tls {{ ca_file: "{authority.ca_file}" }}'
    config = {"hub_config": hub_config(authority.block("hub")), "leaf_config": leaf_config(leaf_tls)}
    with LeafPair("eyotd", "eyotd", tmp_path, accounts=ACCOUNTS, **config) as pair:

        async def run() -> bytes:
            reader, writer = await asyncio.open_connection(pair.hub.host, pair.hub.leaf_port)
            assert b'"tls_required":true' in await reader.readline()
            writer.write(b'CONNECT {"name":"x","user":"acc","pass":"acc"}\r\nPING\r\n')
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return answer

        assert b"connect_info" not in asyncio.run(run())
        pair.play(bulk)


def _nothing_passes(pair: LeafPair) -> None:
    async def run() -> None:
        async with Clients(pair.hub, pair.leaf) as (hub, leaf):
            inbox = await Inbox.on(hub, "a")
            await leaf.publish("a", b"")
            await leaf.flush()
            await asyncio.sleep(0.2)
            assert not inbox.got

    asyncio.run(run())


def test_a_metered_link_counts_what_really_crosses(tmp_path: Path) -> None:
    """The handshake and the records of TLS too: what a wire between both sees is within what was spent."""
    authority = Authority(tmp_path / "ca")
    hub = server("eyotd", hub_config(authority.block("hub")) + ACCOUNTS, tmp_path / "hub")
    hub.start()
    with Shaper(hub.leaf_port) as wire:
        metered = f'eyot {{ sync {{ remotes [ {{ url: "127.0.0.1:{wire.port}", metered {{ budget: "100M" }} }} ] }} }}'
        config = leaf_config(f'tls {{ ca_file: "{authority.ca_file}" }}').replace("HUB_PORT", str(wire.port))
        jetstream = 'jetstream { store_dir: "%WORKDIR%/store", domain: leaf }\n'
        leaf = server("eyotd", config + ACCOUNTS + jetstream + metered, tmp_path / "leaf")
        leaf.start()
        try:

            async def play() -> None:
                async with Clients(hub, leaf, user="acc") as (at_hub, at_leaf):
                    inbox = await Inbox.on(at_hub, "up")
                    await linked(at_hub, at_leaf)
                    for number in range(50):
                        await at_leaf.publish("up", b"%d" % number)
                        await at_leaf.flush()
                    await inbox.wait(50)

            asyncio.run(play())
            link = leaf.monitor("/eyot/status")["links"][0]
            crossed = wire.up.passed + wire.down.passed
            session = link["wire_in_bytes"] + link["wire_out_bytes"]
            assert crossed > session + 2000, "there is more than the session knows of"
            assert crossed < link["metered"]["spent_bytes"] < 5 * crossed
        finally:
            leaf.kill()
            hub.kill()
