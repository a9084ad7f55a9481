"""An account that is removed and made again is served as before: JetStream, leaf links in both directions, what belongs to the device.

By tokens (deleted, and pushed again) and by reloads of the configuration. nats-server 2.14.6 refuses users of such an account
for a while, and keeps links of an account that a reload removes: there is nothing to compare.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js.api import StreamConfig

from support.links.bridge_fixture import link, until
from support.links.leaf_pair import HUB, reaches, server
from support.servers.eyotd import Eyotd
from support.servers.mosquitto import Mosquitto, publish
from support.servers.server_process import ServerProcess
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SYSTEM, USER, Key, creds, operator_conf

WAIT_S = 30.0
JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
GATEWAY = """
server_name: gateway
jetstream { store_dir: "%WORKDIR%/store", domain: gateway }
leafnodes { reconnect: 1, remotes = [ { urls: ["nats-leaf://127.0.0.1:HUB_PORT"], account: ACCOUNT } ] }
"""


def account(key: Key = ALPHA) -> str:
    return OPERATOR.account(key, limits=JETSTREAM)


class Gateway:
    """A server in operator mode, whose accounts come and go by requests of its system account."""

    def __init__(self, folder: Path, config: str, *accounts: str) -> None:
        resolver = f'{{ type: full, dir: "{folder / "jwt"}", allow_delete: true }}'
        trust = f"{operator_conf(*accounts, resolver=resolver)}system_account: {SYSTEM.public}\n"
        self.process = Eyotd(config.replace("ACCOUNT", ALPHA.public) + trust, folder / "gateway")
        self._folder = folder

    async def client(self, token: str = "", key: Key = USER) -> Client:
        path = self._folder / f"{key.public}.creds"
        path.write_text(creds(token or ALPHA.user(key), key))
        return await nats.connect(self.process.client_url(), user_credentials=str(path), allow_reconnect=False)

    async def ask(self, subject: str, payload: str) -> None:
        client = await self.client(SYSTEM.user(OTHER), OTHER)
        answer = json.loads((await client.request(subject, payload.encode(), timeout=WAIT_S)).data)
        assert "error" not in answer, answer
        await client.close()

    async def push(self, token: str) -> None:
        await self.ask("$SYS.REQ.CLAIMS.UPDATE", token)

    async def delete(self, key: Key = ALPHA) -> None:
        await self.ask(
            "$SYS.REQ.CLAIMS.DELETE", OPERATOR.sign(OPERATOR.public, {"type": "generic", "accounts": [key.public]})
        )


async def _seen(process: ServerProcess, wanted: int) -> None:
    """Wait until a hub has that many links."""
    async with asyncio.timeout(WAIT_S):
        while process.monitor("/leafz")["leafnodes"] != wanted:
            await asyncio.sleep(0.05)


def test_a_token_that_is_pushed_again(tmp_path: Path) -> None:
    """Another account's token is pushed between: nothing of it makes the account that is gone."""
    hub = server("2.14.6", HUB, tmp_path / "hub")
    gateway = Gateway(tmp_path, GATEWAY.replace("HUB_PORT", str(hub.leaf_port)), account())

    async def run() -> None:
        at_hub = await nats.connect(hub.client_url())
        client = await gateway.client()
        stream = await client.jetstream().add_stream(StreamConfig(name="KEPT", subjects=["kept"]))
        assert stream.config.name == "KEPT"
        await client.jetstream().publish("kept", b"1")
        await reaches(at_hub, client)
        await gateway.delete()
        await _seen(hub, 0)
        await gateway.push(account(BETA))
        await gateway.push(account())
        await _seen(hub, 1)
        for _ in range(2):
            back = await gateway.client()
            assert (await back.jetstream().publish("kept", b"2")).stream == "KEPT"
            await reaches(at_hub, back)
            await reaches(back, at_hub)
            await back.close()
            await gateway.push(account(BETA))
        await at_hub.close()

    try:
        hub.start()
        gateway.process.start()
        asyncio.run(run())
    finally:
        gateway.process.kill()
        hub.kill()


