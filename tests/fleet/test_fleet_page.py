"""The fleet's page at a real hub (nats-server and Eyot), with a real device: logins of the hub's users, and what a device answers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import trio

from eyot_fleet.connection import connected
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.errors import FleetError, NoAnswer, Refused
from eyot_fleet.login import Login
from eyot_fleet.web.ask import ask, connect
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web.nats_login import NatsLogin
from eyot_fleet.web.trust_commands import TrustCommands
from eyot_fleet.web_options import NatsOptions, TrustOptions
from eyot_wire.doctor.check import Check
from eyot_wire.status import StatusReport, SyncReport
from eyot_wire.untrusted import decode_json
from support.devices.fleet_browser import Browser
from support.links.leaf_pair import HUB, LEAF, WAIT_S, LeafPair, server
from support.servers.server_process import ServerProcess
from support.trust import claims
from support.trust.trust_tool import TrustTool

#: `watch` and `run` have roles at the page; `mute` may not ask who it is, and `other` is of another account.
USERS = """
accounts {
    SYS: { users: [{user: admin, password: admin}] }
    ACC: { users: [
        {user: acc, password: acc}, {user: run, password: "r$n"}, {user: nobody, password: nobody}
        {user: watch, password: "$2a$04$EoP8Jh0mZwT3ccLKr7DL0O32tgF91kfF2T9T/u.zrCuzBbpuOicfC"}
        {user: mute, password: mute, permissions: {publish: "x", subscribe: "_INBOX.>"}}
    ], jetstream: enabled }
    OTHER: { users: [{user: other, password: other}] }
}
system_account: SYS
"""
DEVICE = 'eyot { device { name: "gateway-17", account: ACC, answers: [status, sync, connect] } }\n'
DOWN = '{ urls: ["nats-leaf://acc:acc@127.0.0.1:1"], account: OTHER }'
ROLES = NatsOptions(account="ACC", viewers=("watch", "mute", "other"), operators=("run",))


@pytest.fixture(scope="module", params=["2.14.6", "eyotd"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeafPair]:
    leaf = LEAF.replace("remotes = [", f"remotes = [ {DOWN}") + DEVICE
    folder = tmp_path_factory.mktemp("page")
    with LeafPair(request.param, "eyotd", folder, hub_config=HUB, leaf_config=leaf, accounts=USERS) as pair:
        asyncio.run(_until_it_answers(pair))
        yield pair


async def _until_it_answers(pair: LeafPair) -> None:
    """Until the device answers over its link, and its other link to the hub is up too."""
    client = await nats.connect(pair.hub.client_url("acc"))
    for _ in range(600):
        try:
            answer = await client.request("$EYOT.DEVICE.gateway-17.status", b"", timeout=5)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
            await asyncio.sleep(0.1)
            continue
        if sum(link.state == "up" for link in decode_json(answer.data, StatusReport).links) == 2:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the leaf node was not linked")
    await client.close()


def hub_login(pair: LeafPair, user: str = "acc") -> Login:
    return Login(servers=(f"nats://127.0.0.1:{pair.hub.client_port}",), user=user, password=user)


def check(pair: LeafPair, user: str, password: str) -> Identity:
    async def run() -> Identity:
        return await NatsLogin(ROLES, hub_login(pair)).check(user, password)

    return trio.run(run)


@pytest.mark.parametrize(("user", "password", "role"), [("watch", "foo", "viewer"), ("run", "r$n", "operator")])
def test_a_user_of_the_hub_logs_in(pair: LeafPair, user: str, password: str, role: str) -> None:
    assert check(pair, user, password) == Identity(name=user, role=role, method="nats")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("run", "wrong"),
        ("run", ""),
        ("", ""),
        ("nobody", "nobody"),
        ("other", "other"),
        ("admin", "admin"),
        ("run ", "r$n"),
        ("x" * 5000, "x"),
    ],
)
def test_everybody_else_is_refused_with_the_same_words(pair: LeafPair, user: str, password: str) -> None:
    with pytest.raises(LoginRefused, match=r"^the name or the password is wrong, or the user has no role here$"):
        check(pair, user, password)


def test_a_user_that_may_not_ask_who_it_is_is_told_so(pair: LeafPair) -> None:
    with pytest.raises(LoginUnavailable, match=r"allowed to publish to \$SYS.REQ.USER.INFO"):
        check(pair, "mute", "mute")


def test_without_a_hub_no_login_can_be_checked(pair: LeafPair) -> None:
    async def run() -> None:
        hub = Login(servers=("nats://127.0.0.1:1",), user="acc", password="acc")
        await NatsLogin(ROLES, hub).check("run", "r$n")

    with pytest.raises(LoginUnavailable, match="the hub cannot be reached"):
        trio.run(run)


def at_hub(pair: LeafPair, act: Callable[[Any], Any]) -> Any:
    """What `act` returns with a connection; errors that it raises come alone, not in a group."""

    async def run() -> Any:
        found: Any = None
        async with connected(hub_login(pair)) as connection:
            try:
                found = await act(connection)
            except (NoAnswer, Refused) as error:
                found = error
        return found

    return trio.run(run)


def test_a_device_answers_over_its_link(pair: LeafPair) -> None:
    status = at_hub(pair, lambda connection: ask(connection, "gateway-17", "status"))
    assert isinstance(status, StatusReport)
    assert status.server_name == "leaf-server"
    sync = at_hub(pair, lambda connection: ask(connection, "gateway-17", "sync"))
    assert isinstance(sync, SyncReport)
    checks = at_hub(pair, lambda connection: ask(connection, "gateway-17", "doctor"))
    assert all(isinstance(each, Check) for each in checks)
    assert any(each.state == "failure" and "link" in each.name for each in checks)


def test_a_link_that_is_down_is_dialled_and_one_that_is_up_stays(pair: LeafPair) -> None:
    status = at_hub(pair, lambda connection: ask(connection, "gateway-17", "status"))
    (down,) = (link.name for link in status.links if link.state != "up")
    up = {link.name: link.since for link in status.links if link.state == "up"}
    assert len(up) == 2
    attempts = _attempts(pair, down)
    assert at_hub(pair, lambda connection: connect(connection, "gateway-17", down)) == [down]
    assert at_hub(pair, lambda connection: connect(connection, "gateway-17", "")) == [down]
    deadline = time.monotonic() + WAIT_S
    while _attempts(pair, down) <= attempts:
        assert time.monotonic() < deadline
    for name, words in ((next(iter(up)), "the link is up"), ("<b>", "there is no remote of this name")):
        refused = at_hub(pair, lambda connection, name=name: connect(connection, "gateway-17", name))
        assert isinstance(refused, Refused)
        assert words in str(refused)
    after = at_hub(pair, lambda connection: ask(connection, "gateway-17", "status"))
    assert {link.name: link.since for link in after.links if link.state == "up"} == up


def _attempts(pair: LeafPair, name: str) -> int:
    status = at_hub(pair, lambda connection: ask(connection, "gateway-17", "status"))
    return next(link.attempts for link in status.links if link.name == name)


@pytest.mark.parametrize(
    ("device", "words"), [("gateway-18", "does not answer"), ("a.b", "cannot be asked"), ("*", "cannot be asked")]
)
def test_a_device_that_does_not_answer_is_told(pair: LeafPair, device: str, words: str) -> None:
    assert words in str(at_hub(pair, lambda connection: ask(connection, device, "status")))


def test_an_operator_asks_a_device_at_the_page(pair: LeafPair) -> None:
    async def run() -> None:
        browser = Browser()
        browser.site.access._nats = NatsLogin(ROLES, hub_login(pair))
        browser.backend.index.put(DeviceRecord(name="gateway-17", heard_at=time.time()), time.time())
        status, told = await browser.login("run", "r$n")
        assert (status, told["role"]) == (200, "operator")
        async with connected(hub_login(pair)) as connection:
            browser.backend.connected = connection
            status, told = await browser.post("/api/actions/ask", {"device": "gateway-17", "report": "doctor"})
        assert status == 200
        assert {each["state"] for each in told["done"]} >= {"failure"}
        assert [line.outcome for line in browser.backend.lines] == ["done", "begun", "done"]

    trio.run(run)


@pytest.fixture(scope="module", params=["2.14.6", "eyotd"])
def operator_hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A hub in operator mode with two accounts."""
    accounts = (claims.OPERATOR.account(claims.ALPHA), claims.OPERATOR.account(claims.BETA))
    config = "server_name: hub\n" + claims.operator_conf(*accounts)
    hub = server(request.param, config, tmp_path_factory.mktemp("operator"))
    hub.start()
    yield hub
    hub.kill()


