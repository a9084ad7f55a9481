"""`eyot trust` with real servers, eyotd and nats-server 2.14: what it makes is accepted, and a push takes effect at once."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.trust import resolver
from support.links.leaf_pair import Clients, eventually, reaches, server
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess
from support.trust.trust_tool import TrustTool

KINDS = ["eyotd", "2.14.6"]
WAIT_S = 60.0


class Site:
    """An operator in nsc's layout, a server that trusts it, and clients with the credentials files of the store."""

    def __init__(self, trust: TrustTool, process: ServerProcess) -> None:
        self.trust = trust
        self.process = process
        self.clients: list[Client] = []
        self.said: list[str] = []

    async def push(self, *arguments: str) -> Any:
        """Push, by default all accounts; what `--json` prints."""
        words = arguments or ("-A",)
        return await asyncio.to_thread(
            self.trust.json, "push", "-u", self.process.client_url(), "--timeout", str(WAIT_S), *words
        )

    async def pull(self, *arguments: str) -> Any:
        return await asyncio.to_thread(
            self.trust.json, "pull", "-u", self.process.client_url(), "--timeout", str(WAIT_S), *arguments
        )

    async def enter(self, account: str, user: str) -> Client:
        async def heard(error: Exception) -> None:
            self.said.append(str(error).lower())

        path = self.trust.creds("OP", account, user)
        client = await nats.connect(
            self.process.client_url(),
            user_credentials=str(path),
            allow_reconnect=False,
            connect_timeout=int(WAIT_S),
            error_cb=heard,
        )
        self.clients.append(client)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    """An operator with signing keys alone, the accounts A and B, and a user each."""
    made = TrustTool(tmp_path / "store")
    made.run("add", "operator", "-n", "OP", "--generate-signing-key", "--sys")
    made.run("edit", "operator", "--require-signing-keys")
    for account, user in (("A", "alice"), ("B", "bob")):
        made.run("add", "account", account)
        made.run("edit", "account", account, "--sk", "generate")
        made.run("add", "user", user, "-a", account)
    return made