def test_what_belongs_to_the_device(tmp_path: Path) -> None:
    """Its answers and its bridges: they begin when the account comes, and go on when it comes again."""
    with Mosquitto(tmp_path / "mosquitto") as broker:
        config = f"""
            server_name: gateway
            jetstream {{ store_dir: "%WORKDIR%/store" }}
            eyot {{
                device {{ name: gateway, account: ACCOUNT, answers: [status] }}
                bridges {{ cloud {{
                    url: "mqtt://127.0.0.1:{broker.port}", account: ACCOUNT, reconnect: "200ms"
                    topics {{ in: {{ filter: "cmd/#", local_prefix: "from/", qos: 1 }} }}
                }} }}
            }}
        """
        gateway = Gateway(tmp_path, config, account())
        process = gateway.process

        async def answered() -> None:
            client = await gateway.client()
            await client.request("$EYOT.DEVICE.gateway.status", b"", timeout=WAIT_S)
            taken = await client.subscribe("from.cmd.x")
            await client.flush()
            async with asyncio.timeout(WAIT_S):
                while True:
                    await asyncio.to_thread(publish, broker.port, "cmd/x", "1", 1)
                    with suppress(nats.errors.TimeoutError):
                        await taken.next_msg(timeout=0.5)
                        break
            await client.close()

        async def run() -> None:
            await answered()
            for _ in range(2):
                await gateway.delete()
                await gateway.push(account(BETA))
                await gateway.push(account())
                await answered()
            await gateway.delete()

        try:
            process.start()
            until(lambda: link(process)["state"] == "up")
            asyncio.run(run())
            until(lambda: link(process)["state"] != "up", "a bridge of no account stays")
            assert "Traceback" not in process.log()
        finally:
            process.kill()


BLOCKS = {
    "KEPT": "{ users: [{user: kept, password: kept}] }",
    "GOES": "{ users: [{user: goes, password: goes}], jetstream: enabled }",
}


def _hub_config(*names: str) -> str:
    accounts = "\n".join(f"{name}: {BLOCKS[name]}" for name in names)
    return f"{HUB}\naccounts {{\n{accounts}\n}}\n"


def test_a_block_that_a_reload_brings_back(tmp_path: Path) -> None:
    """An account of the configuration goes with one reload and comes with another: its leaf nodes are linked as before."""
    hub = Eyotd(_hub_config("KEPT", "GOES"), tmp_path / "hub")
    remote = (
        f'leafnodes {{ reconnect: 1, remotes = [ {{ urls: ["nats-leaf://goes:goes@127.0.0.1:{hub.leaf_port}"] }} ] }}'
    )
    leaf = Eyotd(f"server_name: gateway\n{remote}\n", tmp_path / "leaf")

    def reload(*names: str) -> None:
        count = hub.log().count("Reloaded server configuration")
        hub.set_config(_hub_config(*names))
        hub.signal(signal.SIGHUP)
        until(lambda: hub.log().count("Reloaded server configuration") > count)

    async def run() -> None:
        at_leaf = await nats.connect(leaf.client_url())
        client = await nats.connect(hub.client_url("goes"), allow_reconnect=False)
        await client.jetstream().add_stream(StreamConfig(name="KEPT", subjects=["kept"]))
        await reaches(at_leaf, client)
        for _ in range(2):
            reload("KEPT")
            await _seen(hub, 0)
            reload("KEPT", "GOES")
            back = await nats.connect(hub.client_url("goes"))
            await _seen(hub, 1)
            await reaches(at_leaf, back)
            await reaches(back, at_leaf)
            assert (await back.jetstream().publish("kept", b"2")).stream == "KEPT"
            await back.close()
        await at_leaf.close()

    try:
        hub.start()
        leaf.start()
        asyncio.run(run())
    finally:
        leaf.kill()
        hub.kill()
