"""Every row of the table of causes in `docs/operate/doctor.md`: the broken part, and the report of `eyot doctor` at both ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, RetentionPolicy, StreamConfig, StreamSource

from support.links.leaf_pair import server
from support.servers.eyot_tool import doctor
from support.servers.eyotd import Eyotd
from support.servers.nats_server import debian_version
from support.servers.server_process import ServerProcess

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "doctor.md"
HUB = """
server_name: hub-server
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
accounts {
    ACC: { users: [{user: acc, password: acc}, {user: link, password: link PERMISSIONS}], jetstream: enabled }
    OTHER: { users: [{user: other, password: other}], jetstream: enabled }
}
"""
LEAF = """
server_name: leaf-server
jetstream { store_dir: "%WORKDIR%/store", domain: leaf }
leafnodes { reconnect: "100ms", remotes = [ { urls: ["nats-leaf://USER:USER@127.0.0.1:HUB_PORT"], account: ACC } ] }
accounts { ACC: { users: [{user: acc, password: acc}], jetstream: enabled } }
"""


async def nothing(hub: Client, leaf: Client) -> None:
    pass


async def source(hub: Client, leaf: Client) -> None:
    """The hub sources the leaf node's stream."""
    origin = StreamSource(name="DATA", external=ExternalStream(api="$JS.leaf.API"))
    await hub.jetstream(timeout=10).add_stream(name="ALL", sources=[origin])


async def source_and_wipe(hub: Client, leaf: Client) -> None:
    await source(hub, leaf)
    await _arrived(hub, "ALL")
    await hub.jetstream(timeout=10).delete_stream("ALL")


async def mirror_of_hub(hub: Client, leaf: Client) -> None:
    """The leaf node mirrors a stream of the hub."""
    await hub.jetstream(timeout=10).add_stream(name="ORDERS", subjects=["orders.>"])
    await hub.jetstream().publish("orders.1", b"x")
    origin = StreamSource(name="ORDERS", external=ExternalStream(api="$JS.hub.API"))
    await leaf.jetstream(timeout=10).add_stream(StreamConfig(name="ORDERS", mirror=origin))


async def mirror_of_nobody(hub: Client, leaf: Client) -> None:
    origin = StreamSource(name="ORDERS", external=ExternalStream(api="$JS.elsewhere.API"))
    await leaf.jetstream(timeout=10).add_stream(StreamConfig(name="ORDERS", mirror=origin))


async def _arrived(client: Client, stream: str) -> None:
    for _ in range(3_000):
        if (await client.jetstream(timeout=10).stream_info(stream)).state.messages:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"nothing in {stream}")


@dataclass
class Cause:
    """`leaf`, `hub`: the exit code, and a pattern for a failure or warning that names the cause; None: nothing is said."""

    set_up: Callable[[Client, Client], Awaitable[None]]
    leaf: tuple[int, str]
    hub: tuple[int, str] | None = None
    permissions: str = ""
    user: str = "link"
    retention: RetentionPolicy = RetentionPolicy.LIMITS
    log: str = ""
    #: On the leaf node of a nats-server hub, where that says another thing.
    leaf_of_nats: tuple[int, str] | None = None
    hubs: tuple[str, ...] = field(default=("eyotd", "nats-server"))


def denied(subject: str) -> str:
    return f', permissions: {{ publish: {{ deny: "{subject}" }}, subscribe: {{ deny: "{subject}" }} }}'