@pytest.fixture(params=KINDS)
def play(
    request: pytest.FixtureRequest, trust: TrustTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Runs a scenario at a server whose configuration the tool wrote."""
    monkeypatch.setattr(resolver, "QUIET_S", 0.05)  # there is one server, whose answer has come by then
    started: list[ServerProcess] = []

    def run(scenario: Callable[[Site], Awaitable[None]], kind: str = "--nats-resolver", more: str = "") -> None:
        config = trust.run("generate", "config", kind)
        config = config.replace("'./jwt'", "'%WORKDIR%/jwt'").replace("allow_delete: false", "allow_delete: true")
        process = server(request.param, config + more, tmp_path / request.param)
        started.append(process)
        process.start()
        site = Site(trust, process)

        async def whole() -> None:
            try:
                await scenario(site)
            finally:
                for client in site.clients:
                    await client.close()

        asyncio.run(whole())

    yield run
    for process in started:
        process.kill()


def test_users_log_in_and_keep_to_their_scope(play: Callable[..., None], trust: TrustTool) -> None:
    trust.run("edit", "signing-key", "-a", "A", "--sk", "generate", "--role", "device", "--allow-pub", "d.{{name()}}.>")
    trust.run(
        "edit", "signing-key", "-a", "A", "--sk", "device", "--allow-sub", "cmd.{{tag(site)}},_INBOX.>", "--subs", "2"
    )
    trust.run("add", "user", "pump", "-a", "A", "-K", "device", "--tag", "site:north")

    async def scenario(site: Site) -> None:
        pushed = await site.push()
        assert sorted(pushed["pushed"]) == ["A", "B", "SYS"]
        alice, pump = await site.enter("A", "alice"), await site.enter("A", "pump")
        heard = await alice.subscribe("d.>")
        await alice.flush()
        await pump.publish("d.other.x", b"not mine")
        await pump.publish("d.pump.x", b"mine")
        assert (await heard.next_msg(WAIT_S)).data == b"mine"
        await site.until(lambda: any("d.other.x" in each for each in site.said))
        commands = await pump.subscribe("cmd.north")
        await pump.flush()
        await alice.publish("cmd.north", b"start")
        assert (await commands.next_msg(WAIT_S)).data == b"start"
        await pump.subscribe("cmd.south")
        await site.until(lambda: any("cmd.south" in each for each in site.said))
        # the template changes, and with it what its users may do
        await asyncio.to_thread(
            trust.run, "edit", "signing-key", "-a", "A", "--sk", "device", "--allow-pub", "d.other.>"
        )
        await site.push("-a", "A")
        again = await site.enter("A", "pump")
        await again.publish("d.other.x", b"now mine")
        assert (await heard.next_msg(WAIT_S)).data == b"now mine"

    play(scenario)


def test_a_private_export_needs_its_activation(play: Callable[..., None], trust: TrustTool, tmp_path: Path) -> None:
    """The walk of NATS's documentation: a public stream, a private one, and a private service."""
    trust.run("add", "export", "-a", "A", "-s", "open.>")
    trust.run("add", "export", "-a", "A", "-s", "private.abc.*", "--private")
    trust.run("add", "export", "-a", "A", "-s", "private.help.*", "--private", "--service")
    trust.run("add", "import", "-a", "B", "--src-account", "A", "--remote-subject", "open.>")
    trust.run("add", "import", "-a", "B", "--src-account", "A", "--remote-subject", "private.abc.b")

    async def heard_by_bob(site: Site) -> list[bytes]:
        alice, bob = await site.enter("A", "alice"), await site.enter("B", "bob")
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        await bob.subscribe(">", cb=heard.put)
        await bob.flush()
        await alice.publish("private.abc.b", b"secret")
        await alice.publish("open.x", b"open")
        found = []
        while not found or found[-1] != b"open":
            found.append((await asyncio.wait_for(heard.get(), WAIT_S)).data)
        return found

    def activate() -> None:
        for subject, local in (("private.abc.b", "private.abc.b"), ("private.help.b", "help")):
            file = tmp_path / f"{local}.jwt"
            trust.run("generate", "activation", "-a", "A", "-s", subject, "-t", "B", "-o", file)
            trust.run("add", "import", "-a", "B", "--token", file, "--local-subject", local)

    async def scenario(site: Site) -> None:
        await site.push("-A", "--force")  # an import of a private export without a token
        assert await heard_by_bob(site) == [b"open"]
        trust.run("delete", "import", "-a", "B", "-s", "private.abc.b")
        activate()
        await site.push()
        assert await heard_by_bob(site) == [b"secret", b"open"]
        alice, bob = await site.enter("A", "alice"), await site.enter("B", "bob")

        async def helps(message: Msg) -> None:
            await message.respond(b"help is here")

        await alice.subscribe("private.help.*", cb=helps)
        await alice.flush()
        assert (await bob.request("help", b"me", timeout=WAIT_S)).data == b"help is here"
        # the activation is revoked: the private stream is gone, the public one is not
        trust.run("revocations", "add_activation", "-a", "A", "-s", "private.abc.*", "-t", "B")
        await site.push()
        assert await heard_by_bob(site) == [b"open"]

    play(scenario)


def test_a_revoked_user_is_cut_by_the_push(play: Callable[..., None], trust: TrustTool) -> None:
    async def scenario(site: Site) -> None:
        await site.push()
        alice, bob = await site.enter("A", "alice"), await site.enter("B", "bob")
        trust.run("revocations", "add-user", "-a", "A", "-n", "alice")
        await site.push("-a", "A")
        await site.until(lambda: alice.is_closed)
        with pytest.raises((nats.errors.Error, OSError)):
            await site.enter("A", "alice")
        await bob.flush(int(WAIT_S))
        # a token that is issued after the revocation is valid
        await asyncio.to_thread(trust.run, "edit", "user", "alice", "-a", "A")
        await (await site.enter("A", "alice")).flush(int(WAIT_S))

    play(scenario)


def test_a_revoked_device_is_cut_and_its_name_is_free(play: Callable[..., None], trust: TrustTool) -> None:
    trust.run("add", "user", "pump", "-a", "A")

    async def scenario(site: Site) -> None:
        await site.push()
        alice, pump = await site.enter("A", "alice"), await site.enter("A", "pump")
        path, stolen_key = trust.creds("OP", "A", "pump"), trust.key("user", "pump", "-a", "A")
        stolen = path.read_text()
        words = ("fleet", "revoke", "pump", "-a", "A", "-u", site.process.client_url(), "--timeout", str(WAIT_S))
        revoked = (await asyncio.to_thread(trust.json, *words))["revoked"]
        assert [(each["name"], each["key"]) for each in revoked] == [("pump", stolen_key)]
        await site.until(lambda: pump.is_closed)
        assert not path.exists()
        await alice.flush(int(WAIT_S))
        await asyncio.to_thread(trust.run, "add", "user", "pump", "-a", "A")
        assert trust.key("user", "pump", "-a", "A") != stolen_key
        await (await site.enter("A", "pump")).flush(int(WAIT_S))
        path.write_text(stolen)
        with pytest.raises((nats.errors.Error, OSError)):
            await site.enter("A", "pump")

    play(scenario)


def test_a_revoked_leaf_node_is_cut_and_comes_back_with_new_credentials(
    play: Callable[..., None], trust: TrustTool, tmp_path: Path
) -> None:
    """The device keeps running: its link ends with the revocation, and returns once its credentials file is new."""
    trust.run("add", "user", "pump", "-a", "A")
    path = trust.creds("OP", "A", "pump")
    mine = tmp_path / "device.creds"
    shutil.copy(path, mine)

    async def scenario(site: Site) -> None:
        await site.push()
        remote = f'urls: ["nats-leaf://127.0.0.1:{site.process.leaf_port}"], account: A, credentials: "{mine}"'
        config = f"""
            server_name: pump
            accounts {{ A: {{ users: [{{user: acc, password: acc}}] }} }}
            leafnodes {{ reconnect: 1, remotes = [ {{ {remote} }} ] }}
        """
        with Eyotd(config, tmp_path / "device") as device:
            async with Clients(device) as (at_device,):
                alice = await site.enter("A", "alice")
                await reaches(at_device, alice)
                words = ("fleet", "revoke", "pump", "-a", "A", "-u", site.process.client_url())
                await asyncio.to_thread(trust.json, *words, "--timeout", str(WAIT_S))
                await eventually(lambda: _link(device)["state"] != "up")
                await eventually(lambda: "uthoriz" in str(_link(device)["last_error"]))
                await eventually(lambda: not site.process.monitor("/leafz")["leafs"])
                await asyncio.to_thread(trust.run, "add", "user", "pump", "-a", "A")
                shutil.copy(path, mine)
                await reaches(at_device, alice)

    play(scenario, more='\nleafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }\n')


def _link(device: Eyotd) -> dict[str, Any]:
    link: dict[str, Any] = device.monitor("/eyot/status")["links"][0]
    return link


def test_limits_and_expiry_hold(play: Callable[..., None], trust: TrustTool) -> None:
    trust.run("edit", "account", "A", "--conns", "1", "--js-mem-storage", "0", "--payload", "16")
    trust.run("add", "user", "late", "-a", "B", "--start", "2100-01-01")
    trust.run("add", "user", "elsewhere", "-a", "B", "--source-network", "192.0.2.0/24")
    trust.run("add", "user", "browser", "-a", "B", "--conn-type", "WEBSOCKET")

    async def scenario(site: Site) -> None:
        await site.push()
        alice = await site.enter("A", "alice")
        for account, user in (("A", "alice"), ("B", "late"), ("B", "elsewhere"), ("B", "browser")):
            with pytest.raises((nats.errors.Error, OSError)):
                await site.enter(account, user)
        await alice.publish("x", bytes(16))
        await alice.flush(int(WAIT_S))
        await alice.publish("x", bytes(17))
        await site.until(lambda: alice.is_closed)
        assert "maximum payload" in str(alice.last_error).lower()

    play(scenario)


def test_servers_and_store_are_compared_and_made_equal(play: Callable[..., None], trust: TrustTool) -> None:
    async def scenario(site: Site) -> None:
        await site.push()
        path = trust.folder / "OP" / "accounts" / "A" / "A.jwt"
        pushed = path.read_text()
        path.unlink()
        assert trust.key("account", "B") in (await site.pull("-A"))["pulled"]
        assert path.read_text() == pushed
        # what is newer here stays, unless that is wanted
        time.sleep(1.1 - time.time() % 1)  # tokens have whole seconds
        trust.run("edit", "account", "A", "--conns", "7")
        newer = path.read_text()
        found = await site.pull("-a", "A")
        assert (found["pulled"], len(found["warnings"])) == ([], 1)
        assert path.read_text() == newer
        assert (await site.pull("-a", "A", "--overwrite-newer"))["pulled"] == [trust.key("account", "A")]
        assert path.read_text() == pushed
        # an account that the store no longer has is pruned
        gone = trust.key("account", "B")
        trust.run("delete", "account", "B")
        difference = (await site.push("--diff"))["diff"]
        assert difference["only_servers"] == [gone]
        assert (await site.push("--prune"))["deleted"] == [gone]
        assert (await site.push("--diff"))["diff"]["only_servers"] == []

    play(scenario)


def test_a_server_without_such_a_resolver_says_so(play: Callable[..., None], trust: TrustTool) -> None:
    async def scenario(site: Site) -> None:
        await (await site.enter("A", "alice")).flush(int(WAIT_S))
        said = await asyncio.to_thread(trust.refused, "push", "-A", "-u", site.process.client_url())
        assert "generate config --nats-resolver" in said

    play(scenario, "--mem-resolver")