def check_creds(hub: ServerProcess, text: str) -> Identity:
    roles = NatsOptions(
        account=claims.ALPHA.public, viewers=(claims.OTHER.public,), operators=(claims.USER.public, "ada")
    )

    async def run() -> Identity:
        return await NatsLogin(roles, Login(servers=(hub.client_url(),))).check_creds(text)

    return trio.run(run)


def test_in_operator_mode_a_user_logs_in_with_its_credentials(operator_hub: ServerProcess) -> None:
    token = claims.ALPHA.user(claims.USER, claims={"name": "ad\ra"})
    found = check_creds(operator_hub, claims.creds(token, claims.USER))
    assert found == Identity(name=f"ad\\ra ({claims.USER.public})", role="operator", method="nats")
    token = claims.ALPHA.user(claims.OTHER)
    assert check_creds(operator_hub, claims.creds(token, claims.OTHER)).role == "viewer"


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "\x00" * 100,
        # of another account, of a user without a role that calls itself as one with a role, with another's key, and forged
        claims.creds(claims.BETA.user(claims.USER), claims.USER),
        claims.creds(claims.ALPHA.user(claims.ADMIN, claims={"name": "ada"}), claims.ADMIN),
        claims.creds(claims.ALPHA.user(claims.USER), claims.OTHER),
        claims.creds(claims.Key("A", 99).user(claims.USER), claims.USER),
        claims.creds(claims.ALPHA.user(claims.USER, claims={"exp": 1}), claims.USER),
    ],
)  # fmt: skip
def test_other_credentials_are_refused(operator_hub: ServerProcess, text: str) -> None:
    with pytest.raises(LoginRefused):
        check_creds(operator_hub, text)


def test_tokens_of_a_real_store_are_listed_and_withdrawn(tmp_path: Path) -> None:
    tool = TrustTool(tmp_path)
    tool.run("add", "operator", "OP")
    tool.run("add", "account", "DEVICES")
    tool.run("edit", "account", "DEVICES", "--sk", "generate")
    tool.run("edit", "signing-key", "-a", "DEVICES", "--sk", "generate", "--role", "device")
    made = tool.json("fleet", "enrol", "pump-1", "pump-2", "-a", "DEVICES")["tokens"]
    eyot = str(Path(sys.executable).with_name("eyot"))
    command = (eyot, "-s", "nats://127.0.0.1:1", "fleet", "--all-dirs", str(tmp_path))

    async def run() -> None:
        trust = TrustCommands(TrustOptions(account="DEVICES", command=command))
        assert {(each.id, each.names, each.left) for each in await trust.tokens()} == {
            (each["id"], each["names"], 1) for each in made
        }
        await trust.withdraw(made[0]["id"])
        assert [each.id for each in await trust.tokens()] == [made[1]["id"]]
        with pytest.raises(FleetError, match="pump-1"):
            await trust.revoke("pump-1")  # no such device is enrolled

    trio.run(run)