#: By the words of the table's first column.
CAUSES = {
    "nothing is wrong": Cause(source, (0, ""), (0, "")),
    "nothing is wrong, the origin is a work queue": Cause(
        source, (0, ""), (0, ""), retention=RetentionPolicy.WORK_QUEUE
    ),
    "permissions deny `$JS.<leaf>.API.>`": Cause(
        source,
        (3, r"\$JS\.leaf\.API"),
        (4, r"\$JS\.leaf\.API"),
        denied("$JS.leaf.API.>"),
        log=r"does not carry \$JS\.leaf\.API",
    ),
    "permissions deny `$JS.S.>`": Cause(
        source, (3, r"\$JS\.S\."), (4, r"\$JS\.S\."), denied("$JS.S.>"), log=r"does not carry \$JS\.S"
    ),
    "permissions deny `$JSC.R.>`": Cause(
        source,
        (4, r"\$JSC\.R"),
        (4, r"did not answer|\$JSC\.R"),
        denied("$JSC.R.>"),
        log=r"does not carry \$JSC\.R",
        # From 2.10 on the request of the hub's source does not come here: nobody is known to be behind.
        leaf_of_nats=(3 if debian_version() >= (2, 10) else 4, r"\$JSC\.R"),
    ),
    "permissions deny `$JS.FC.>`": Cause(
        source, (4, r"\$JS\.FC"), (4, r"\$JS\.FC"), denied("$JS.FC.>"), log=r"does not carry \$JS\.FC"
    ),
    "permissions deny the origin's API": Cause(
        mirror_of_hub, (4, r"\$JS\.hub\.API"), None, denied("$JS.hub.API.>"), log=r"does not carry \$JS\.hub\.API"
    ),
    "the link is in another account of the hub": Cause(
        source, (3, "not visible from here"), (4, "no server of domain leaf is linked to account ACC"), user="other"
    ),
    "the hub has no mirror or source": Cause(nothing, (3, "not visible from here"), (0, "")),
    "the hub lost its mirror or source": Cause(
        source_and_wipe, (3, "not visible from here"), (0, ""), leaf_of_nats=(4, "does not read DATA")
    ),
    "the origin's domain is not linked": Cause(mirror_of_nobody, (4, "no server of domain elsewhere is linked"), None),
}
CASES = [(name, hub) for name, cause in CAUSES.items() for hub in cause.hubs]


@pytest.mark.parametrize(("name", "hub_kind"), CASES)
def test_doctor_names_the_cause(name: str, hub_kind: str, tmp_path: Path) -> None:
    cause = CAUSES[name]
    hub = server(hub_kind, HUB.replace("PERMISSIONS", cause.permissions), tmp_path / "hub")
    leaf = Eyotd(LEAF.replace("USER", cause.user).replace("HUB_PORT", str(hub.leaf_port)), tmp_path / "leaf")

    async def play() -> None:
        at_hub, at_leaf = await nats.connect(hub.client_url("acc")), await nats.connect(leaf.client_url("acc"))
        js = at_leaf.jetstream(timeout=10)
        await js.add_stream(name="DATA", subjects=["data.>"], retention=cause.retention)
        await js.publish("data.1", b"x")
        leaf.wait_log("Leafnode connection created", 60)
        await cause.set_up(at_hub, at_leaf)
        if name.startswith("nothing"):
            await _arrived(at_hub, "ALL")
        if cause.log:
            leaf.wait_log(cause.log, 60)
        await _says(leaf, cause.leaf if isinstance(hub, Eyotd) else cause.leaf_of_nats or cause.leaf)
        if cause.hub is not None and isinstance(hub, Eyotd):
            await _says(hub, cause.hub)
        await at_hub.close()
        await at_leaf.close()

    hub.start()
    try:
        leaf.start()
        asyncio.run(play())
    finally:
        leaf.kill()
        hub.kill()


async def _says(which: ServerProcess, expected: tuple[int, str]) -> None:
    """It comes to say so, as soon as it can know."""
    for _ in range(40):
        code, checks = await doctor(which, "acc")
        bad = [
            f"{each['name']}: {each['detail']} {each['remedy']}"
            for each in checks
            if each["state"] in ("failure", "warning")
        ]
        bad = [each for each in bad if not each.startswith("disk")]
        if code == expected[0] and (not expected[1] or any(re.search(expected[1], each) for each in bad)):
            return
        await asyncio.sleep(0.5)
    raise AssertionError((which.name, code, expected, bad))


def test_every_row_of_the_table_is_tested() -> None:
    page = PAGE.read_text()
    _, _, table = page.partition("| cause | on the leaf node | on an Eyot hub |\n|---|---|---|\n")
    rows = [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()]
    elsewhere = ("another leaf node has the same domain", "the hub's address resets the connection")
    assert rows == [*CAUSES, *elsewhere]
