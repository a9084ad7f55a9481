"""Links as they are between real processes: slow ones stay up and are used, half-open ones are found within 15 seconds."""

from __future__ import annotations

import asyncio
import time
import warnings
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from support.links.leaf_pair import ACCOUNTS, LeafPair, eventually, reaches
from support.links.namespaces import FarEyotd, NoNamespaces, Wire
from support.links.shaper import Shaper
from support.servers.nats_server import NatsServer

#: 50 kbit/s, and half of 600 ms each way.
_RADIO = {"bytes_per_s": 6250.0, "delay_s": 0.3, "jitter_s": 0.02}
_MESSAGE = 2048
_MESSAGES = 36


def through(pair: LeafPair, shaper: Shaper) -> None:
    """Start the leaf with its remotes behind the shaper."""
    text = pair.leaf.config_path.read_text().replace(f":{pair.hub.leaf_port}", f":{shaper.port}")
    text = text.replace("reconnect: 1", 'reconnect: "1s"').replace("account: ACC }", "account: ACC, dial_timeout: 5s,"
                                                                   " first_info_timeout: 5s, ignore_discovered_servers: true }")  # fmt: skip
    pair.leaf.stop()
    pair.leaf.config_path.write_text(text)
    pair.leaf.start()


async def both(pair: LeafPair) -> tuple[Client, Client]:
    return await nats.connect(pair.hub.client_url("acc")), await nats.connect(pair.leaf.client_url("acc"))


def link(pair: LeafPair) -> dict[str, object]:
    links = pair.leaf.monitor("/eyot/status")["links"]
    return next(dict(each) for each in links if each["account"] == "ACC")


def test_a_radio_is_used_and_what_is_urgent_does_not_wait(tmp_path: Path) -> None:
    async def play(pair: LeafPair, shaper: Shaper) -> None:
        at_hub, at_leaf = await both(pair)
        await at_leaf.jetstream().add_stream(name="R", subjects=["r.>"])
        source = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
        await eventually(lambda: link(pair)["state"] == "up", 30)
        await at_hub.jetstream().add_stream(StreamConfig(name="ALL", sources=[source]))
        stored = at_hub.jetstream()
        shaper.shape(**_RADIO)
        for _ in range(_MESSAGES):
            await at_leaf.jetstream().publish("r.a", b"x" * _MESSAGE)
        begun, before = time.monotonic(), shaper.up.passed
        while (await stored.stream_info("ALL")).state.messages < _MESSAGES // 4:
            await asyncio.sleep(0.1)
        waits = []
        for _ in range(3):
            asked = time.monotonic()
            await at_leaf.request("$JS.hub.API.INFO", b"", timeout=30)
            waits.append(time.monotonic() - asked)
        while (await stored.stream_info("ALL")).state.messages < _MESSAGES:
            assert time.monotonic() - begun < 120
            await asyncio.sleep(0.1)
        print(f"{(shaper.up.passed - before) / (time.monotonic() - begun):.0f} bytes/s, waits {waits}")
        assert (await stored.stream_info("ALL")).state.messages == _MESSAGES
        assert link(pair)["state"] == "up"
        assert shaper.connections == 2, "one for each account, and none anew"
        await at_hub.close()
        await at_leaf.close()

    with LeafPair("nats-server", "eyotd", tmp_path) as pair, Shaper(pair.hub.leaf_port) as shaper:
        through(pair, shaper)
        asyncio.run(play(pair, shaper))


async def _found_and_replaced(pair: LeafPair, shaper: Shaper) -> None:
    at_hub, at_leaf = await both(pair)
    await eventually(lambda: link(pair)["state"] == "up", 30)
    await asyncio.sleep(2)
    begun = time.monotonic()
    shaper.swallow()
    await eventually(lambda: shaper.connections >= 4 and link(pair)["state"] == "up", 60)
    print(f"half-open: found and replaced after {time.monotonic() - begun:.1f} s")
    await reaches(at_leaf, at_hub)
    await at_hub.close()
    await at_leaf.close()


def test_a_half_open_link_is_found_and_replaced(tmp_path: Path) -> None:
    with LeafPair("nats-server", "eyotd", tmp_path) as pair, Shaper(pair.hub.leaf_port) as shaper:
        through(pair, shaper)
        asyncio.run(_found_and_replaced(pair, shaper))


_FAR_HUB = """
listen: 0.0.0.0:%CLIENT_PORT%
server_name: hub-server
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: "0.0.0.0:%LEAF_PORT%", no_advertise: true }
"""
_FAR_LEAF = """
listen: 0.0.0.0:%CLIENT_PORT%
http: 0.0.0.0:%MONITOR_PORT%
server_name: leaf-server
jetstream { store_dir: "%WORKDIR%/store", domain: leaf }
leafnodes { reconnect: "1s", remotes = [{ urls: ["nats-leaf://acc:acc@HUB:PORT"], account: ACC }] }
"""


def test_a_wire_that_is_cut_between_two_hosts(tmp_path: Path) -> None:
    """Real interfaces: what is cut says nothing to anybody. Where namespaces cannot be made, the shaper loses the bytes instead."""
    try:
        with Wire() as wire, NatsServer(_FAR_HUB + ACCOUNTS, tmp_path / "hub") as hub:
            config = _FAR_LEAF.replace("HUB", wire.here).replace('PORT"', f'{hub.leaf_port}"')
            leaf = FarEyotd(config + ACCOUNTS, tmp_path / "leaf")
            leaf.wire, leaf.host = wire, wire.there
            try:
                leaf.start()
                asyncio.run(_cut_and_resumed(hub, leaf, wire))
            except BaseException:
                print(leaf.log()[-3000:])
                raise
            finally:
                leaf.kill()
    except NoNamespaces as missing:
        warnings.warn(f"no network namespaces ({missing}): cut in user space instead", stacklevel=1)
        with LeafPair("nats-server", "eyotd", tmp_path / "pair") as pair, Shaper(pair.hub.leaf_port) as shaper:
            through(pair, shaper)
            asyncio.run(_found_and_replaced(pair, shaper))


def test_a_network_that_returns_is_used_at_once(tmp_path: Path) -> None:
    """The next attempt would come in an hour or so: the kernel's word that the wire is back brings it now."""
    try:
        with Wire() as wire, NatsServer(_FAR_HUB + ACCOUNTS, tmp_path / "hub") as hub:
            config = _FAR_LEAF.replace("HUB", wire.here).replace('PORT"', f'{hub.leaf_port}"')
            config = config.replace('"1s"', '"6h"').replace(
                "account: ACC", "account: ACC, dial_timeout: 30s, first_info_timeout: 30s"
            )
            leaf = FarEyotd(config + ACCOUNTS, tmp_path / "leaf")
            leaf.wire, leaf.host = wire, wire.there
            wire.cut()
            try:
                leaf.start(wait=False)  # nobody reaches it yet
                leaf.wait_log("Error trying to connect as leafnode", 60)
                wire.restore()
                asyncio.run(eventually(lambda: bool(hub.monitor("/leafz")["leafs"]), 60))
            except BaseException:
                print(leaf.log()[-3000:])
                raise
            finally:
                leaf.kill()
    except NoNamespaces as missing:
        pytest.skip(f"no network namespaces: {missing}")


async def _cut_and_resumed(hub: NatsServer, leaf: FarEyotd, wire: Wire) -> None:
    at_hub = await nats.connect(hub.client_url("acc"))

    def is_up() -> bool:
        return bool(hub.monitor("/leafz")["leafs"])

    await eventually(is_up, 30)
    at_leaf = await nats.connect(leaf.client_url("acc"))
    await at_leaf.jetstream().add_stream(name="R", subjects=["r.>"])
    source = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
    await at_hub.jetstream().add_stream(StreamConfig(name="ALL", sources=[source]))
    for _ in range(50):
        await at_leaf.jetstream().publish("r.a", b"x" * 100)
    await at_leaf.close()
    begun = time.monotonic()
    wire.cut()
    await asyncio.to_thread(leaf.wait_log, "Stale Connection", 60)
    print(f"a cut wire: found after {time.monotonic() - begun:.1f} s")
    wire.restore()
    begun = time.monotonic()
    async with asyncio.timeout(60):
        while (await at_hub.jetstream().stream_info("ALL")).state.messages < 50:
            await asyncio.sleep(0.1)
    print(f"everything there {time.monotonic() - begun:.1f} s after it was mended")
    assert (await at_hub.jetstream().stream_info("ALL")).state.messages == 50
    await at_hub.close()
